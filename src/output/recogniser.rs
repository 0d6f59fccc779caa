//! Text as it is generated -> deltas, and at the end the message they add up to.
//!
//! One character is one step, so how the text was cut into pieces cannot matter. What may still become a marker, blanks
//! next to one, and a call up to its commit point are held back; everything else goes out at once and is never taken back.
//! Held text is decided once, as a whole: the work is linear in the text.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Format;
use super::call::{CallObject, Kind, Progress};
use super::partial_json;

const FENCE: &str = "```";
/// What may stand behind the backticks of a fenced call.
const FENCE_LANGUAGES: [&str; 3] = ["json", "tool_call", "tool_code"];
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

/// A piece of the message. All pieces of one kind, joined, are that part of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Visible text.
    Content(String),
    /// Reasoning text.
    Reasoning(String),
    /// A call begins; its id and name never change.
    ToolCall {
        /// Position among the message's calls.
        index: usize,
        /// The call's id.
        id: String,
        /// The function's name.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        /// Position among the message's calls.
        index: usize,
        /// JSON text, never cut inside an escape.
        fragment: String,
    },
}

/// A tool call of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// JSON text, the model's own bytes.
    pub arguments: String,
}

/// Something that was relaxed, repaired or guessed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// A stable code, for example `unknown_tool`.
    pub code: &'static str,
    /// The same for people.
    pub message: String,
}

impl Diagnostic {
    /// `{"code","message"}`.
    pub fn to_json(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }
}

/// The whole message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// Visible text.
    pub content: String,
    /// Reasoning, None when there was none or only blanks.
    pub reasoning: Option<String>,
    /// The calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// False when the text broke off inside a call or inside reasoning.
    pub complete: bool,
    /// Pieces of calls that the end of the text cut off before they could be told to be calls.
    pub leftover: Vec<String>,
    /// What was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
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
    /// A whole call inside reasoning: a call if the reasoning never closes, text if it does.
    Suspended(Gap),
}

/// An opening tag and what followed it.
#[derive(Debug)]
struct Opened {
    /// Blanks, tag and blanks, to go back to text if no call follows.
    held: String,
    /// The end of `held` that may be the beginning of a marker.
    tail: String,
    array: bool,
    tags: usize,
}

/// Backticks at the start of a line.
#[derive(Debug)]
struct Fence {
    held: String,
    language: String,
    /// Blanks follow: the language is complete.
    named: bool,
}

#[derive(Debug)]
struct Candidate {
    call: CallObject,
    /// Everything since the opening tag, until the call is committed.
    held: String,
    tail: String,
    array: bool,
    /// Another call stands before this one between the same tags.
    follows: bool,
    index: Option<usize>,
}

#[derive(Debug)]
struct Gap {
    held: String,
    tail: String,
    array: bool,
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
            State::Text => self.text_step(c),
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

    // Calls between tags.

    fn opened_step(&mut self, mut opened: Opened, c: char) {
        if opened.tail.is_empty() {
            if is_blank(c) {
                opened.held.push(c);
                self.state = State::Opened(opened);
                return;
            }
            if c == '[' && !opened.array {
                opened.array = true;
                opened.held.push(c);
                self.state = State::Opened(opened);
                return;
            }
            if c == '{' {
                let Opened { held, array, .. } = opened;
                if opened.tags > 1 {
                    self.note("dangling_marker", "an opening tag stands before another one and was left out");
                }
                return self.object_step(Candidate::new(held, array, false), c);
            }
        }
        opened.tail.push(c);
        match self.find_call_marker(&opened.tail) {
            Match::Whole(Marker::CallClose) => {
                self.note("empty_section", "there is nothing between the call's tags");
                self.marker_passed();
            }
            Match::Whole(_) => {
                opened.held.push_str(&std::mem::take(&mut opened.tail));
                opened.tags += 1;
                self.state = State::Opened(opened);
            }
            Match::Beginning => self.state = State::Opened(opened),
            Match::No => {
                self.failed = Failed::Silent;
                self.text_all(&opened.held);
                self.again(&opened.tail);
            }
        }
    }

