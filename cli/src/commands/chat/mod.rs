//! `llb chat`: a conversation on the terminal, or a single reply in a pipe.

mod editor;
mod session;
mod slash;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use self::editor::{Editor, Line};
use self::session::Session;
use self::slash::Slash;
use crate::arguments::{Loading, Sampling};
use crate::failure::{Failure, Result};
use crate::mcp::{self, McpArguments, ToolRunner};
use crate::model_source::HELP;
use crate::prompt::Prompt;
use crate::terminal::{Look, Style, printable};
use crate::{input, terminal};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    #[command(flatten)]
    prompt: Prompt,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// JSON file with tools; you enter the results of calls
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    #[command(flatten)]
    mcp: McpArguments,
    /// Keep no history of the input
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    loading: Loading,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let prompt = arguments.prompt.read()?;
    let request = arguments.sampling.request()?;
    let mut runner = arguments.mcp.start()?;
    let mut tools = match &arguments.tools {
        Some(path) => input::tools(path)?.as_array().cloned().unwrap_or_default(),
        None => Vec::new(),
    };
    tools.extend(runner.iter().flat_map(ToolRunner::tools));
    let (model, loading) = (&arguments.model, &arguments.loading);
    let mut session = Session::open(model, loading, request, arguments.system.clone(), tools)?;
    match prompt {
        Some(prompt) => {
            session.answer_once(&prompt)?;
            results(&mut session, &mut runner, None)
        }
        None => converse(&mut session, &mut runner, Editor::new(!arguments.no_history)?),
    }
}

fn converse(
    session: &mut Session,
    runner: &mut Option<ToolRunner>,
    mut editor: Editor,
) -> Result<()> {
    let style = Style::stderr();
    say!("{}", style.paint(Look::Dim, "/help lists the commands, Ctrl-D ends the chat"));
    loop {
        let line = match editor.read("> ")? {
            Line::End => return Ok(()),
            Line::Interrupted => continue,
            Line::Text(text) => text,
        };
        let result = match Slash::read(&line) {
            None if line.trim().is_empty() => Ok(()),
            None => session.ask_user(&line),
            Some(Ok(Slash::Quit)) => return Ok(()),
            Some(Ok(command)) => session.command(command),
            Some(Err(failure)) => Err(failure),
        };
        // A failure ends the turn but not the chat.
        if let Err(failure) = result.and_then(|()| results(session, runner, Some(&mut editor))) {
            terminal::report(&failure);
        }
    }
}

/// Runs the calls of MCP servers' tools, and asks for the results of others, until a reply has no
/// calls. Without an editor, it ends at a call of another tool.
fn results(
    session: &mut Session,
    runner: &mut Option<ToolRunner>,
    mut editor: Option<&mut Editor>,
) -> Result<()> {
    runner.iter_mut().for_each(ToolRunner::begin_turn);
    loop {
        let calls = session.open_calls();
        if calls.is_empty() {
            return Ok(());
        }
        let mut messages = Vec::new();
        match answers(&calls, runner, &mut editor, &mut messages) {
            Ok(true) => session.ask_timed(messages)?,
            Ok(false) if editor.is_none() => return Ok(()),
            Ok(false) => {
                session.forget_turn();
                return Ok(());
            }
            Err(failure) => {
                session.forget_turn();
                return Err(failure);
            }
        }
    }
}

/// Adds the results of calls. Returns false if the user gives none.
fn answers(
    calls: &[Value],
    runner: &mut Option<ToolRunner>,
    editor: &mut Option<&mut Editor>,
    messages: &mut Vec<Value>,
) -> Result<bool> {
    if let Some(runner) = runner {
        runner.begin_round()?;
    }
    for call in calls {
        let ask = |question: &str| match editor {
            Some(editor) => match editor.read(question)? {
                Line::Text(text) => Ok(text),
                Line::Interrupted | Line::End => Err(Failure::interrupted("the turn")),
            },
            None => mcp::ask(question),
        };
        let answer = runner.as_mut().map(|runner| runner.answer(call, ask)).transpose()?;
        if let Some(message) = answer.flatten() {
            messages.push(message);
            continue;
        }
        let Some(editor) = editor else { return Ok(false) };
        let name = &call["function"]["name"];
        let shown = printable(name.as_str().unwrap_or_default()).replace('\n', " ");
        let Line::Text(text) = editor.read(&format!("result of {shown}> "))? else {
            return Ok(false);
        };
        messages.push(
            json!({ "role": "tool", "tool_call_id": call["id"], "name": name, "content": text }),
        );
    }
    Ok(true)
}
