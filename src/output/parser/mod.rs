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
use super::message::{Delta, ParsedReply};
use crate::diagnostic::Diagnostic;
use after_call::AfterCall;
use call_patterns::CallPatterns;
use call_reader::CallReader;
use candidate::Candidate;
use envelope::Envelope;
use fence::Fence;
use header::Header;
use marker_set::{MarkerMatch, MarkerSet};
use request_tools::RequestTools;

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
enum Destination {
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
    /// The index of an opener of the patterns.
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
enum FailedOpening {
    None,
    /// It is worth reporting once a closing tag shows that a call was meant.
    Silent,
    Reported,
}

#[derive(Debug)]
enum ParserState {
    /// Text, with or without the beginning of a marker.
    Text,
    /// In the header of a message.
    Header(Header),
    /// Behind a tag that may begin a call, or in one.
    Call(Box<Candidate>),
    /// Behind a call.
    AfterCall(AfterCall),
    /// Behind the backticks of a fence, before the object.
    Fence(Box<Fence>),
    /// Behind the object of a fence, where its end is due.
    FenceEnd(Box<Fence>),
    /// ReaderState an object that may be the whole reply, with its calls in it.
    Envelope(Box<Envelope>),
    /// A whole call inside reasoning: a call if the reasoning never closes, text if it does.
    Suspended { held: String, tail: String },
}

/// Recognises reasoning and calls in a model's output.
pub struct ReplyParser {
    patterns: Arc<CallPatterns>,
    followers: Arc<[FormatText]>,
    markers: Arc<MarkerSet>,
    reasoning: Option<ReasoningTags>,
    /// Whether reasoning is told apart from content, and its tags if it is not.
    splits_reasoning: bool,
    unsplit_reasoning: Option<ReasoningTags>,
    /// What closes reasoning closes other messages too.
    close_is_end: bool,
    channels: Option<Arc<Channels>>,
    fenced_calls: bool,
    json: bool,
    /// The fence around a JSON reply is open.
    in_fence: bool,
    envelope: bool,
    untagged: bool,
    tools: RequestTools,
    calls_allowed: bool,
    parallel: bool,
    new_id: Box<dyn FnMut() -> String + Send>,
    /// Judges calls that the sampler did not hold to their schema.
    accepts: Option<CallValidator>,

    destination: Destination,
    state: ParserState,
    /// The beginning of what may become a marker.
    tail: String,
    /// Blanks that may turn out to stand before a marker.
    whitespace: String,
    /// Only blanks since the last marker.
    after_marker: bool,
    line_start: bool,
    /// The reasoning block under way: was it opened by the model, is it still empty, was it opened
    /// twice.
    opened_by_tag: bool,
    block_empty: bool,
    opened_twice: bool,
    failed_opening: FailedOpening,
    pending_close: bool,
    call_tag_was_text: bool,
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
    parsed: ParsedReply,
}

/// What follows from a format alone, for all replies of a model.
#[derive(Debug, Clone, Default)]
pub struct PreparedFormat {
    patterns: Arc<CallPatterns>,
    followers: Arc<[FormatText]>,
    channels: Option<Arc<Channels>>,
    /// Of replies whose reasoning is told, and that are no JSON.
    markers: Arc<MarkerSet>,
}

impl PreparedFormat {
    /// Takes a format apart.
    pub fn new(format: &Format) -> PreparedFormat {
        let patterns = CallPatterns::new(format);
        let markers = MarkerSet::of(format, &patterns, format.reasoning.as_ref(), None, false);
        PreparedFormat {
            followers: patterns.followers().into(),
            channels: format.channels.clone().map(Arc::new),
            markers: Arc::new(markers),
            patterns: Arc::new(patterns),
        }
    }
}

impl ReplyParser {
    /// A reply parser at the start of a reply.
    pub fn new(input: ReplyParserInput<'_>) -> ReplyParser {
        let prepared = input.format.map(PreparedFormat::new).unwrap_or_default();
        ReplyParser::with_prepared(&prepared, input)
    }

