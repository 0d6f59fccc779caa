//! `llb parse`: the output of a model to a message.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::abi;
use crate::failure::Result;
use crate::input::{self, print_json};
use crate::template_source::{HELP, add_template};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    /// A file with the output of the model [default: stdin]
    output: Option<PathBuf>,
    /// A JSON file of the tools that may be called
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// A file with the prompt, or its end
    #[arg(long, value_name = "FILE")]
    prompt: Option<PathBuf>,
    /// The output is not finished
    #[arg(long)]
    partial: bool,
    /// The beginning-of-sequence token of a Jinja file
    #[arg(long, value_name = "TOKEN")]
    bos: Option<String>,
    /// The end-of-sequence token of a Jinja file
    #[arg(long, value_name = "TOKEN")]
    eos: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let output = input::text(arguments.output.as_deref().unwrap_or(Path::new("-")))?;
    let mut request = serde_json::json!({ "output": output, "partial": arguments.partial });
    if let Some(path) = &arguments.tools {
        request["tools"] = input::json(path)?;
    }
    if let Some(path) = &arguments.prompt {
        request["prompt"] = input::text(path)?.into();
    }
    let (bos, eos) = (arguments.bos.as_deref(), arguments.eos.as_deref());
    add_template(&mut request, &arguments.model, bos, eos)?;
    print_json(&abi::template_parse(&request)?);
    Ok(())
}
