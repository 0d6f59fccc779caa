//! Text as it is generated -> deltas, and at the end the message they add up to.
//!
//! One character is one step, so how the text was cut into pieces cannot matter. What may still
//! become a marker, blanks next to one, and a call up to its commit point are held back; everything
//! else goes out at once and is never taken back. Held text is decided once, as a whole: the work
//! is linear in the text.

mod after_call;
mod call_object;
mod call_patterns;
mod call_reader;
mod candidate;
mod committed;
mod emit;
mod end_of_text;
mod envelope;
mod fence;
mod generation_prompt;
mod header;
mod marker_set;
mod request_tools;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::format::{Channels, Format, FormatText, ReasoningTags};
use super::message::{Delta, Diagnostic, Parsed};
use after_call::Gap;
use call_patterns::Plan;
use call_reader::CallReader;
use candidate::Candidate;
use envelope::Envelope;
use fence::Fence;
use header::Header;
use marker_set::{Found, Markers};
use request_tools::Given;

const FENCE: &str = "```";
/// Diagnostics beyond this many say nothing new.
const MAX_DIAGNOSTICS: usize = 64;

/// What a reply parser has to know before the first piece of text.
pub struct ReplyParserInput<'a> {
    /// How this model writes calls and reasoning; None means plain text.
    pub format: Option<&'a Format>,
    /// The request's tools, as OpenAI tool objects.
    pub tools: Arc<Vec<Value>>,
    /// There are tools, and `tool_choice` is not `none`. Otherwise call markup is ordinary text.
    pub calls_allowed: bool,
    /// Reasoning is told apart from content. Otherwise it stays in the content, tags included.
    pub reasoning: bool,
    /// JSON was asked for: a fence around it is not part of it.
    pub json: bool,
    /// More than one call was asked for; a second call is recognised all the same, and reported.
    pub parallel: bool,
    /// Makes the id of a call that brings none.
    pub new_id: Box<dyn FnMut() -> String + Send>,
}

/// Whether arguments (JSON text) obey the schema of the function of this name.
pub type CallValidator = Box<dyn Fn(&str, &str) -> bool + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Content,
    Reasoning,
    /// In a message to somebody else: not part of the reply.
    Elsewhere,
    /// In a message to a function that is not arguments as this model writes them: all of it is the
    /// call's arguments.
    Arguments(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// The index of an opener of the plan.
    CallOpen(usize),
    CallClose,
    ReasoningOpen,
    ReasoningClose,
    Wrapper,
    /// Ends a turn or a message.
    End,
    /// Begins a message.
    Turn,
    /// Begins the header of a message, or a part of it.
    Header,
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
    /// In the header of a message.
    Header(Header),
    /// Behind a tag that may begin a call, or in one.
    Call(Box<Candidate>),
    /// Behind a call.
    Between(Gap),
    /// Behind the backticks of a fence, before the object.
    Fence(Box<Fence>),
    /// Behind the object of a fence, where its end is due.
    FenceEnd(Box<Fence>),
    /// Inside an object that may be the whole reply, with its calls in it.
    Envelope(Box<Envelope>),
    /// A whole call inside reasoning: a call if the reasoning never closes, text if it does.
    Suspended { held: String, tail: String },
}

/// Recognises reasoning and calls in a model's output.
pub struct ReplyParser {
    plan: Arc<Plan>,
    followers: Arc<[FormatText]>,
    markers: Arc<Markers>,
    reasoning: Option<ReasoningTags>,
    /// Whether reasoning is told apart from content, and its tags if it is not.
    told: bool,
    untold: Option<ReasoningTags>,
    /// What closes reasoning closes other messages too.
    close_is_end: bool,
    channels: Option<Arc<Channels>>,
    fenced_calls: bool,
    json: bool,
    /// The fence around a JSON reply is open.
    in_fence: bool,
    envelope: bool,
    untagged: bool,
    tools: Given,
    calls_allowed: bool,
    parallel: bool,
    new_id: Box<dyn FnMut() -> String + Send>,
    /// Judges calls that the sampler did not hold to their schema.
    accepts: Option<CallValidator>,

