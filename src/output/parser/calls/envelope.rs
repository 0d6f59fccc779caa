//! A reply that is a single JSON object containing its calls: `{"tool_calls": [{"name",
//! "arguments", "id"}], "content"}`, or `{"tool_call": {…}}`. `polyfill_tool_calls` writes earlier
//! turns in the first form. In formats without it, the calls must come first and name given tools.
//!
//! The object is held until it ends, or until a key shows that it is something else and therefore
//! text.

use std::ops::Range;

use super::call_object::ObjectProgress;
use crate::output::read::json_scanner::{Container, ScanEvent, Scanner};

const CALLS: &str = "tool_calls";
/// Keys whose value is one call.
const CALL: [&str; 2] = ["tool_call", "function_call"];
const CONTENT: &str = "content";

#[derive(Debug, Default)]
pub(crate) struct Envelope {
    pub(crate) held: String,
    /// Whether the format itself has envelopes.
    pub(crate) own: bool,
    scanner: Scanner,
    /// The key of the current member.
    key: Option<&'static str>,
    /// Where the current call begins in `held`.
    call: usize,
    /// The calls in `held`.
    calls: Vec<Range<usize>>,
    pub(crate) content: String,
}

impl Envelope {
    pub(crate) fn new(own: bool) -> Envelope {
        Envelope { own, ..Envelope::default() }
    }

    /// Whether the object certainly contains calls.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty() || (self.own && self.key == Some(CALLS))
    }

    /// The texts of the calls so far.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().map(|range| &self.held[range.clone()])
    }

    fn is_one_call(&self) -> bool {
        self.key.is_some_and(|key| CALL.contains(&key))
    }

    pub(crate) fn read(&mut self, c: char) -> ObjectProgress {
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
