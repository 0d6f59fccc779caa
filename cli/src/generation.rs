//! Prints one reply of a model on the terminal, chunk by chunk, and ends it on Ctrl-C.

use std::sync::Arc;

use serde_json::Value;

use crate::abi::Chat;
use crate::failure::{Failure, Result};
use crate::input::print;
use crate::interrupt;
use crate::json;
use crate::terminal::{self, Look, Style, counted};
use crate::word_wrap::WordWrap;

/// Prints a reply while it is being generated, and returns it.
///
/// Reasoning is dimmed on a terminal and absent in a pipe. Calls are printed as
/// `get_weather({"city":"Paris"})`.
pub(crate) fn print_reply(chat: &Arc<Chat>, request: &Value) -> Result<Value> {
    let mut printer = Printer::new(Style::stdout(), is_terminal());
    let cancelled = Arc::clone(chat);
    // Its thread draws at once, and only on a terminal. Reading a long prompt takes a while.
    let mut waiting = Some(terminal::spinner("reading the prompt"));
    let reply = interrupt::cancellable(
        move || cancelled.cancel(),
        || {
            chat.infer(request, |chunk| {
                if let Some(waiting) = waiting.take() {
                    waiting.finish_and_clear();
                }
                let chunk: Value = json::value(chunk).unwrap_or_default();
                printer.show(&chunk["choices"][0]["delta"]);
            })
        },
    );
    if let Some(waiting) = waiting {
        waiting.finish_and_clear();
    }
    printer.end();
    let reply = reply?;
    warn(&reply, request);
    Ok(reply)
}

/// The length and the speed of a reply: `23 tokens, 31.2 per second, the first after 0.4 s`.
pub(crate) fn speed(reply: &Value) -> String {
    let tokens = reply["usage"]["completion_tokens"].as_u64().unwrap_or_default();
    let timing = |name: &str| reply["timings"][name].as_f64();
    let mut parts = vec![counted(tokens as usize, "token")];
    parts.extend(timing("predicted_per_second").map(|speed| format!("{speed:.1} per second")));
    let first = timing("prompt_ms").map(|ms| format!("the first after {:.1} s", ms / 1e3));
    parts.extend(first);
    parts.join(", ")
}

/// Returns a failure if Ctrl-C ended the reply.
pub(crate) fn refuse_cancelled(reply: &Value) -> Result<()> {
    if reply["finish_reason"] == "cancelled" {
        return Err(Failure::interrupted("the reply"));
    }
    Ok(())
}

/// Warns on stderr about anything that the user should know about the reply.
fn warn(reply: &Value, request: &Value) {
    let style = Style::stderr();
    let warning = |text: &str| say!("{} {text}", style.paint(Look::Yellow, "llb:"));
    if reply["finish_reason"] == "length" {
        let tokens = &reply["usage"]["completion_tokens"];
        let advice = if *tokens == request["max_tokens"] {
            "raise --max-tokens"
        } else {
            "the context is full; raise --n-ctx, or drop old tokens with --context-overflow shift"
        };
        warning(&format!("the reply was cut off after {tokens} tokens; {advice}"));
    }
    for diagnostic in reply["diagnostics"].as_array().into_iter().flatten() {
        if let Some(message) = diagnostic["message"].as_str() {
            warning(message);
        }
    }
}

fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stdout())
}

/// The kind of the last piece. A change of kind begins a new line.
#[derive(PartialEq, Clone, Copy)]
enum Part {
    Nothing,
    Reasoning,
    Text,
    Call,
}

impl Part {
    fn look(self) -> Option<Look> {
        (self == Part::Reasoning).then_some(Look::Dim)
    }
}

struct Printer {
    style: Style,
    on_terminal: bool,
    part: Part,
    at_line_start: bool,
    /// Breaks the lines of text and reasoning on a terminal.
    wrap: WordWrap,
}

impl Printer {
    fn new(style: Style, on_terminal: bool) -> Printer {
        let width = if on_terminal { terminal::width() } else { 0 };
        let wrap = WordWrap::new(width);
        Printer { style, on_terminal, part: Part::Nothing, at_line_start: true, wrap }
    }

    fn show(&mut self, delta: &Value) {
        if let Some(text) = delta["reasoning_content"].as_str()
            && self.on_terminal
        {
            self.begin(Part::Reasoning);
            let text = self.wrap.push(text);
            self.write(self.part.look(), &text);
        }
        if let Some(text) = delta["content"].as_str() {
            self.begin(Part::Text);
            let text = self.wrap.push(text);
            self.write(self.part.look(), &text);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                self.end();
                self.part = Part::Call;
                self.write(Some(Look::Yellow), &format!("{name}("));
            }
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            self.write(Some(Look::Yellow), arguments);
        }
    }

    fn begin(&mut self, part: Part) {
        if self.part != part {
            self.end();
            self.part = part;
        }
    }

    fn write(&mut self, look: Option<Look>, text: &str) {
        if text.is_empty() {
            return;
        }
        self.at_line_start = text.ends_with('\n');
        print(&look.map_or(text.to_owned(), |look| self.style.paint(look, text)));
    }

    /// Writes the rest of a text, closes a call, and begins a new line.
    fn end(&mut self) {
        let rest = self.wrap.finish();
        self.write(self.part.look(), &rest);
        if self.part == Part::Call {
            self.write(Some(Look::Yellow), ")");
        }
        if !self.at_line_start {
            self.write(None, "\n");
        }
        self.part = Part::Nothing;
    }
}
