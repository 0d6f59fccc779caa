//! A reply that is one JSON object with its calls in it: `{"tool_calls": [{"name", "arguments",
//! "id"}], "content"}`, as `polyfill_tool_calls` writes earlier turns.
//!
//! The object is held until it ends, or until a key shows that it is another one; then it is the
//! text it always was.

use std::ops::Range;
use std::sync::Arc;

use super::call_patterns::PatternItem;
use super::call_reader::{CallReader, CallStatus};
use super::{ParserState, ReplyParser};
use crate::output::parser::call_object::{CallKeys, ObjectProgress};
use crate::output::read::json_scanner::{Container, ScanEvent, Scanner};

const CALLS: &str = "tool_calls";
const CONTENT: &str = "content";

#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) held: String,
    scanner: Scanner,
    key: Option<&'static str>,
    call: usize,
    calls: Vec<Range<usize>>,
    content: String,
}

impl Envelope {
    fn new() -> Envelope {
        let (held, content) = (String::new(), String::new());
        Envelope { held, scanner: Scanner::new(), key: None, call: 0, calls: Vec::new(), content }
    }

    /// Whether it is certain that this object is about calls.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || self.key == Some(CALLS)
    }

    fn step(&mut self, c: char) -> ObjectProgress {
        let mut out = String::new();
        if self.scanner.ends_word(c) {
            self.scanner.close_word(&mut out);
        }
        let start = self.held.len();
        self.held.push(c);
        let event = self.scanner.step(c, &mut out);
        if self.scanner.faults().syntax {
            return ObjectProgress::Broken;
        }
        match (event, self.scanner.depth(), self.key) {
            (ScanEvent::Key, 1, _) => {
                self.key = [CALLS, CONTENT].into_iter().find(|key| *key == self.scanner.text());
                if self.key.is_none() {
                    return ObjectProgress::Broken;
                }
            }
            (ScanEvent::Open(Container::Array), 2, Some(CALLS)) => {}
            (ScanEvent::Open(_), 2, _) => return ObjectProgress::Broken,
            (ScanEvent::Open(Container::Object), 3, _) => self.call = start,
            (ScanEvent::Open(_), 3, _) => return ObjectProgress::Broken,
            (ScanEvent::StringEnd, 1, Some(CONTENT)) => {
                self.scanner.text().clone_into(&mut self.content)
            }
            (ScanEvent::StringStart | ScanEvent::WordStart, 1, Some(CALLS)) => {
                return ObjectProgress::Broken;
            }
            (ScanEvent::StringStart | ScanEvent::WordStart, 2, _) => return ObjectProgress::Broken,
            (ScanEvent::Close, 2, _) => self.calls.push(self.call..self.held.len()),
            (ScanEvent::Close, 0, _) if self.calls.is_empty() => return ObjectProgress::Broken,
            (ScanEvent::Close, 0, _) => return ObjectProgress::Closed,
            _ => {}
        }
        ObjectProgress::More
    }
}

impl ReplyParser {
    /// Whether an opening brace here may open such an object: the reply has said nothing yet.
    pub(super) fn may_open_envelope(&self) -> bool {
        self.envelope
            && self.calls_allowed
            && self.destination == super::Destination::Content
            && self.tail.is_empty()
            && self.parsed.content.is_empty()
            && self.parsed.tool_calls.is_empty()
    }

    pub(super) fn open_envelope(&mut self, c: char) {
        self.envelope_step(Box::new(Envelope::new()), c);
    }

    pub(super) fn envelope_step(&mut self, mut envelope: Box<Envelope>, c: char) {
        match envelope.step(c) {
            ObjectProgress::More => self.state = ParserState::Envelope(envelope),
            ObjectProgress::Broken => self.leave_envelope(&envelope.held),
            ObjectProgress::Closed => {
                match self.calls_of(&envelope) {
                    Some(calls) => {
                        self.whitespace.clear();
                        self.emit(&envelope.content);
                        for mut reader in calls {
                            let name = reader.name().unwrap_or_default().to_owned();
                            let index = self.commit(name, reader.id().map(str::to_owned));
                            self.end_arguments(&mut reader, index);
                            self.call_closed();
                        }
                    }
                    None => {
                        self.note("malformed_call", "an object among the calls is no call of a function as its schema has it");
                        self.leave_envelope(&envelope.held);
                    }
                }
            }
        }
    }

    /// The calls in the object, if all of them are calls.
    fn calls_of(&self, envelope: &Envelope) -> Option<Vec<CallReader>> {
        let items: Arc<[PatternItem]> = [PatternItem::Object(Arc::new(CallKeys::default()))].into();
        let mut calls = Vec::with_capacity(envelope.calls.len());
        for range in &envelope.calls {
            let mut reader = CallReader::new(&items, 0, false, &self.followers);
            let mut status = CallStatus::More;
            for c in envelope.held[range.clone()].chars() {
                status = reader.step(c, &self.tools);
            }
            if status != CallStatus::Closed
                || reader.name().is_none()
                || !self.passes_validator(&mut reader)
            {
                return None;
            }
            calls.push(reader);
        }
        Some(calls)
    }

    /// It was no such object: a call without its tags, or text. Once its brace is out, no second
    /// object can open.
    fn leave_envelope(&mut self, held: &str) {
        if self.may_open_untagged('{') {
            self.open_untagged('{');
        } else {
            self.push_text("{");
        }
        self.feed(&held[1..]);
    }
}
