//! The command line: the commands and the arguments that several of them share.

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};

use crate::commands::{
    bench, chat, compose, doctor, explain, fetch, info, manual, models, parse, render, run,
    template_check, template_diff,
};
use crate::failure::Result;
use crate::{abi, input, serve};

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = abi::version();
    version.strip_prefix("llb ").unwrap_or(&version).to_owned()
});

const EXIT_STATUS: &str = "Exit status:
  0    success
  1    the command failed; stderr says why, and what to do next
  2    wrong usage
  3    a check found something: lints, differences, a damaged file
  130  ended by Ctrl-C";

/// Try, inspect and serve GGUF chat models.
///
/// Results go to stdout; progress, questions and errors go to stderr. Colours are off in pipes and
/// with NO_COLOR.
#[derive(Debug, Parser)]
#[command(name = "llb", version = VERSION.as_str(), after_help = EXIT_STATUS)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Describe a model and its capabilities
    Info(info::Arguments),
    /// Talk to a model; Ctrl-C ends a reply, Ctrl-D the chat
    Chat(chat::Arguments),
    /// Print the reply to one prompt
    Run(run::Arguments),
    /// Print the prompt of messages
    Render(render::Arguments),
    /// Show where each part of a prompt comes from
    Explain(explain::Arguments),
    /// Parse the output of a model into a message
    Parse(parse::Arguments),
    /// Make a chat template from building blocks, or find those of a template
    Compose(compose::Arguments),
    /// Check and compare chat templates
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Download a model of the Hugging Face hub
    Fetch(fetch::Arguments),
    /// List, verify and remove the models of this machine
    Models(models::Arguments),
    /// Serve models over HTTP, by the protocols of OpenAI and Anthropic
    Serve(serve::Arguments),
    /// Measure the speed of a model
    Bench(bench::Arguments),
    /// Say what this machine has, what is wrong, and what to do
    Doctor(doctor::Arguments),
    /// Print the completions of a shell
    Completions(manual::CompletionsArguments),
    /// Print a man page, or write all of them into a folder
    Man(manual::ManArguments),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Print the lints of chat templates
    Check(template_check::Arguments),
    /// Show how prompts and capabilities of two chat templates differ
    Diff(template_diff::Arguments),
}

/// How a model is loaded.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Loading")]
pub(crate) struct Loading {
    /// Tokens of context [default: the smaller of the model's and 8192]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) n_ctx: Option<u32>,
    /// Threads that compute [default: physical cores, fewer while the machine is busy]
    #[arg(long, value_name = "N")]
    pub(crate) n_threads: Option<u32>,
    /// Layers on GPUs, in a build that supports any [default: as many as fit]
    #[arg(long, value_name = "N")]
    pub(crate) n_gpu_layers: Option<u32>,
    /// Type of the KV cache: f16, q8_0, ...
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type: Option<String>,
    /// A chat template (a Jinja file) in place of the model's
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
}

impl Loading {
    /// The options of a create. Models without tools are accepted.
    pub(crate) fn options(&self, path: &str) -> Result<Value> {
        let mut options = json!({ "model": path, "tool_policy": "any" });
        set(&mut options, "n_ctx", self.n_ctx);
        set(&mut options, "n_threads", self.n_threads);
        set(&mut options, "n_gpu_layers", self.n_gpu_layers);
        set(&mut options, "cache_type_k", self.cache_type.clone());
        set(&mut options, "cache_type_v", self.cache_type.clone());
        if let Some(path) = &self.chat_template {
            options["chat_template"] = input::text(path)?.into();
        }
        Ok(options)
    }
}

/// How a reply is generated.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// Tokens of a reply
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    pub(crate) max_tokens: u32,
    /// [default: what the model recommends, or 0.7]
    #[arg(long)]
    pub(crate) temperature: Option<f64>,
    #[arg(long)]
    pub(crate) top_p: Option<f64>,
    #[arg(long)]
    pub(crate) top_k: Option<i64>,
    #[arg(long)]
    pub(crate) min_p: Option<f64>,
    /// Repeats a reply, with a number of --n-threads
    #[arg(long)]
    pub(crate) seed: Option<i64>,
    /// Text that ends a reply; may be given more than once
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Whether the model reasons, if its template has a switch for it
    #[arg(long, value_name = "BOOL")]
    pub(crate) enable_thinking: Option<bool>,
    /// Tokens of each block of reasoning
    #[arg(long, value_name = "TOKENS")]
    pub(crate) reasoning_budget: Option<i64>,
    /// A JSON schema (a file) that the reply obeys
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema: Option<PathBuf>,
}

impl Sampling {
    /// The members of a request, without messages.
    pub(crate) fn request(&self) -> Result<Value> {
        let mut request = json!({ "max_tokens": self.max_tokens, "stream_format": "chunks" });
        set(&mut request, "temperature", self.temperature);
        set(&mut request, "top_p", self.top_p);
        set(&mut request, "top_k", self.top_k);
        set(&mut request, "min_p", self.min_p);
        set(&mut request, "seed", self.seed);
        set(&mut request, "enable_thinking", self.enable_thinking);
        set(&mut request, "reasoning_budget", self.reasoning_budget);
        if !self.stop.is_empty() {
            request["stop"] = json!(self.stop);
        }
        if let Some(path) = &self.json_schema {
            let schema = json!({ "name": "reply", "schema": input::json(path)?, "strict": true });
            request["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        Ok(request)
    }
}

fn set(object: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
