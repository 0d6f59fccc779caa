//! Text as it is generated -> deltas, and at the end the message they add up to.
//!
//! One character is one step, so how the text was cut into pieces cannot matter. What may still become a marker, blanks
//! next to one, and a call up to its commit point are held back; everything else goes out at once and is never taken back.
//! Held text is decided once, as a whole: the work is linear in the text.

mod committed;
mod ending;
mod envelope;
mod fenced;
mod tagged;

use std::collections::HashSet;

use serde_json::Value;

use self::envelope::Envelope;
use self::fenced::Fence;
use self::tagged::{Candidate, Gap, Opened};
use super::Format;
use super::message::{Delta, Diagnostic, Parsed};

const FENCE: &str = "```";
/// Diagnostics beyond this many say nothing new.
const MAX_DIAGNOSTICS: usize = 64;

/// What a recogniser has to know before the first piece of text.
pub struct RecogniserInput<'a> {
    /// How this model writes calls and reasoning; None means plain text.
    pub format: Option<&'a Format>,
    /// The request's tools, as OpenAI tool objects.
    pub tools: &'a [Value],
    /// There are tools, and `tool_choice` is not `none`. Otherwise call markup is ordinary text.
    pub calls_allowed: bool,
    /// The generation prompt ended inside an open reasoning block. Text the prompt already holds of that block, or of the
    /// reply, is pushed first, like text that was generated.
    pub reasoning_open: bool,
    /// More than one call was asked for; a second call is recognised all the same, and reported.
    pub parallel: bool,
    /// Makes the id of each call.
    pub new_id: Box<dyn FnMut() -> String + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Content,
    Reasoning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    CallOpen,
    CallClose,
    ReasoningOpen,
    ReasoningClose,
    Fence,
}

/// What became of the last opening tag that turned out not to open a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    No,
    /// It is worth reporting once a closing tag shows that a call was meant.
    Silent,
    Reported,
}

#[derive(Debug)]
enum State {
    /// Text, with or without the beginning of a marker.
    Text,
    /// Behind an opening tag, before the object.
    Opened(Opened),
    /// Inside the object.
    Object(Box<Candidate>),
    /// Behind an object, where the closing tag is due.
    Closing(Gap),
    /// Behind the backticks of a fence, before the object.
    Fence(Fence),
    /// Inside the object of a fence.
    FenceObject(Box<Candidate>),
    /// Behind the object of a fence, where its end is due.
    FenceEnd(Box<Candidate>),
    /// Inside an object that may be the whole reply, with its calls in it.
    Envelope(Box<Envelope>),
    /// A whole call inside reasoning: a call if the reasoning never closes, text if it does.
    Suspended(Gap),
}

/// Recognises reasoning and calls in a model's output.
pub struct Recogniser {
    format: Option<Format>,
    tools: HashSet<String>,
    calls_allowed: bool,
    parallel: bool,
    new_id: Box<dyn FnMut() -> String + Send>,

    place: Place,
    state: State,
    /// The beginning of what may become a marker.
    tail: String,
    /// Blanks that may turn out to stand before a marker.
    blanks: String,
    /// Only blanks since the last marker.
    after_marker: bool,
    line_start: bool,
    /// The reasoning block under way: was it opened by the model, is it still empty.
    opened_by_tag: bool,
    block_empty: bool,
    failed: Failed,
    owed_close: bool,
    opened_as_text: bool,
    /// At the end of the text: what was suspended is read again, now as calls.
    replaying: bool,

    deltas: Vec<Delta>,
    parsed: Parsed,
}

impl Recogniser {
    /// A recogniser at the start of a reply.
    pub fn new(input: RecogniserInput<'_>) -> Recogniser {
        let tools = input.tools.iter().filter_map(|tool| {
            let name = tool.get("function").unwrap_or(tool).get("name")?;
            name.as_str().map(str::to_owned)
        });
        let reasons = input.format.is_some_and(|format| format.reasoning.is_some());
        let reasoning_open = input.reasoning_open && reasons;
        Recogniser {
            format: input.format.cloned(),
            tools: tools.collect(),
            calls_allowed: input.calls_allowed && input.format.is_some(),
            parallel: input.parallel,
            new_id: input.new_id,
            place: if reasoning_open { Place::Reasoning } else { Place::Content },
            state: State::Text,
            tail: String::new(),
            blanks: String::new(),
            after_marker: reasoning_open,
            line_start: true,
            opened_by_tag: false,
            block_empty: true,
            failed: Failed::No,
            owed_close: false,
            opened_as_text: false,
            replaying: false,
            deltas: Vec::new(),
            parsed: Parsed { complete: true, ..Parsed::default() },
        }
    }

