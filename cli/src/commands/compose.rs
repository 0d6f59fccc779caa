//! `llb compose`: composes a chat template from components, or derives components from a template.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use crate::abi;
use crate::failure::Result;
use crate::input::{self, print, print_json};
use crate::template_source::{TokenArguments, add_template};
use crate::terminal::columns;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The name of a registered template, or a JSON file with components; - is stdin
    #[arg(required_unless_present_any = ["list", "derive"])]
    components: Option<String>,
    /// List the registered templates
    #[arg(long)]
    list: bool,
    /// Find the components of the template of this model, or of this Jinja file
    #[arg(long, value_name = "MODEL", conflicts_with = "components")]
    derive: Option<String>,
    /// Fail if the composed template cannot carry all components
    #[arg(long)]
    strict: bool,
    /// Print the template, its components and its capabilities as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let reply = abi::template_compose(&request(arguments)?)?;
    if arguments.json {
        print_json(&reply);
    } else if arguments.list {
        print(&columns(&listed(&reply)));
    } else if arguments.derive.is_some() {
        print_json(&reply["spec"]);
    } else {
        print(reply["chat_template"].as_str().unwrap_or_default());
    }
    Ok(())
}

fn request(arguments: &Arguments) -> Result<Value> {
    if arguments.list {
        return Ok(json!({ "list": true }));
    }
    if let Some(model) = &arguments.derive {
        return Ok(json!({ "derive_from": template(model)? }));
    }
    let components = arguments.components.as_deref().unwrap_or("-");
    let is_file = components == "-" || components.ends_with(".json");
    let components = if is_file { input::json(Path::new(components))? } else { json!(components) };
    Ok(json!({ "components": components, "strict": arguments.strict }))
}

/// The Jinja text of the template that an argument names, and its tokens.
fn template(model: &str) -> Result<Value> {
    let mut request = json!({ "source": true });
    add_template(&mut request, model, &TokenArguments::default())?;
    let info = abi::template_info(&request).map_err(|failure| failure.in_template(model))?;
    let text = match info["chat_template"].as_array() {
        // For a model with two templates.
        Some(named) => {
            named.iter().find(|each| each["name"] == "default").map(|it| &it["template"])
        }
        None => Some(&info["chat_template"]),
    };
    Ok(json!({
        "chat_template": text, "bos_token": info["bos_token"], "eos_token": info["eos_token"],
    }))
}

fn listed(reply: &Value) -> Vec<Vec<String>> {
    let templates = reply["templates"].as_array().into_iter().flatten();
    templates
        .map(|template| {
            let caps = template["caps"].as_object().into_iter().flatten();
            let caps: Vec<&str> = caps
                .filter(|(_, value)| **value == Value::Bool(true))
                .map(|(name, _)| name.trim_start_matches("supports_"))
                .collect();
            vec![template["name"].as_str().unwrap_or_default().to_owned(), caps.join(" ")]
        })
        .collect()
}