    /// As [`new`](Self::new), with what was prepared for the input's format.
    pub fn with_prepared(prepared: &PreparedFormat, input: ReplyParserInput<'_>) -> ReplyParser {
        let format = input.format;
        let PreparedFormat { patterns, followers, channels, mut markers } = prepared.clone();
        let told = format.and_then(|format| format.reasoning.clone());
        let close_is_end = told
            .as_ref()
            .is_some_and(|tags| format.is_some_and(|format| format.ends.contains(&tags.close)));
        let (reasoning, unsplit_reasoning) =
            if input.reasoning { (told, None) } else { (None, told) };
        match format {
            Some(format) if input.json || !input.reasoning => {
                markers = Arc::new(MarkerSet::of(
                    format,
                    &patterns,
                    reasoning.as_ref(),
                    unsplit_reasoning.as_ref(),
                    input.json,
                ));
            }
            None if input.json => Arc::make_mut(&mut markers).add(Marker::Fence, FENCE),
            _ => {}
        }
        ReplyParser {
            followers,
            patterns,
            markers,
            reasoning,
            splits_reasoning: input.reasoning,
            unsplit_reasoning,
            close_is_end,
            channels,
            fenced_calls: format.is_some_and(|format| format.fenced_calls),
            json: input.json,
            in_fence: false,
            envelope: format.is_some_and(|format| format.envelope),
            untagged: !input.json && format.is_some_and(|format| format.untagged),
            tools: RequestTools::new(input.tools),
            calls_allowed: input.calls_allowed
                && format.is_some_and(|format| format.calls.is_some()),
            parallel: input.parallel,
            new_id: input.new_id,
            accepts: None,
            destination: Destination::Content,
            state: ParserState::Text,
            tail: String::new(),
            whitespace: String::new(),
            after_marker: false,
            line_start: true,
            opened_by_tag: false,
            block_empty: true,
            opened_twice: false,
            failed_opening: FailedOpening::None,
            pending_close: false,
            call_tag_was_text: false,
            shown_header: false,
            priming: false,
            replaying: false,
            early: false,
            ids: HashSet::new(),
            deltas: Vec::new(),
            parsed: ParsedReply { complete: true, ..ParsedReply::default() },
        }
    }

    /// Ids that earlier calls of the conversation have: a call that the model gives one of them
    /// gets a new one.
    pub fn reserve_ids(&mut self, ids: impl Iterator<Item = String>) {
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
    fn needs_validation(&self, bare: bool, reader: &CallReader) -> bool {
        self.accepts.is_some() && (bare || reader.foreign || self.replaying)
    }

    /// Whether a call of another way is to be taken.
    fn passes_validator(&self, reader: &mut CallReader) -> bool {
        let Some(accepts) = &self.accepts else { return true };
        let arguments =
            if reader.lacks_arguments() { "{}".to_owned() } else { reader.arguments().to_owned() };
        reader.name().is_some_and(|name| accepts(name, &arguments))
    }

    /// Whether the text belongs to a reasoning block.
    pub fn is_reasoning(&self) -> bool {
        self.destination == Destination::Reasoning
    }

    /// Takes the next piece of text, however it was cut, and returns what became certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.feed(text);
        std::mem::take(&mut self.deltas)
    }

    /// The text ends here: decides what is still held, and returns it with the whole message.
    pub fn finish(mut self) -> (Vec<Delta>, ParsedReply) {
        self.end();
        self.report_untagged_call();
        if self.parsed.reasoning.as_deref() == Some("") {
            self.parsed.reasoning = None;
        }
        (self.deltas, self.parsed)
    }

    /// As [`finish`](Self::finish), of a text that the model did not end itself: a call that only
    /// the end would make one, since it stands in reasoning that was not closed, is none.
    pub fn finish_early(mut self) -> (Vec<Delta>, ParsedReply) {
        self.early = true;
        self.finish()
    }

    fn step(&mut self, c: char) {
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::Text if c == '{' && self.may_open_envelope() => self.open_envelope(c),
            ParserState::Text if !self.markers.may_begin(c) && self.may_open_untagged(c) => {
                self.open_untagged(c)
            }
            ParserState::Text => self.text_step(c),
            ParserState::Header(header) => self.header_step(header, c),
            ParserState::Call(candidate) => self.candidate_step(candidate, c),
            ParserState::AfterCall(gap) => self.after_call_step(gap, c),
            ParserState::Envelope(envelope) => self.envelope_step(envelope, c),
            ParserState::Fence(fence) => self.fence_step(fence, c),
            ParserState::FenceEnd(fence) => self.fence_end_step(fence, c),
            ParserState::Suspended { held, tail } => self.suspended_step(held, tail, c),
        }
    }

    // Text and markers.

