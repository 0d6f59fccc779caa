//! `llb`: try, inspect and serve GGUF chat models from a terminal. It uses models only through the C
//! ABI (`abi`), and of the crate the reading of JSON and of the machine's memory. Results go to
//! stdout; progress, questions and errors go to stderr.
//!
//! `commands` has a module for each command, `serve` the HTTP server. docs/cli.md and
//! docs/server.md describe both.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

/// Writes a line to stderr. A closed stderr is not an error.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::terminal::say(format_args!($($argument)*))
    };
}

mod abi;
mod allocator;
mod arguments;
mod cached_models;
mod command_line;
mod commands;
mod failure;
mod generation;
mod input;
mod interrupt;
mod json;
mod mcp;
mod media_file;
mod model_source;
mod prompt;
mod raw_json;
mod serve;
mod template_source;
mod template_warning;
mod terminal;
mod word_wrap;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, chat, compose, doctor, explain, fetch, info, launch, manual, models, parse, ps, render,
    rpc, run, template_check, template_diff,
};
use crate::failure::{OK, Result};

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
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Describe a model and its capabilities
    #[command(visible_alias = "show")]
    Info(info::Arguments),
    /// Talk to a model; Ctrl-C ends a reply, Ctrl-D the chat
    Chat(chat::Arguments),
    /// Print the reply to one prompt
    Run(run::Arguments),
    /// Print the prompt for some messages
    Render(render::Arguments),
    /// Show a prompt and the origin of its parts
    Explain(explain::Arguments),
    /// Parse a model's output into a message
    Parse(parse::Arguments),
    /// Compose a chat template from components, or find the components of a template
    Compose(compose::Arguments),
    /// Check and compare chat templates
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Download a model from the Hugging Face hub
    #[command(visible_alias = "pull")]
    Fetch(fetch::Arguments),
    /// List, verify and remove the models on this machine
    #[command(visible_alias = "ls")]
    Models(models::Arguments),
    /// List the models of a running server
    Ps(ps::Arguments),
    /// Serve models over HTTP with the protocols of OpenAI and Anthropic
    Serve(serve::Arguments),
    /// Serve the devices of this machine to other machines, which name it as a device
    Rpc(rpc::Arguments),
    /// Start a coding agent on a model, which is served as long as the agent runs
    Launch(launch::Arguments),
    /// Measure the speed of a model
    Bench(bench::Arguments),
    /// Show what this machine has, and report problems with their remedies
    Doctor(doctor::Arguments),
    /// Print completions for a shell
    Completions(manual::CompletionsArguments),
    /// Print a man page, or write all of them to a folder
    Man(manual::ManArguments),
}

#[derive(Debug, Subcommand)]
enum TemplateCommand {
    /// Print the lints of chat templates
    Check(template_check::Arguments),
    /// Show how the prompts and capabilities of two chat templates differ
    Diff(template_diff::Arguments),
}

fn main() -> ExitCode {
    let arguments: Arguments = command_line::read();
    match interrupt::install().and_then(|()| dispatch(arguments.command)) {
        Ok(status) => status.into(),
        Err(failure) => {
            let program = Arguments::command();
            let failure = failure.in_options(|name| command_line::option_of(&program, name));
            terminal::report(&failure);
            failure.status().into()
        }
    }
}

fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Info(arguments) => info::run(&arguments)?,
        Command::Chat(arguments) => chat::run(&arguments)?,
        Command::Run(arguments) => run::run(&arguments)?,
        Command::Render(arguments) => render::run(&arguments)?,
        Command::Explain(arguments) => explain::run(&arguments)?,
        Command::Parse(arguments) => parse::run(&arguments)?,
        Command::Compose(arguments) => compose::run(&arguments)?,
        Command::Template(TemplateCommand::Check(check)) => return template_check::run(&check),
        Command::Template(TemplateCommand::Diff(diff)) => return template_diff::run(&diff),
        Command::Fetch(arguments) => fetch::run(&arguments)?,
        Command::Models(arguments) => return models::run(&arguments),
        Command::Ps(arguments) => ps::run(&arguments)?,
        Command::Serve(arguments) => serve::run(&arguments)?,
        Command::Rpc(arguments) => rpc::run(&arguments)?,
        Command::Launch(arguments) => return launch::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments)?,
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments, Arguments::command()),
        Command::Man(arguments) => manual::man(&arguments, Arguments::command())?,
    }
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
