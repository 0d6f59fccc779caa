//! The argument of commands that need a chat template and no weights: a model, or a Jinja file.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::input;
use crate::model_source::model_file;

/// The help of the argument.
pub(crate) const HELP: &str =
    "A GGUF file, hf:ORG/NAME[:QUANT], or a Jinja chat template (any other name)";

/// What goes into a prompt besides the template.
#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    #[arg(help = HELP)]
    pub(crate) model: String,
    /// A JSON file of messages, or of a whole request with `messages` [default: stdin]
    pub(crate) messages: Option<PathBuf>,
    /// One user message instead of a file
    #[arg(long, short = 'm', value_name = "TEXT", conflicts_with = "messages")]
    pub(crate) message: Option<String>,
    /// A system message before the others
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// A JSON file of tools
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Render the messages as they are, without adapting them to the template
    #[arg(long)]
    pub(crate) no_polyfills: bool,
    /// Do not open the turn of the assistant
    #[arg(long)]
    pub(crate) no_generation_prompt: bool,
    /// Variables of the template, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) kwargs: Option<Value>,
    /// The beginning-of-sequence token of a Jinja file
    #[arg(long, value_name = "TOKEN")]
    pub(crate) bos: Option<String>,
    /// The end-of-sequence token of a Jinja file
    #[arg(long, value_name = "TOKEN")]
    pub(crate) eos: Option<String>,
}

impl PromptArguments {
    /// The request of a render.
    pub(crate) fn request(&self) -> Result<Value> {
        let mut request = match (&self.message, &self.messages) {
            (Some(text), _) => json!({ "messages": [{ "role": "user", "content": text }] }),
            (None, path) => input::json(path.as_deref().unwrap_or(Path::new("-")))?,
        };
        if request.is_array() {
            request = json!({ "messages": request });
        }
        if let (Some(text), Some(messages)) = (&self.system, request["messages"].as_array_mut()) {
            messages.insert(0, json!({ "role": "system", "content": text }));
        }
        if let Some(path) = &self.tools {
            request["tools"] = input::json(path)?;
        }
        if self.no_polyfills {
            request["polyfills"] = json!({ "apply_polyfills": false });
        }
        if self.no_generation_prompt {
            request["add_generation_prompt"] = false.into();
        }
        if let Some(kwargs) = &self.kwargs {
            request["chat_template_kwargs"] = kwargs.clone();
        }
        add_template(&mut request, &self.model, self.bos.as_deref(), self.eos.as_deref())?;
        Ok(request)
    }
}

/// Whether the argument names a model rather than a Jinja file.
pub(crate) fn is_model(argument: &str) -> bool {
    argument.starts_with("hf:") || argument.contains("://") || argument.ends_with(".gguf")
}

/// Adds the template of an argument to a request.
pub(crate) fn add_template(
    request: &mut Value,
    argument: &str,
    bos: Option<&str>,
    eos: Option<&str>,
) -> Result<()> {
    if is_model(argument) {
        request["gguf"] = model_file(argument)?.into();
    } else {
        request["chat_template"] = input::text(Path::new(argument))?.into();
    }
    for (name, token) in [("bos_token", bos), ("eos_token", eos)] {
        if let Some(token) = token {
            request[name] = token.into();
        }
    }
    Ok(())
}

fn object(text: &str) -> std::result::Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}