    place: Place,
    state: State,
    /// The beginning of what may become a marker.
    tail: String,
    /// Blanks that may turn out to stand before a marker.
    blanks: String,
    /// Only blanks since the last marker.
    after_marker: bool,
    line_start: bool,
    /// The reasoning block under way: was it opened by the model, is it still empty, was it opened
    /// twice.
    opened_by_tag: bool,
    block_empty: bool,
    opened_twice: bool,
    failed: Failed,
    owed_close: bool,
    opened_as_text: bool,
    /// A message whose header was shown, because reasoning is not told apart.
    shown_header: bool,
    /// The prompt's part of the reply is being read.
    priming: bool,
    /// At the end of the text: what was suspended is read again, now as calls.
    replaying: bool,
    /// The text was ended before the model would have.
    early: bool,

    /// Ids of the calls so far.
    ids: HashSet<String>,
    deltas: Vec<Delta>,
    parsed: Parsed,
}

/// What follows from a format alone, for all replies of a model.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    plan: Arc<Plan>,
    followers: Arc<[FormatText]>,
    channels: Option<Arc<Channels>>,
    /// Of replies whose reasoning is told, and that are no JSON.
    markers: Arc<Markers>,
}

impl Prepared {
    /// Takes a format apart.
    pub fn new(format: &Format) -> Prepared {
        let plan = Plan::new(format);
        let markers = Markers::of(format, &plan, format.reasoning.as_ref(), None, false);
        Prepared {
            followers: plan.followers().into(),
            channels: format.channels.clone().map(Arc::new),
            markers: Arc::new(markers),
            plan: Arc::new(plan),
        }
    }
}

impl ReplyParser {
    /// A reply parser at the start of a reply.
    pub fn new(input: ReplyParserInput<'_>) -> ReplyParser {
        let prepared = input.format.map(Prepared::new).unwrap_or_default();
        ReplyParser::prepared(&prepared, input)
    }

    /// As [`new`](Self::new), with what was prepared for the input's format.
    pub fn prepared(prepared: &Prepared, input: ReplyParserInput<'_>) -> ReplyParser {
        let format = input.format;
        let Prepared { plan, followers, channels, mut markers } = prepared.clone();
        let told = format.and_then(|format| format.reasoning.clone());
        let close_is_end = told
            .as_ref()
            .is_some_and(|tags| format.is_some_and(|format| format.ends.contains(&tags.close)));
        let (reasoning, untold) = if input.reasoning { (told, None) } else { (None, told) };
        match format {
            Some(format) if input.json || !input.reasoning => {
                markers = Arc::new(Markers::of(
                    format,
                    &plan,
                    reasoning.as_ref(),
                    untold.as_ref(),
                    input.json,
                ));
            }
            None if input.json => Arc::make_mut(&mut markers).add(Marker::Fence, FENCE),
            _ => {}
        }
        ReplyParser {
            followers,
            plan,
            markers,
            reasoning,
            told: input.reasoning,
            untold,
            close_is_end,
            channels,
            fenced_calls: format.is_some_and(|format| format.fenced_calls),
            json: input.json,
            in_fence: false,
            envelope: format.is_some_and(|format| format.envelope),
            untagged: !input.json && format.is_some_and(|format| format.untagged),
            tools: Given::new(input.tools),
            calls_allowed: input.calls_allowed
                && format.is_some_and(|format| format.calls.is_some()),
            parallel: input.parallel,
            new_id: input.new_id,
            accepts: None,
            place: Place::Content,
            state: State::Text,
            tail: String::new(),
            blanks: String::new(),
            after_marker: false,
            line_start: true,
            opened_by_tag: false,
            block_empty: true,
            opened_twice: false,
            failed: Failed::No,
            owed_close: false,
            opened_as_text: false,
            shown_header: false,
            priming: false,
            replaying: false,
            early: false,
            ids: HashSet::new(),
            deltas: Vec::new(),
            parsed: Parsed { complete: true, ..Parsed::default() },
        }
    }

    /// Ids that earlier calls of the conversation have: a call that the model gives one of them
    /// gets a new one.
    pub fn taken_ids(&mut self, ids: impl Iterator<Item = String>) {
        self.ids.extend(ids);
    }

    /// The sampler holds calls to their schemas once the model's own tag has begun one. A call that
    /// begins in another way (in a fence, without a tag, as another family's, in reasoning) is then
    /// one only if this accepts it.
    pub fn set_call_validator(&mut self, accepts: CallValidator) {
        self.accepts = Some(accepts);
    }

