//! `llb`: try, inspect and serve GGUF chat models from a terminal. It uses the library only through
//! the C ABI (`abi`). Results go to stdout; progress, questions and errors go to stderr.
//!
//! `commands` has a module for each command, `serve` the HTTP server. docs/cli.md and
//! docs/server.md describe both.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

/// Writes a line to stderr. A closed stderr is not an error.
macro_rules! say {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr().lock(), $($argument)*);
    }};
}

mod abi;
mod arguments;
mod commands;
mod failure;
mod generation;
mod input;
mod interrupt;
mod memory;
mod model_source;
mod serve;
mod template_source;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::failure::{Failure, OK, Result};
use crate::terminal::{Look, Style};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match interrupt::install().and_then(|()| run(arguments.command)) {
        Ok(status) => status.into(),
        Err(failure) => {
            report(&failure);
            failure.status().into()
        }
    }
}

fn run(command: Command) -> Result<u8> {
    use commands::{
        bench, chat, compose, doctor, explain, fetch, info, manual, models, parse, render, run,
        template_check, template_diff,
    };
    match command {
        Command::Info(arguments) => info::run(&arguments)?,
        Command::Chat(arguments) => chat::run(&arguments)?,
        Command::Run(arguments) => run::run(&arguments)?,
        Command::Render(arguments) => render::run(&arguments)?,
        Command::Explain(arguments) => explain::run(&arguments)?,
        Command::Parse(arguments) => parse::run(&arguments)?,
        Command::Compose(arguments) => compose::run(&arguments)?,
        Command::Template(arguments::TemplateCommand::Check(arguments)) => {
            return template_check::run(&arguments);
        }
        Command::Template(arguments::TemplateCommand::Diff(arguments)) => {
            return template_diff::run(&arguments);
        }
        Command::Fetch(arguments) => fetch::run(&arguments)?,
        Command::Models(arguments) => return models::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments)?,
        Command::Bench(arguments) => bench::run(&arguments)?,
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments)?,
    }
    Ok(OK)
}

fn report(failure: &Failure) {
    let style = Style::stderr();
    say!("{} {failure}", style.paint(Look::Red, "llb:"));
    if let Some(next) = &failure.next {
        say!("{} {next}", style.paint(Look::Dim, "next:"));
    }
}