    /// Takes the next piece of text, however it was cut, and returns what became certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        for c in text.chars() {
            self.step(c);
        }
        std::mem::take(&mut self.deltas)
    }

    /// The text ends here: decides what is still held, and returns it with the whole message.
    pub fn finish(mut self) -> (Vec<Delta>, Parsed) {
        self.end();
        self.report_bare_call();
        if self.parsed.reasoning.as_deref() == Some("") {
            self.parsed.reasoning = None;
        }
        (self.deltas, self.parsed)
    }

    fn step(&mut self, c: char) {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text if c == '{' && self.may_open_envelope() => self.open_envelope(c),
            State::Text => self.text_step(c),
            State::Envelope(envelope) => self.envelope_step(envelope, c),
            State::Opened(opened) => self.opened_step(opened, c),
            State::Object(candidate) => self.object_step(candidate, c),
            State::Closing(gap) => self.closing_step(gap, c),
            State::Fence(fence) => self.fence_step(fence, c),
            State::FenceObject(candidate) => self.fence_object_step(candidate, c),
            State::FenceEnd(candidate) => self.fence_end_step(candidate, c),
            State::Suspended(gap) => self.suspended_step(gap, c),
        }
    }

    // Text and markers.

    fn text_step(&mut self, c: char) {
        self.tail.push(c);
        loop {
            match self.find_marker() {
                Match::Whole(marker) => {
                    let text = std::mem::take(&mut self.tail);
                    self.on_marker(marker, &text);
                    return;
                }
                Match::Beginning => return,
                Match::No => {}
            }
            let first = self.tail.remove(0);
            self.text(first);
            if self.tail.is_empty() {
                return;
            }
        }
    }

    fn find_marker(&self) -> Match {
        let Some(format) = &self.format else { return Match::No };
        let reasoning = format.reasoning.as_ref();
        let content = self.place == Place::Content;
        let fence = content && self.calls_allowed && format.fenced_calls && self.line_start;
        let markers = [
            (Marker::CallOpen, Some(&*format.call_open)),
            (Marker::CallClose, content.then_some(&*format.call_close)),
            (Marker::ReasoningOpen, reasoning.map(|markers| &*markers.open)),
            (Marker::ReasoningClose, reasoning.map(|markers| &*markers.close)),
            (Marker::Fence, fence.then_some(FENCE)),
        ];
        best(&self.tail, markers.into_iter().filter_map(|(marker, text)| Some((marker, text?))))
    }

    fn on_marker(&mut self, marker: Marker, text: &str) {
        match (self.place, marker) {
            (_, Marker::CallOpen) if self.calls_allowed => {
                let mut held = std::mem::take(&mut self.blanks);
                held.push_str(text);
                self.state = State::Opened(Opened { held, tail: String::new(), array: false, tags: 1 });
            }
            (_, Marker::CallOpen) => {
                self.text_all(text);
                self.opened_as_text = true;
            }
            (_, Marker::CallClose) => self.stray_close(text),
            (Place::Content, Marker::Fence) => {
                let mut held = std::mem::take(&mut self.blanks);
                held.push_str(text);
                self.state = State::Fence(Fence { held, language: String::new(), named: false });
            }
            (Place::Content, Marker::ReasoningOpen) => {
                let first =
                    self.parsed.content.is_empty() && self.parsed.reasoning.is_none() && self.parsed.tool_calls.is_empty();
                if !first {
                    self.note("reasoning_reopened", "reasoning was opened after the answer had begun");
                }
                self.place = Place::Reasoning;
                self.opened_by_tag = true;
                self.block_empty = true;
                self.marker_passed();
            }
            (Place::Reasoning, Marker::ReasoningOpen) if self.block_empty => self.marker_passed(),
            (Place::Reasoning, Marker::ReasoningClose) => {
                self.place = Place::Content;
                self.marker_passed();
            }
            (Place::Content, Marker::ReasoningClose) => {
                self.text_all(text);
                self.note("stray_end_marker", &format!("`{text}` closes nothing and was kept as text"));
            }
            (Place::Reasoning, _) => self.text_all(text),
        }
    }

    fn stray_close(&mut self, text: &str) {
        if self.owed_close {
            self.owed_close = false;
            self.marker_passed();
            return;
        }
        self.text_all(text);
        if !self.calls_allowed {
            return;
        }
        match self.failed {
            Failed::No => self.note("stray_end_marker", &format!("`{text}` closes nothing and was kept as text")),
            Failed::Silent => self.note("malformed_call", "the text between the call's tags is not a call"),
            Failed::Reported => {}
        }
        self.failed = Failed::No;
    }

    /// Blanks around a marker belong to it.
    fn marker_passed(&mut self) {
        self.blanks.clear();
        self.after_marker = true;
        self.line_start = true;
    }

    fn text_all(&mut self, text: &str) {
        for c in text.chars() {
            self.text(c);
        }
    }

    /// One character that is certainly not part of a marker.
    fn text(&mut self, c: char) {
        if is_blank(c) {
            self.line_start |= c == '\n';
            if !self.after_marker {
                self.blanks.push(c);
            }
            return;
        }
        if std::mem::take(&mut self.opened_as_text) && matches!(c, '{' | '[') {
            self.note("call_without_tools", "the reply holds a call, but no call was asked for; it was kept as text");
        }
        self.line_start = false;
        self.after_marker = false;
        let blanks = std::mem::take(&mut self.blanks);
        self.emit(&blanks);
        self.emit(c.encode_utf8(&mut [0; 4]));
    }

    fn emit(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.place {
            Place::Content => {
                self.parsed.content.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Content(last)) => last.push_str(text),
                    _ => self.deltas.push(Delta::Content(text.to_owned())),
                }
            }
            Place::Reasoning => {
                let all = self.parsed.reasoning.get_or_insert_default();
                let join = if self.block_empty && !all.is_empty() { "\n" } else { "" };
                self.block_empty = false;
                all.push_str(join);
                all.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Reasoning(last)) => {
                        last.push_str(join);
                        last.push_str(text);
                    }
                    _ => self.deltas.push(Delta::Reasoning(format!("{join}{text}"))),
                }
            }
        }
    }

    /// Returns held text to the text around it. It is not read again; only its last character, the one that decided, may
    /// begin something new.
    fn give_back(&mut self, held: &str) {
        if let Some((at, last)) = held.char_indices().next_back() {
            self.text_all(&held[..at]);
            self.step(last);
        }
    }

    /// Reads text again that no state wants: never more than a marker's beginning or the few characters of a gap.
    fn again(&mut self, text: &str) {
        for c in text.chars() {
            self.step(c);
        }
    }

    // Calls in reasoning.

    fn suspended_step(&mut self, mut gap: Gap, c: char) {
        let close = self.format.as_ref().and_then(|format| format.reasoning.as_ref()).map(|markers| &*markers.close);
        let Some(close) = close else { return };
        gap.tail.push(c);
        while !gap.tail.is_empty() && !close.starts_with(&gap.tail) {
            gap.held.push(gap.tail.remove(0));
        }
        if gap.tail == close {
            self.text_all(&gap.held);
            self.on_marker(Marker::ReasoningClose, &gap.tail);
        } else {
            self.state = State::Suspended(gap);
        }
    }

    fn note(&mut self, code: &'static str, message: &str) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(Diagnostic { code, message: message.to_owned() });
        }
    }
}

/// How far the held text is a marker.
enum Match {
    Whole(Marker),
    Beginning,
    No,
}

fn best<'a>(tail: &str, markers: impl IntoIterator<Item = (Marker, &'a str)>) -> Match {
    let mut found = Match::No;
    for (marker, text) in markers {
        if text == tail {
            return Match::Whole(marker);
        }
        if text.starts_with(tail) {
            found = Match::Beginning;
        }
    }
    found
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
