//! A reply that is a single JSON object containing its calls: `{"tool_calls": [{"name",
//! "arguments", "id"}], "content"}`, or `{"tool_call": {…}}`. `polyfill_tool_calls` writes earlier
//! turns in the first form. In formats without it, the calls must come first and name given tools.
//!
//! The object is held until it ends, or until a key shows that it is something else and therefore
//! text.

use std::ops::Range;
use std::sync::Arc;

use super::call_object::{CallKeys, ObjectProgress};
use super::call_patterns::PatternItem;
use super::call_reader::{CallReader, CallStatus};
use super::{Destination, ParserState, ReplyParser};
use crate::output::read::json_scanner::{Container, ScanEvent, Scanner};

const CALLS: &str = "tool_calls";
/// Keys whose value is one call.
const CALL: [&str; 2] = ["tool_call", "function_call"];
const CONTENT: &str = "content";

#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) held: String,
    /// Whether the format itself has envelopes.
    own: bool,
    scanner: Scanner,
    /// The key of the current member.
    key: Option<&'static str>,
    /// Where the current call begins in `held`.
    call: usize,
    /// The calls in `held`.
    calls: Vec<Range<usize>>,
    content: String,
}

impl Envelope {
    pub(super) fn new(own: bool) -> Envelope {
        let (held, content, calls) = (String::new(), String::new(), Vec::new());
        Envelope { held, own, scanner: Scanner::default(), key: None, call: 0, calls, content }
    }

    /// Whether the object certainly contains calls.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || (self.own && self.key == Some(CALLS))
    }

    pub(super) fn has_content(&self) -> bool {
        !self.content.is_empty()
    }

    fn is_one_call(&self) -> bool {
        self.key.is_some_and(|key| CALL.contains(&key))
    }

    pub(super) fn step(&mut self, c: char) -> ObjectProgress {
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
                let first = self.key.is_none();
                let keys = [CALLS, CALL[0], CALL[1], CONTENT];
                self.key = keys.into_iter().find(|key| *key == self.scanner.text());
                let late = first && !self.own && self.key == Some(CONTENT);
                if self.key.is_none() || late {
                    return ObjectProgress::Broken;
                }
            }
            (ScanEvent::Open(Container::Array), 2, Some(CALLS)) => {}
            (ScanEvent::Open(Container::Object), 2, _) if self.is_one_call() => self.call = start,
            (ScanEvent::Open(_), 2, _) => return ObjectProgress::Broken,
            (ScanEvent::Open(Container::Object), 3, Some(CALLS)) => self.call = start,
            (ScanEvent::Open(_), 3, Some(CALLS)) => return ObjectProgress::Broken,
            (ScanEvent::StringEnd, 1, Some(CONTENT)) => {
                self.scanner.text().clone_into(&mut self.content)
            }
            (ScanEvent::StringStart | ScanEvent::WordStart, 1, key) if key != Some(CONTENT) => {
                return ObjectProgress::Broken;
            }
            (ScanEvent::StringStart | ScanEvent::WordStart, 2, Some(CALLS)) => {
                return ObjectProgress::Broken;
            }
            (ScanEvent::Close, 2, Some(CALLS)) => self.calls.push(self.call..self.held.len()),
            (ScanEvent::Close, 1, _) if self.is_one_call() => {
                self.calls.push(self.call..self.held.len())
            }
            (ScanEvent::Close, 0, _) if self.calls.is_empty() => return ObjectProgress::Broken,
            (ScanEvent::Close, 0, _) => return ObjectProgress::Closed,
            _ => {}
        }
        ObjectProgress::More
    }
}

impl ReplyParser {
    /// Whether an opening brace may begin an envelope. It may only do so at the start of the reply.
    pub(super) fn may_open_envelope(&self) -> bool {
        (self.envelope || !(self.json || self.own_calls_only))
            && self.calls_allowed
            && self.destination == Destination::Content
            && self.tail.is_empty()
            && self.parsed.content.is_empty()
            && self.parsed.tool_calls.is_empty()
    }

    pub(super) fn open_envelope(&mut self, c: char) {
        self.envelope_step(Box::new(Envelope::new(self.envelope)), c);
    }

    pub(super) fn envelope_step(&mut self, mut envelope: Box<Envelope>, c: char) {
        match envelope.step(c) {
            ObjectProgress::More => self.state = ParserState::Envelope(envelope),
            ObjectProgress::Broken => self.leave_envelope(&envelope.held),
            ObjectProgress::Closed => match self.calls_of(&envelope) {
                Some(calls) => {
                    self.whitespace.clear();
                    self.emit(&envelope.content);
                    if !envelope.own {
                        self.note(
                            "call_in_foreign_format",
                            "the reply is a JSON object with calls in it, which is not the \
                             model's own form",
                        );
                    }
                    for mut reader in calls {
                        let name = reader.name().unwrap_or_default().to_owned();
                        let index = self.commit(name, reader.id().map(str::to_owned));
                        self.end_arguments(&mut reader, index);
                        self.call_closed();
                    }
                }
                None => {
                    if envelope.own {
                        self.note(
                            "malformed_call",
                            "an object in `tool_calls` is not a call, or violates the tool's schema",
                        );
                    }
                    self.leave_envelope(&envelope.held);
                }
            },
        }
    }

    /// The calls in the object; `None` if one of the entries is not a call.
    pub(super) fn calls_of(&self, envelope: &Envelope) -> Option<Vec<CallReader>> {
        let items: Arc<[PatternItem]> = [PatternItem::Object(Arc::new(CallKeys::default()))].into();
        let mut calls = Vec::with_capacity(envelope.calls.len());
        for range in &envelope.calls {
            let mut reader = CallReader::new(&items, 0, &self.followers);
            let mut status = CallStatus::More;
            for c in envelope.held[range.clone()].chars() {
                status = reader.step(c, &self.tools);
            }
            if status != CallStatus::Closed
                || reader.name().is_none_or(|name| !envelope.own && !self.tools.has(name))
                || !self.passes_validator(&mut reader)
            {
                return None;
            }
            calls.push(reader);
        }
        Some(calls)
    }

    /// Treats the object as a call without tags, or as text. Its brace is emitted first, so that it
    /// does not start another envelope.
    fn leave_envelope(&mut self, held: &str) {
        if self.may_open_untagged('{') {
            self.open_untagged('{');
        } else {
            self.push_text("{");
        }
        self.feed(&held[1..]);
    }
}
