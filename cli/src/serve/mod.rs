//! `llb serve`: models behind the HTTP protocols of OpenAI and Anthropic.
//!
//! A request goes from `listener` (connections) through `app` (routes, key, log) to the module of
//! its protocol, which turns it into a chat request of the library. `generation` runs it on a chat
//! of a `model`, and `event_stream` sends what comes. docs/server.md describes what clients see.

mod access;
mod app;
mod chat_completions;
mod error;
mod event_stream;
mod explain;
mod fields;
mod generation;
mod json_body;
mod listener;
mod log;
mod messages;
mod metrics;
mod model;
mod page;
mod responses;
mod status;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use self::app::App;
use self::model::ServedModel;
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::{input, interrupt};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Models: a GGUF file or hf:ORG/NAME[:QUANT], with NAME= before it for a name of yours
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
    /// The address to listen on. Other machines reach the server only by another one than this
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 is any free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// A file with the key that clients must send
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The key itself; other users of the machine can read arguments, but not the environment
    #[arg(long, env = "LLB_API_KEY", hide_env_values = true, value_name = "KEY")]
    api_key: Option<String>,
    /// Requests that each model answers at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// Requests that wait for each model; more are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 128)]
    queue: usize,
    /// Tokens of replies to requests that do not say [default: half of --n-ctx / --parallel]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// The most seconds that a request may wait for the model, and then run
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// The most seconds in which the headers, and the body, of a request must come
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    read_timeout: u64,
    /// The largest body of a request
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    max_body: usize,
    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_connections: u32,
    /// Seconds that running requests have after a signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Write no line for each request
    #[arg(long)]
    no_access_log: bool,
    #[command(flatten)]
    loading: Loading,
}

/// What requests may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServeLimits {
    parallel: usize,
    queue: usize,
    max_tokens: Option<u64>,
    timeout: Duration,
    read_timeout: Duration,
    max_body: usize,
    max_connections: usize,
    grace: Duration,
}

impl Arguments {
    fn limits(&self) -> ServeLimits {
        ServeLimits {
            parallel: self.parallel as usize,
            queue: self.queue,
            max_tokens: self.max_tokens,
            timeout: Duration::from_secs(self.timeout),
            read_timeout: Duration::from_secs(self.read_timeout),
            max_body: self.max_body,
            max_connections: self.max_connections as usize,
            grace: Duration::from_secs(self.grace),
        }
    }

    fn key(&self) -> Result<Option<String>> {
        let key = match &self.api_key_file {
            Some(path) => Some(input::text(path)?.trim().to_owned()),
            None => self.api_key.clone(),
        };
        if key.as_ref().is_some_and(String::is_empty) {
            return Err(Failure::new("the API key is empty"));
        }
        Ok(key)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let limits = arguments.limits();
    let key = arguments.key()?;
    let mut models: Vec<Arc<ServedModel>> = Vec::new();
    for model in &arguments.models {
        let model = ServedModel::open(model, &arguments.loading, limits)?;
        if models.iter().any(|other| other.name == model.name) {
            let failure = Failure::new(format!("{}: two models have this name", model.name));
            return Err(failure.next("name them: llb serve NAME=MODEL OTHER=MODEL"));
        }
        models.push(Arc::new(model));
    }
    if !arguments.host.is_loopback() && key.is_none() {
        say!("llb: everyone who reaches {} can use the models", arguments.host);
        say!("next: set a key with --api-key-file or LLB_API_KEY");
    }
    let address = SocketAddr::new(arguments.host, arguments.port);
    let app = Arc::new(App::new(models, limits, key, address, !arguments.no_access_log));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1024)
        .enable_all()
        .build()?;
    let (stop, stopping) = watch::channel(false);
    let result = interrupt::cancellable(
        move || {
            say!("llb: stopping; running requests may finish, a second signal ends them");
            let _ = stop.send(true);
        },
        || runtime.block_on(listener::serve(address, Arc::clone(&app), stopping)),
    );
    runtime.shutdown_timeout(Duration::from_secs(5));
    result
}
