//! `llb chat`: a conversation on the terminal, or a single reply in a pipe.

mod editor;
mod session;
mod slash;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use self::editor::{Editor, Line};
use self::session::Session;
use self::slash::Slash;
use crate::arguments::{Loading, Sampling};
use crate::failure::Result;
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
    let tools = arguments.tools.as_deref().map(input::tools).transpose()?;
    let (model, loading) = (&arguments.model, &arguments.loading);
    let mut session = Session::open(model, loading, request, arguments.system.clone(), tools)?;
    match prompt {
        Some(prompt) => session.answer_once(&prompt),
        None => converse(&mut session, Editor::new(!arguments.no_history)?),
    }
}

fn converse(session: &mut Session, mut editor: Editor) -> Result<()> {
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
            None => session.ask_timed(vec![json!({ "role": "user", "content": line })]),
            Some(Ok(Slash::Quit)) => return Ok(()),
            Some(Ok(command)) => session.command(command),
            Some(Err(failure)) => Err(failure),
        };
        // A failure ends the turn but not the chat.
        if let Err(failure) = result.and_then(|()| results(session, &mut editor)) {
            terminal::report(&failure);
        }
    }
}

/// Asks for the results of calls until a reply has no calls.
fn results(session: &mut Session, editor: &mut Editor) -> Result<()> {
    loop {
        let calls = session.open_calls();
        if calls.is_empty() {
            return Ok(());
        }
        let mut messages = Vec::new();
        for (id, name) in calls {
            let shown = printable(&name).replace('\n', " ");
            let Line::Text(text) = editor.read(&format!("result of {shown}> "))? else {
                session.forget_turn();
                return Ok(());
            };
            messages
                .push(json!({ "role": "tool", "tool_call_id": id, "name": name, "content": text }));
        }
        session.ask_timed(messages)?;
    }
}
