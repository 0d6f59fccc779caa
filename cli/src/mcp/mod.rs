//! Tools of MCP servers: servers are started from a file, their tools are given to the model, and its
//! calls are run if the user permits it. Source: <https://modelcontextprotocol.io/specification>.

mod approval;
mod config;
mod connection;
mod servers;

use std::io::{IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use self::approval::Approval;
use self::servers::McpServers;
use crate::failure::{Failure, Result};
use crate::terminal::{Look, Style, printable};

/// How often a model may call tools before the user is asked again.
const MAX_ROUNDS: usize = 25;
/// The lines of a result that the user sees.
const SHOWN_LINES: usize = 5;

/// Which MCP servers run, and whether their tools may.
#[derive(Debug, Args, Clone)]
pub(crate) struct McpArguments {
    /// JSON file with `mcpServers`, as other programs have it; calls of their tools are run
    #[arg(long = "mcp", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Run tools without asking
    #[arg(long, requires = "file")]
    yes: bool,
}

impl McpArguments {
    /// Starts the servers; `None` if there is no file.
    pub(crate) fn start(&self) -> Result<Option<ToolRunner>> {
        let Some(file) = &self.file else { return Ok(None) };
        let servers = McpServers::start(file)?;
        Ok(Some(ToolRunner { servers, approval: Approval::new(self.yes), rounds: 0 }))
    }
}

/// Runs the calls of a model.
pub(crate) struct ToolRunner {
    servers: McpServers,
    approval: Approval,
    /// How often the model has called tools since the user's last message.
    rounds: usize,
}

impl ToolRunner {
    /// The tools for a request.
    pub(crate) fn tools(&self) -> Vec<Value> {
        self.servers.tools()
    }

    /// A new message of the user.
    pub(crate) fn begin_turn(&mut self) {
        self.rounds = 0;
    }

    /// Counts a reply with calls. After many, the user is asked about calls that were permitted.
    pub(crate) fn begin_round(&mut self) -> Result<()> {
        self.rounds += 1;
        if self.rounds <= MAX_ROUNDS {
            return Ok(());
        }
        if self.approval.permits_all() {
            return Err(Failure::new(format!("stopped after {MAX_ROUNDS} rounds of calls")));
        }
        say!("llb: the model has called tools {MAX_ROUNDS} times");
        self.approval.forget();
        self.begin_turn();
        Ok(())
    }

    /// Runs a call of a message, and returns the message with its result. `None` if no server has the
    /// tool. `ask` shows a question and returns the answer.
    pub(crate) fn answer(
        &mut self,
        call: &Value,
        ask: impl FnMut(&str) -> Result<String>,
    ) -> Result<Option<Value>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, arguments) =
            (text(&call["function"]["name"]), text(&call["function"]["arguments"]));
        if !self.servers.has(&name) {
            return Ok(None);
        }
        let content = if self.approval.permits(&name, ask)? {
            let content = self.servers.call(&name, &arguments);
            show(&content);
            content
        } else {
            "The user does not permit this call.".to_owned()
        };
        Ok(Some(
            json!({ "role": "tool", "tool_call_id": call["id"], "name": name, "content": content }),
        ))
    }
}

/// Asks on the terminal. Without one, calls need `--yes`.
pub(crate) fn ask(question: &str) -> Result<String> {
    if !stdin().is_terminal() {
        let failure = Failure::new("a tool may not run unasked, and stdin is no terminal");
        return Err(failure.next("--yes runs tools without asking"));
    }
    eprint_question(question);
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(line)
}

fn eprint_question(question: &str) {
    let mut terminal = stderr().lock();
    // A closed stderr is not an error.
    let _ = terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush());
}

/// Shows the beginning of a result.
fn show(content: &str) {
    let style = Style::stderr();
    let mut lines = content.lines();
    for line in lines.by_ref().take(SHOWN_LINES) {
        say!("{}", style.paint(Look::Dim, &printable(line)));
    }
    let more = lines.count();
    if more > 0 {
        say!("{}", style.paint(Look::Dim, &format!("({more} more lines)")));
    }
}
