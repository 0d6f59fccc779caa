//! `llb render`: renders messages to a prompt, without loading a model.

use clap::Args;

use crate::abi;
use crate::failure::Result;
use crate::input::{print, print_json};
use crate::template_source::PromptArguments;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    prompt: PromptArguments,
    /// Print prompt, polyfills and diagnostics as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let request = arguments.prompt.request()?;
    let rendered = abi::template_render(&request)
        .map_err(|failure| failure.in_template(&arguments.prompt.model))?;
    if arguments.json {
        print_json(&rendered);
    } else {
        print(rendered["prompt"].as_str().unwrap_or_default());
    }
    Ok(())
}