    /// Whether no grammar has held this call: it stands in reasoning, has no tag, or is another
    /// family's.
    fn doubts(&self, bare: bool, reader: &CallReader) -> bool {
        self.accepts.is_some() && (bare || reader.foreign || self.replaying)
    }

    /// Whether a call of another way is to be taken.
    fn accepted(&self, reader: &mut CallReader) -> bool {
        let Some(accepts) = &self.accepts else { return true };
        let arguments =
            if reader.lacks_arguments() { "{}".to_owned() } else { reader.arguments().to_owned() };
        reader.name().is_some_and(|name| accepts(name, &arguments))
    }

    /// Whether the text belongs to a reasoning block.
    pub fn is_reasoning(&self) -> bool {
        self.place == Place::Reasoning
    }

    /// Takes the next piece of text, however it was cut, and returns what became certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.again(text);
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

    /// As [`finish`](Self::finish), of a text that the model did not end itself: a call that only
    /// the end would make one, since it stands in reasoning that was not closed, is none.
    pub fn finish_early(mut self) -> (Vec<Delta>, Parsed) {
        self.early = true;
        self.finish()
    }

    fn step(&mut self, c: char) {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text if c == '{' && self.may_open_envelope() => self.open_envelope(c),
            State::Text if !self.markers.may_begin(c) && self.may_open_bare(c) => self.open_bare(c),
            State::Text => self.text_step(c),
            State::Header(header) => self.header_step(header, c),
            State::Call(candidate) => self.candidate_step(candidate, c),
            State::Between(gap) => self.between_step(gap, c),
            State::Envelope(envelope) => self.envelope_step(envelope, c),
            State::Fence(fence) => self.fence_step(fence, c),
            State::FenceEnd(fence) => self.fence_end_step(fence, c),
            State::Suspended { held, tail } => self.suspended_step(held, tail, c),
        }
    }

    // Text and markers.

    fn text_step(&mut self, c: char) {
        if self.tail.is_empty() && !self.markers.may_begin(c) {
            return self.text(c);
        }
        self.tail.push(c);
        let (content, line_start) = (self.place == Place::Content, self.line_start);
        let calls = self.fenced_calls && self.calls_allowed;
        let around = self.json
            && (self.in_fence || (self.parsed.content.is_empty() && self.blanks.is_empty()));
        let fence = content && line_start && (calls || around);
        let found = self.markers.find(&self.tail, |marker| match marker {
            Marker::CallClose | Marker::Wrapper => content,
            Marker::Fence => fence,
            _ => true,
        });
        match found {
            Found::Whole(marker, length) => {
                let tail = std::mem::take(&mut self.tail);
                let (text, rest) = tail.split_at(length);
                self.on_marker(marker, text);
                self.again(rest);
            }
            Found::Beginning => {}
            Found::No => {
                let tail = std::mem::take(&mut self.tail);
                let mut rest = tail.chars();
                match rest.next() {
                    Some(first) if self.may_open_bare(first) => self.open_bare(first),
                    Some(first) => self.text(first),
                    None => {}
                }
                self.again(rest.as_str());
            }
        }
    }

    fn on_marker(&mut self, marker: Marker, text: &str) {
        match (self.place, marker) {
            (
                Place::Elsewhere | Place::Arguments(_),
                Marker::End | Marker::Turn | Marker::Header,
            ) => {
                self.leave_message();
                self.on_marker(marker, text);
            }
            (Place::Elsewhere | Place::Arguments(_), _) => self.text_all(text),
            (_, Marker::CallOpen(opener)) if self.calls_allowed => self.open_call(opener, text),
            (_, Marker::CallOpen(_)) => {
                self.text_all(text);
                self.opened_as_text = true;
            }
            (_, Marker::CallClose) => self.stray_close(text),
            (_, Marker::Fence) if std::mem::take(&mut self.in_fence) => self.marker_passed(),
            (_, Marker::Fence) => {
                let mut held = std::mem::take(&mut self.blanks);
                held.push_str(text);
                self.state = State::Fence(Box::new(Fence::new(held)));
            }
            (_, Marker::Wrapper) => self.marker_passed(),
            (_, Marker::End) => self.message_ended(text),
            (_, Marker::Turn) => self.open_header(String::new(), text),
            (_, Marker::Header) => self.open_header(text.to_owned(), ""),
            (Place::Content, Marker::ReasoningOpen) => {
                let first = self.parsed.content.is_empty()
                    && self.parsed.reasoning.is_none()
                    && self.parsed.tool_calls.is_empty();
                if !first {
                    self.note(
                        "reasoning_reopened",
                        "reasoning was opened after the answer had begun",
                    );
                }
                self.opened_by_tag = true;
                self.begin_reasoning();
            }
            (Place::Reasoning, Marker::ReasoningOpen) if self.block_empty => {
                self.opened_twice = !self.opened_by_tag;
                self.marker_passed();
            }
            (Place::Reasoning, Marker::ReasoningClose) => {
                if self.block_empty && std::mem::take(&mut self.opened_twice) {
                    // A block that holds nothing but its own tag: all that the model said.
                    let open =
                        self.reasoning.as_ref().map(|tags| tags.open.clone()).unwrap_or_default();
                    self.emit(&open);
                }
                self.place = Place::Content;
                self.marker_passed();
            }
            (Place::Content, Marker::ReasoningClose) if self.close_is_end => self.marker_passed(),
            (Place::Content, Marker::ReasoningClose) => {
                let alone = self.reasoning.as_ref().is_some_and(|tags| tags.close_only);
                if self.priming || (alone && self.parsed.content.is_empty()) {
                    return self.marker_passed();
                }
                if alone {
                    self.marker_passed();
                    return self.note(
                        "stray_end_marker",
                        &format!("`{text}` closes nothing and was left out"),
                    );
                }
                self.text_all(text);
                self.note(
                    "stray_end_marker",
                    &format!("`{text}` closes nothing and was kept as text"),
                );
            }
            (Place::Reasoning, _) => self.text_all(text),
        }
    }

    /// A message that is not part of the text ends.
    fn leave_message(&mut self) {
        if let Place::Arguments(_) = self.place {
            self.note("arguments_invalid_json", "the message to the function is not a JSON object");
        }
        if self.place != Place::Reasoning {
            self.place = Place::Content;
        }
    }

    fn begin_reasoning(&mut self) {
        self.place = Place::Reasoning;
        self.block_empty = true;
        self.opened_twice = false;
        self.marker_passed();
    }

    fn message_ended(&mut self, text: &str) {
        if std::mem::take(&mut self.shown_header) {
            self.text_all(text);
            return self.marker_passed();
        }
        if self.channels.is_some() {
            self.place = Place::Content;
        } else if self
            .reasoning
            .as_ref()
            .is_none_or(|tags| !tags.open.contains(text) && !tags.close.contains(text))
        {
            self.note("eog_text_removed", &format!("`{text}` ends a turn and was left out"));
        }
        self.marker_passed();
    }

    fn stray_close(&mut self, text: &str) {
        if self.owed_close {
            self.owed_close = false;
            self.marker_passed();
            return;
        }
        self.text_all(text);
        if !self.calls_allowed || text == FENCE {
            return;
        }
        match self.failed {
            // A fence is nothing special in text.
            Failed::No if text == FENCE => {}
            Failed::No => self
                .note("stray_end_marker", &format!("`{text}` closes nothing and was kept as text")),
            Failed::Silent => {
                self.note("malformed_call", "the text between the call's tags is not a call")
            }
            Failed::Reported => {}
        }
        self.failed = Failed::No;
    }

    // Calls in reasoning.

    fn suspended_step(&mut self, mut held: String, mut tail: String, c: char) {
        tail.push(c);
        let close = self.reasoning.as_ref().map_or("", |tags| &*tags.close);
        let ends = self.channels.as_ref().map_or(&[][..], |channels| &*channels.ends);
        let begins =
            |tail: &str| close.starts_with(tail) || ends.iter().any(|end| end.starts_with(tail));
        while !tail.is_empty() && !begins(&tail) {
            held.push(tail.remove(0));
        }
        let marker = match &*tail {
            "" => None,
            tail if tail == close => Some(Marker::ReasoningClose),
            tail => ends.iter().any(|end| end == tail).then_some(Marker::End),
        };
        let Some(marker) = marker else {
            self.state = State::Suspended { held, tail };
            return;
        };
        self.text_all(&held);
        self.state = State::Text;
        self.on_marker(marker, &tail);
    }

    fn note(&mut self, code: &'static str, message: &str) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(Diagnostic { code, message: message.to_owned() });
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
