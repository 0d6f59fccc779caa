//! `llb parse`: parses a model's output into a message.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::abi;
use crate::failure::Result;
use crate::input::{self, print_json};
use crate::template_source::{HELP, TokenArguments, add_template};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    /// File with the output of the model [default: stdin]
    output: Option<PathBuf>,
    /// JSON file with the tools that may be called
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// File with the prompt, or with the end of it
    #[arg(long, value_name = "FILE")]
    prompt: Option<PathBuf>,
    /// Treat the output as unfinished
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    tokens: TokenArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let output = input::text(arguments.output.as_deref().unwrap_or(Path::new("-")))?;
    let mut request = serde_json::json!({ "output": output, "partial": arguments.partial });
    if let Some(path) = &arguments.tools {
        request["tools"] = input::tools(path)?;
    }
    if let Some(path) = &arguments.prompt {
        request["prompt"] = input::text(path)?.into();
    }
    add_template(&mut request, &arguments.model, &arguments.tokens)?;
    let parsed =
        abi::template_parse(&request).map_err(|failure| failure.in_template(&arguments.model))?;
    print_json(&parsed);
    Ok(())
}
