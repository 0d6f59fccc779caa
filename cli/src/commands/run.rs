//! `llb run`: prints the reply to one prompt.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;

use crate::abi::Chat;
use crate::arguments::{Loading, Sampling};
use crate::failure::Result;
use crate::generation::{print_reply, refuse_cancelled};
use crate::input::{self, print_json};
use crate::model_source::{HELP, model_file};
use crate::{interrupt, terminal};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    /// Prompt [default: stdin]
    #[arg(long, short)]
    prompt: Option<String>,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// JSON file with tools; calls are printed, not run
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Print the whole reply as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let prompt = match &arguments.prompt {
        Some(prompt) => prompt.clone(),
        None => input::prompt()?,
    };
    let mut messages = Vec::new();
    if let Some(text) = &arguments.system {
        messages.push(json!({ "role": "system", "content": text }));
    }
    messages.push(json!({ "role": "user", "content": prompt }));
    let mut request = arguments.sampling.request()?;
    request["messages"] = messages.into();
    if let Some(path) = &arguments.tools {
        request["tools"] = input::tools(path)?;
    }
    let path = model_file(&arguments.model)?;
    let options = arguments.loading.options(&path)?;
    let chat = Arc::new(Chat::open(&options, terminal::progress(&arguments.model))?);
    if arguments.json {
        let cancelled = Arc::clone(&chat);
        let reply =
            interrupt::cancellable(move || cancelled.cancel(), || chat.infer(&request, |_| ()))?;
        print_json(&reply);
        return refuse_cancelled(&reply);
    }
    refuse_cancelled(&print_reply(&chat, &request)?)
}