    fn text_step(&mut self, c: char) {
        if self.tail.is_empty() && !self.markers.may_begin(c) {
            return self.push_char(c);
        }
        self.tail.push(c);
        let (content, line_start) = (self.destination == Destination::Content, self.line_start);
        let calls = self.fenced_calls && self.calls_allowed;
        let around = self.json
            && (self.in_fence || (self.parsed.content.is_empty() && self.whitespace.is_empty()));
        let fence = content && line_start && (calls || around);
        let found = self.markers.find(&self.tail, |marker| match marker {
            Marker::CallClose | Marker::Wrapper => content,
            Marker::Fence => fence,
            _ => true,
        });
        match found {
            MarkerMatch::Full(marker, length) => {
                let tail = std::mem::take(&mut self.tail);
                let (text, rest) = tail.split_at(length);
                self.on_marker(marker, text);
                self.feed(rest);
            }
            MarkerMatch::Prefix => {}
            MarkerMatch::None => {
                let tail = std::mem::take(&mut self.tail);
                let mut rest = tail.chars();
                match rest.next() {
                    Some(first) if self.may_open_untagged(first) => self.open_untagged(first),
                    Some(first) => self.push_char(first),
                    None => {}
                }
                self.feed(rest.as_str());
            }
        }
    }

    fn on_marker(&mut self, marker: Marker, text: &str) {
        match (self.destination, marker) {
            (
                Destination::Elsewhere | Destination::Arguments(_),
                Marker::End | Marker::Turn | Marker::Header,
            ) => {
                self.leave_message();
                self.on_marker(marker, text);
            }
            (Destination::Elsewhere | Destination::Arguments(_), _) => self.push_text(text),
            (_, Marker::CallOpen(opener)) if self.calls_allowed => self.open_call(opener, text),
            (_, Marker::CallOpen(_)) => {
                self.push_text(text);
                self.call_tag_was_text = true;
            }
            (_, Marker::CallClose) => self.stray_close(text),
            (_, Marker::Fence) if std::mem::take(&mut self.in_fence) => self.marker_passed(),
            (_, Marker::Fence) => {
                let mut held = std::mem::take(&mut self.whitespace);
                held.push_str(text);
                self.state = ParserState::Fence(Box::new(Fence::new(held)));
            }
            (_, Marker::Wrapper) => self.marker_passed(),
            (_, Marker::End) => self.message_ended(text),
            (_, Marker::Turn) => self.open_header(String::new(), text),
            (_, Marker::Header) => self.open_header(text.to_owned(), ""),
            (Destination::Content, Marker::ReasoningOpen) => {
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
            (Destination::Reasoning, Marker::ReasoningOpen) if self.block_empty => {
                self.opened_twice = !self.opened_by_tag;
                self.marker_passed();
            }
            (Destination::Reasoning, Marker::ReasoningClose) => {
                if self.block_empty && std::mem::take(&mut self.opened_twice) {
                    // A block that holds nothing but its own tag: all that the model said.
                    let open =
                        self.reasoning.as_ref().map(|tags| tags.open.clone()).unwrap_or_default();
                    self.emit(&open);
                }
                self.destination = Destination::Content;
                self.marker_passed();
            }
            (Destination::Content, Marker::ReasoningClose) if self.close_is_end => {
                self.marker_passed()
            }
            (Destination::Content, Marker::ReasoningClose) => {
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
                self.push_text(text);
                self.note(
                    "stray_end_marker",
                    &format!("`{text}` closes nothing and was kept as text"),
                );
            }
            (Destination::Reasoning, _) => self.push_text(text),
        }
    }

    /// A message that is not part of the text ends.
    fn leave_message(&mut self) {
        if let Destination::Arguments(_) = self.destination {
            self.note("arguments_invalid_json", "the message to the function is not a JSON object");
        }
        if self.destination != Destination::Reasoning {
            self.destination = Destination::Content;
        }
    }

    fn begin_reasoning(&mut self) {
        self.destination = Destination::Reasoning;
        self.block_empty = true;
        self.opened_twice = false;
        self.marker_passed();
    }

    fn message_ended(&mut self, text: &str) {
        if std::mem::take(&mut self.shown_header) {
            self.push_text(text);
            return self.marker_passed();
        }
        if self.channels.is_some() {
            self.destination = Destination::Content;
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
        if self.pending_close {
            self.pending_close = false;
            self.marker_passed();
            return;
        }
        self.push_text(text);
        if !self.calls_allowed || text == FENCE {
            return;
        }
        match self.failed_opening {
            // A fence is nothing special in text.
            FailedOpening::None if text == FENCE => {}
            FailedOpening::None => self
                .note("stray_end_marker", &format!("`{text}` closes nothing and was kept as text")),
            FailedOpening::Silent => {
                self.note("malformed_call", "the text between the call's tags is not a call")
            }
            FailedOpening::Reported => {}
        }
        self.failed_opening = FailedOpening::None;
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
            self.state = ParserState::Suspended { held, tail };
            return;
        };
        self.push_text(&held);
        self.state = ParserState::Text;
        self.on_marker(marker, &tail);
    }

    fn note(&mut self, code: &'static str, message: &str) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(Diagnostic::new(code, message));
        }
    }
}

fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
