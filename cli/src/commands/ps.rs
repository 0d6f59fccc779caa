//! `llb ps`: the models of a running server, and whether they are in memory.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::Agent;

use crate::failure::{Failure, Result};
use crate::input::{print, print_json};
use crate::json;
use crate::terminal::{columns, grouped, printable};

/// The server answers this request without a model.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Its key
    #[arg(long, env = "LLB_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Print the server's reply as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let list = models(arguments)?;
    if arguments.json {
        print_json(&list);
        return Ok(());
    }
    let heading = ["MODEL", "IN MEMORY", "CONTEXT"].map(str::to_owned).to_vec();
    let entries = list["data"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = [heading].into_iter().chain(entries.map(row)).collect();
    print(&columns(&rows));
    Ok(())
}

fn row(entry: &Value) -> Vec<String> {
    let loaded = match entry["loaded"].as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let context = entry["context_length"].as_u64().map_or_else(|| "unknown".to_owned(), grouped);
    vec![printable(entry["id"].as_str().unwrap_or("unknown")), loaded.to_owned(), context]
}

/// The reply of `/v1/models`.
fn models(arguments: &Arguments) -> Result<Value> {
    let url = arguments.url.trim_end_matches('/');
    let config =
        Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
    let mut request = Agent::new_with_config(config).get(format!("{url}/v1/models"));
    if let Some(key) = &arguments.api_key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    let mut response = request.call().map_err(|error| {
        let failure = Failure::new(format!("no server answers at {url}: {error}"));
        failure.next("`llb serve MODEL` starts one; --url URL asks another")
    })?;
    let text = response.body_mut().read_to_string().unwrap_or_default();
    match json::value(&text) {
        Ok(list) if list["data"].is_array() => Ok(list),
        Ok(reply) if reply["error"]["message"].is_string() => {
            let message = reply["error"]["message"].as_str().unwrap_or_default();
            let failure = Failure::new(format!("{url}: {message}"));
            Err(failure.next("--api-key or LLB_API_KEY has the server's key"))
        }
        _ => Err(Failure::new(format!("{url}: not a server of models ({})", response.status()))),
    }
}
