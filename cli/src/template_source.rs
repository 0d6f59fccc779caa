//! The argument of commands that need a chat template but no weights: a model, or a Jinja file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::input;
use crate::json;
use crate::model_source::model_file;

/// The help text of the argument.
pub(crate) const HELP: &str = "A GGUF file, a name from `llb models` or its beginning, hf:ORG/NAME[:QUANT], or a Jinja chat \
     template (any other file)";

/// The arguments that determine a prompt, besides the template.
#[derive(Debug, Args)]
pub(crate) struct PromptArguments {
    #[arg(help = HELP)]
    pub(crate) model: String,
    /// JSON file with messages, or with a whole request that has `messages` [default: stdin]
    pub(crate) messages: Option<PathBuf>,
    /// User message to use instead of a file
    #[arg(long, short = 'm', value_name = "TEXT", conflicts_with = "messages")]
    pub(crate) message: Option<String>,
    /// System message before the others
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// JSON file with tools
    #[arg(long, value_name = "FILE")]
    pub(crate) tools: Option<PathBuf>,
    /// Render the messages unchanged, without adapting them to the template
    #[arg(long)]
    pub(crate) no_polyfills: bool,
    /// Do not open the assistant's turn
    #[arg(long)]
    pub(crate) no_generation_prompt: bool,
    /// Template variables, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = object)]
    pub(crate) kwargs: Option<Value>,
    #[command(flatten)]
    pub(crate) tokens: TokenArguments,
}

/// The texts of tokens that a Jinja file does not say.
#[derive(Debug, Default, Args)]
pub(crate) struct TokenArguments {
    /// Beginning-of-sequence token for Jinja files
    #[arg(long, value_name = "TOKEN")]
    bos: Option<String>,
    /// End-of-sequence token for Jinja files
    #[arg(long, value_name = "TOKEN")]
    eos: Option<String>,
}

impl PromptArguments {
    /// The request for rendering.
    pub(crate) fn request(&self) -> Result<Value> {
        let mut request = match (&self.message, &self.messages) {
            (Some(text), _) => json!({ "messages": [{ "role": "user", "content": text }] }),
            (None, path) => input::conversation(path.as_deref().unwrap_or(Path::new("-")))?,
        };
        if let (Some(text), Some(messages)) = (&self.system, request["messages"].as_array_mut()) {
            messages.insert(0, json!({ "role": "system", "content": text }));
        }
        if let Some(path) = &self.tools {
            request["tools"] = input::tools(path)?;
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
        add_template(&mut request, &self.model, &self.tokens)?;
        Ok(request)
    }
}

/// Whether the argument names a model rather than a Jinja file. Model files of other programs have
/// other names than `.gguf`, so the first bytes count too.
pub(crate) fn is_model(argument: &str) -> bool {
    let has_magic = || {
        let mut magic = [0; 4];
        let is_file = Path::new(argument).is_file();
        is_file
            && File::open(argument).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
            && magic == *b"GGUF"
    };
    argument.starts_with("hf:")
        || argument.contains("://")
        || argument.ends_with(".gguf")
        || has_magic()
}

/// Whether the argument names a Jinja file, or standard input.
pub(crate) fn is_template(argument: &str) -> bool {
    !is_model(argument) && (argument == "-" || Path::new(argument).exists())
}

/// Adds the template that an argument names to a request. A Jinja file is read without its byte
/// order mark.
pub(crate) fn add_template(
    request: &mut Value,
    argument: &str,
    tokens: &TokenArguments,
) -> Result<()> {
    add_read_template(request, argument, tokens, input::text)
}

/// Like [`add_template`], with the function that reads a Jinja file.
pub(crate) fn add_read_template(
    request: &mut Value,
    argument: &str,
    tokens: &TokenArguments,
    read: fn(&Path) -> Result<String>,
) -> Result<()> {
    if is_template(argument) {
        request["chat_template"] = read(Path::new(argument))?.into();
    } else {
        request["gguf"] = model_file(argument)?.into();
    }
    for (name, token) in [("bos_token", &tokens.bos), ("eos_token", &tokens.eos)] {
        if let Some(token) = token {
            request[name] = token.as_str().into();
        }
    }
    Ok(())
}

fn object(text: &str) -> std::result::Result<Value, String> {
    match json::value(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(error) => Err(format!("not JSON: {error}")),
    }
}