    fn object_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let at_marker = !candidate.tail.is_empty() || (!candidate.call.in_string() && self.may_open_marker(c));
        if at_marker {
            candidate.tail.push(c);
            match self.find_call_marker(&candidate.tail) {
                Match::Beginning => self.state = State::Object(candidate),
                Match::Whole(marker) => self.marker_in_object(candidate, marker),
                Match::No => {
                    let tail = std::mem::take(&mut candidate.tail);
                    let mut rest = tail.chars();
                    if let Some(first) = rest.next() {
                        self.feed_object(candidate, first);
                    }
                    self.again(rest.as_str());
                }
            }
            return;
        }
        self.feed_object(candidate, c);
    }

    /// A tag that JSON cannot contain ends the object, however incomplete it is.
    fn marker_in_object(&mut self, mut candidate: Box<Candidate>, marker: Marker) {
        let Some(index) = candidate.index else {
            self.not_a_call(&candidate, Failed::Silent);
            let tail = std::mem::take(&mut candidate.tail);
            // Not a loop: the tag is looked at as text, where it is a marker of its own.
            return self.again(&tail);
        };
        candidate.call.cut();
        self.end_arguments(&mut candidate, index);
        self.note("unbalanced_wrapper", "the call's object is not closed");
        self.call_closed();
        if marker == Marker::CallOpen {
            self.note("missing_end_marker", "the call has no closing tag");
            let tail = std::mem::take(&mut candidate.tail);
            self.on_marker(marker, &tail);
        }
    }

    fn feed_object(&mut self, mut candidate: Box<Candidate>, c: char) {
        let Some(format) = &self.format else { return };
        if candidate.index.is_none() {
            candidate.held.push(c);
        }
        let progress = candidate.call.step(c, format);
        if progress == Progress::Broken {
            return self.object_broken(candidate);
        }
        if candidate.index.is_none() && (candidate.call.is_ready() || progress == Progress::Closed) {
            let Some(name) = candidate.call.name().map(str::to_owned) else {
                self.note("malformed_call", "the object between the call's tags names no function");
                return self.not_a_call(&candidate, Failed::Reported);
            };
            if self.place == Place::Reasoning && !self.replaying {
                let Candidate { held, array, .. } = *candidate;
                self.state = State::Suspended(Gap { held, tail: String::new(), array });
                return;
            }
            candidate.index = Some(self.commit(name));
            candidate.held = String::new();
        }
        if let Some(index) = candidate.index {
            self.arguments(index, &candidate.call.take_arguments());
        }
        match (progress, candidate.index) {
            (Progress::Closed, Some(index)) => {
                self.end_arguments(&mut candidate, index);
                self.call_closed();
                let gap = Gap { held: String::new(), tail: String::new(), array: candidate.array };
                self.state = State::Closing(gap);
            }
            _ => self.state = State::Object(candidate),
        }
    }

    fn object_broken(&mut self, mut candidate: Box<Candidate>) {
        let Some(index) = candidate.index else {
            self.note("malformed_call", "the object between the call's tags is not JSON");
            return self.not_a_call(&candidate, Failed::Reported);
        };
        let rest = candidate.call.take_after();
        self.end_arguments(&mut candidate, index);
        self.note("unbalanced_wrapper", "the call's object is not closed");
        self.call_closed();
        self.owed_close = true;
        self.give_back(&rest);
    }

    fn not_a_call(&mut self, candidate: &Candidate, failed: Failed) {
        self.failed = failed;
        self.owed_close |= candidate.follows;
        self.give_back(&candidate.held);
    }

    /// Returns held text to the text around it. It is not read again; only its last character, the one that decided, may
    /// begin something new.
    fn give_back(&mut self, held: &str) {
        if let Some((at, last)) = held.char_indices().next_back() {
            self.text_all(&held[..at]);
            self.step(last);
        }
    }

    fn closing_step(&mut self, mut gap: Gap, c: char) {
        if gap.tail.is_empty() {
            if is_blank(c) || matches!(c, ',' | ';' | ']' | '}') {
                gap.held.push(c);
                self.state = State::Closing(gap);
                return;
            }
            if c == '{' {
                return self.object_step(Candidate::new(gap.held, gap.array, true), c);
            }
        }
        gap.tail.push(c);
        match self.find_call_marker(&gap.tail) {
            Match::Beginning => self.state = State::Closing(gap),
            Match::Whole(marker) => {
                self.report_gap(&gap);
                self.marker_passed();
                if marker == Marker::CallOpen {
                    self.note("missing_end_marker", "the call has no closing tag");
                    self.on_marker(marker, &gap.tail);
                }
            }
            Match::No => {
                self.leave_gap(&gap);
                self.again(&gap.tail);
            }
        }
    }

    /// No closing tag: the machine is back in text.
    fn leave_gap(&mut self, gap: &Gap) {
        self.note("missing_end_marker", "the call has no closing tag");
        self.owed_close = true;
        let text = if gap.array { gap.held.trim_start().strip_prefix(']') } else { None };
        self.again(text.unwrap_or(&gap.held));
    }

    fn report_gap(&mut self, gap: &Gap) {
        let between = gap.held.trim();
        let expected = if gap.array { "]" } else { "" };
        if between != expected {
            self.note("unbalanced_wrapper", &format!("`{between}` between the call and its closing tag was left out"));
        }
    }

    fn commit(&mut self, name: String) -> usize {
        let index = self.parsed.tool_calls.len();
        if !self.tools.contains(&name) {
            self.note("unknown_tool", &format!("`{name}` is not one of the given tools"));
        }
        if index == 1 && !self.parallel {
            self.note("parallel_not_requested", "more than one call, though parallel calls were not asked for");
        }
        if self.place == Place::Reasoning {
            self.note("call_in_reasoning", "the call stands inside reasoning that was never closed");
            self.blanks.clear();
            self.place = Place::Content;
        }
        let id = (self.new_id)();
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.clone() });
        self.parsed.tool_calls.push(ToolCall { id, name, arguments: String::new() });
        index
    }

    fn arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        self.parsed.tool_calls[index].arguments.push_str(fragment);
        match self.deltas.last_mut() {
            Some(Delta::Arguments { index: last, fragment: text }) if *last == index => text.push_str(fragment),
            _ => self.deltas.push(Delta::Arguments { index, fragment: fragment.to_owned() }),
        }
    }

    /// Gives out what is left of the arguments, and reports what is wrong with them.
    fn end_arguments(&mut self, candidate: &mut Candidate, index: usize) {
        self.arguments(index, &candidate.call.take_arguments());
        if candidate.call.kind().is_none() {
            self.arguments(index, "{}");
            self.note("arguments_missing", "the call has no arguments");
        }
        for code in candidate.call.notes() {
            self.note(code, "the arguments were not written as an object");
        }
        let text = &self.parsed.tool_calls[index].arguments;
        let faults = partial_json::check_object(text);
        if faults.too_deep {
            self.note("arguments_too_deep", &format!("more than {} levels", partial_json::NESTING_CAP));
        } else if faults.any() {
            let message = match partial_json::repair(text) {
                Some(repaired) => format!("the arguments are not a JSON object; repaired: {repaired}"),
                None => "the arguments are not a JSON object".to_owned(),
            };
            self.note("arguments_invalid_json", &message);
        }
    }

    fn call_closed(&mut self) {
        self.failed = Failed::No;
        self.owed_close = false;
        self.marker_passed();
    }

    /// Reads text again that no state wants: never more than a marker's beginning or the few characters of a gap.
    fn again(&mut self, text: &str) {
        for c in text.chars() {
            self.step(c);
        }
    }

    fn may_open_marker(&self, c: char) -> bool {
        let json = c.is_ascii_alphanumeric() || is_blank(c) || "{}[]:,\"'+-._".contains(c);
        let format = self.format.as_ref();
        !json && format.is_some_and(|format| format.call_open.starts_with(c) || format.call_close.starts_with(c))
    }

    fn find_call_marker(&self, tail: &str) -> Match {
        let Some(format) = &self.format else { return Match::No };
        best(tail, [(Marker::CallOpen, &*format.call_open), (Marker::CallClose, &*format.call_close)])
    }

    // Calls in a fence.

    fn fence_step(&mut self, mut fence: Fence, c: char) {
        let known = fence.language.is_empty() || FENCE_LANGUAGES.contains(&fence.language.as_str());
        if c == '{' && known {
            return self.fence_object_step(Candidate::new(fence.held, false, false), c);
        }
        let fits = if is_blank(c) {
            fence.named = true;
            known
        } else {
            fence.language.push(c);
            !fence.named && FENCE_LANGUAGES.iter().any(|language| language.starts_with(&fence.language))
        };
        fence.held.push(c);
        if fits {
            self.state = State::Fence(fence);
        } else {
            self.give_back(&fence.held);
        }
    }

    fn fence_object_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let Some(format) = &self.format else { return };
        candidate.held.push(c);
        let progress = candidate.call.step(c, format);
        let call = &candidate.call;
        let known = call.name().is_none_or(|name| self.tools.contains(name));
        let object = call.kind().is_none_or(|kind| kind == Kind::Object);
        if progress == Progress::Broken || !known || !object || call.has_foreign_key() {
            return self.give_back(&candidate.held);
        }
        if progress == Progress::More {
            self.state = State::FenceObject(candidate);
        } else if call.name().is_some() && call.arguments_complete() {
            self.state = State::FenceEnd(candidate);
        } else {
            self.text_all(&candidate.held);
        }
    }

    fn fence_end_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let backtick = c == '`' && candidate.tail.trim_start().len() < FENCE.len();
        if backtick || (is_blank(c) && !candidate.tail.ends_with('`')) {
            candidate.tail.push(c);
            if candidate.tail.ends_with(FENCE) {
                self.commit_fence(candidate);
            } else {
                self.state = State::FenceEnd(candidate);
            }
            return;
        }
        self.note("call_like_content", "a fenced block begins with a call, but holds more; it was kept as text");
        self.text_all(&candidate.held);
        self.again(&candidate.tail);
        self.again(c.encode_utf8(&mut [0; 4]));
    }

    fn commit_fence(&mut self, mut candidate: Box<Candidate>) {
        let Some(name) = candidate.call.name().map(str::to_owned) else { return };
        self.note("fenced_call", &format!("a fenced block that holds a call of `{name}` was taken as that call"));
        let index = self.commit(name);
        self.end_arguments(&mut candidate, index);
        self.call_closed();
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

    // The end of the text.

    fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {}
            State::Opened(opened) => {
                if opened.array || !opened.tail.is_empty() {
                    self.cut_off(opened.held + &opened.tail);
                } else {
                    self.note("dangling_marker", "an opening tag at the end of the text was left out");
                    self.marker_passed();
                }
            }
            State::Object(candidate) => self.end_object(candidate),
            State::Closing(gap) => {
                let rest = gap.held.trim();
                let expected = if gap.array { "]" } else { "" };
                if rest.is_empty() || rest == expected {
                    self.note("missing_end_marker", "the call has no closing tag");
                } else {
                    self.leave_gap(&gap);
                }
                self.again(&gap.tail);
            }
            State::Fence(fence) => self.text_all(&fence.held),
            State::FenceObject(candidate) => self.text_all(&candidate.held),
            State::FenceEnd(candidate) => {
                self.note("missing_end_marker", "the fenced call's block is not closed");
                self.commit_fence(candidate);
            }
            State::Suspended(gap) => {
                self.replaying = true;
                self.again(&gap.held);
                self.again(&gap.tail);
                return self.end();
            }
        }
        let tail = std::mem::take(&mut self.tail);
        self.text_all(&tail);
        let blanks = std::mem::take(&mut self.blanks);
        self.emit(&blanks);
        if self.place == Place::Reasoning {
            self.parsed.complete = false;
            if self.opened_by_tag && self.block_empty {
                self.note("dangling_marker", "a reasoning tag at the end of the text was left out");
            } else {
                self.note("reasoning_unclosed", "the text ends inside reasoning");
            }
        }
    }

    fn end_object(&mut self, mut candidate: Box<Candidate>) {
        let tail = std::mem::take(&mut candidate.tail);
        let begun = candidate.call.kind().is_some() && !candidate.call.arguments_complete();
        let name = candidate.call.name().map(str::to_owned);
        if candidate.index.is_none() && begun && self.place == Place::Content {
            // The arguments are text inside a string, which is shown only as a whole; here this is the whole.
            candidate.index = name.map(|name| self.commit(name));
        }
        let Some(index) = candidate.index else {
            return self.cut_off(candidate.held + &tail);
        };
        if candidate.call.arguments_complete() {
            let rest = candidate.call.take_after() + &tail;
            self.end_arguments(&mut candidate, index);
            self.note("unbalanced_wrapper", "the call's object is not closed");
            if !rest.trim().is_empty() {
                self.parsed.leftover.push(rest);
            }
        } else {
            candidate.call.cut();
            self.arguments(index, &candidate.call.take_arguments());
            for code in candidate.call.notes() {
                self.note(code, "the arguments were not written as an object");
            }
            self.note("truncated_call", "the text ends inside the call's arguments");
            self.parsed.complete = false;
            if !tail.is_empty() {
                self.parsed.leftover.push(tail);
            }
        }
    }

    /// A call that ends before it can be told to be one.
    fn cut_off(&mut self, held: String) {
        if self.place == Place::Reasoning {
            return self.text_all(&held);
        }
        self.note("truncated_call", "the text ends inside a call, before its arguments");
        self.parsed.complete = false;
        self.parsed.leftover.push(held);
    }

    /// A reply that is nothing but a call without its tags stays text, but is worth a word.
    fn report_bare_call(&mut self) {
        let content = self.parsed.content.trim();
        let (true, true, Some(format)) = (self.calls_allowed, content.starts_with('{'), &self.format) else { return };
        let mut call = CallObject::new();
        let mut progress = Progress::More;
        for c in content.chars() {
            if progress != Progress::More {
                return;
            }
            progress = call.step(c, format);
            call.take_arguments();
        }
        let given = call.name().is_some_and(|name| self.tools.contains(name));
        if progress == Progress::Closed && given && call.kind() == Some(Kind::Object) {
            self.note("call_like_content", "the reply is a call without its tags; it was kept as text");
        }
    }

    fn note(&mut self, code: &'static str, message: &str) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(Diagnostic { code, message: message.to_owned() });
        }
    }
}

impl Candidate {
    fn new(held: String, array: bool, follows: bool) -> Box<Candidate> {
        Box::new(Candidate { call: CallObject::new(), held, tail: String::new(), array, follows, index: None })
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
