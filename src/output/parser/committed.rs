//! Calls from their commit point on: given out, never taken back, checked when they end.

use super::after_call::AfterCall;
use super::call_reader::{CallReader, CallStatus};
use super::candidate::Candidate;
use super::marker_set::MarkerMatch;
use super::{Destination, FailedOpening, Marker, ParserState, ReplyParser, is_whitespace};
use crate::output::message::{Delta, ToolCall};
use crate::output::read::json_scanner;

impl ReplyParser {
    /// Opens a call: from here on it is part of the message.
    pub(super) fn commit(&mut self, name: String, id: Option<String>) -> usize {
        let index = self.parsed.tool_calls.len();
        if !self.tools.has(&name) {
            self.note("unknown_tool", &format!("`{name}` is not one of the given tools"));
        }
        if index == 1 && !self.parallel {
            self.note(
                "parallel_not_requested",
                "more than one call, though parallel calls were not asked for",
            );
        }
        if self.destination == Destination::Reasoning {
            if self.reasoning.as_ref().is_none_or(|tags| !tags.closed_by_call) {
                self.note(
                    "call_in_reasoning",
                    "the call stands inside reasoning that was not closed",
                );
            }
            self.destination = Destination::Content;
        }
        self.whitespace.clear();
        let id = match id.filter(|id| !id.is_empty()) {
            Some(id) if !self.ids.contains(&id) => id,
            Some(id) => {
                self.note(
                    "id_generated",
                    &format!("the id `{id}` is another call's; this one has a new one"),
                );
                (self.new_id)()
            }
            None => {
                if self.patterns.ids {
                    self.note("id_generated", "the call has no id; it was given one");
                }
                (self.new_id)()
            }
        };
        self.ids.insert(id.clone());
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.clone() });
        self.parsed.tool_calls.push(ToolCall { id, name, arguments: String::new() });
        index
    }

    pub(super) fn committed_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let between = candidate.readers.first().is_some_and(CallReader::is_between_values);
        if candidate.tail.is_empty() && !(between && !is_json(c) && self.plan_begins(c)) {
            return self.feed_reader(candidate, c);
        }
        candidate.tail.push(c);
        match self.find_tag(&candidate.tail) {
            MarkerMatch::Prefix => self.state = ParserState::Call(candidate),
            MarkerMatch::Full(..) => {
                let tail = std::mem::take(&mut candidate.tail);
                let (closes, shape) =
                    (candidate.closes(), candidate.readers.first().and_then(|reader| reader.shape));
                if let (Some(mut reader), Some(index)) = (candidate.readers.pop(), candidate.index)
                {
                    reader.finish();
                    self.end_arguments(&mut reader, index);
                }
                self.note("unbalanced_wrapper", "the call's object is not closed");
                self.call_closed();
                self.state = ParserState::AfterCall(AfterCall {
                    bare: candidate.bare,
                    closes,
                    shape,
                    ..AfterCall::default()
                });
                self.feed(&tail);
            }
            MarkerMatch::None => {
                let tail = std::mem::take(&mut candidate.tail);
                let mut rest = tail.chars();
                if let Some(first) = rest.next() {
                    self.feed_reader(candidate, first);
                }
                self.feed(rest.as_str());
            }
        }
    }

    fn feed_reader(&mut self, mut candidate: Box<Candidate>, c: char) {
        let Some(reader) = candidate.readers.first_mut() else { return };
        let status = reader.step(c, &self.tools);
        if candidate.message && !reader.is_ready() {
            candidate.held.push(c);
            if let (CallStatus::Broken(_), Some(index)) = (&status, candidate.index) {
                // Whatever the message holds is what the function is sent.
                self.destination = Destination::Arguments(index);
                self.state = ParserState::Text;
                return self.feed(&candidate.held);
            }
        }
        self.after_step(candidate, status);
    }

    /// What a character brought to a call that is committed.
    pub(super) fn after_step(&mut self, mut candidate: Box<Candidate>, status: CallStatus) {
        let (Some(reader), Some(index)) = (candidate.readers.first_mut(), candidate.index) else {
            return;
        };
        let fragment = reader.take_arguments();
        self.emit_arguments(index, &fragment);
        let broken = matches!(status, CallStatus::Broken(_));
        let rest = match status {
            CallStatus::More => {
                self.state = ParserState::Call(candidate);
                return;
            }
            CallStatus::Closed => String::new(),
            CallStatus::Ended(rest) => rest,
            CallStatus::Broken(_) => {
                self.note("unbalanced_wrapper", "the call's object is not closed");
                reader.take_after()
            }
        };
        self.end_arguments(reader, index);
        self.call_closed();
        self.pending_close = broken;
        self.state = ParserState::AfterCall(AfterCall {
            closed: broken,
            bare: candidate.bare,
            closes: candidate.closes(),
            shape: candidate.readers.first().and_then(|reader| reader.shape),
            ..AfterCall::default()
        });
        self.feed(&rest);
    }

    /// Gives out more of a call's arguments.
    pub(super) fn emit_arguments(&mut self, index: usize, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        self.parsed.tool_calls[index].arguments.push_str(fragment);
        match self.deltas.last_mut() {
            Some(Delta::Arguments { index: last, fragment: text }) if *last == index => {
                text.push_str(fragment)
            }
            _ => self.deltas.push(Delta::Arguments { index, fragment: fragment.to_owned() }),
        }
    }

    /// Gives out what is left of the arguments, and reports what is wrong with them.
    pub(super) fn end_arguments(&mut self, reader: &mut CallReader, index: usize) {
        let fragment = reader.take_arguments();
        self.emit_arguments(index, &fragment);
        if reader.lacks_arguments() {
            self.emit_arguments(index, "{}");
            self.note("arguments_missing", "the call has no arguments");
        }
        self.note_relaxed(reader);
        if let Some(late) = reader.id().filter(|id| !self.ids.contains(*id)).map(str::to_owned) {
            self.note(
                "id_generated",
                &format!(
                    "the id `{late}` stands behind the arguments; the call had been given one"
                ),
            );
        }
        let text = &self.parsed.tool_calls[index].arguments;
        let faults = json_scanner::check_object(text);
        if faults.too_deep {
            self.note(
                "arguments_too_deep",
                &format!("more than {} levels", json_scanner::NESTING_CAP),
            );
        } else if faults.any() {
            let message = match json_scanner::repair(text) {
                Some(repaired) => {
                    format!("the arguments are not a JSON object; repaired: {repaired}")
                }
                None => "the arguments are not a JSON object".to_owned(),
            };
            self.note("arguments_invalid_json", &message);
        }
    }

    /// Reports what was relaxed to read the call.
    pub(super) fn note_relaxed(&mut self, reader: &mut CallReader) {
        for (code, message) in reader.take_notes() {
            self.note(code, &message);
        }
        self.parsed.leftover.extend(reader.take_leftover());
    }

    pub(super) fn call_closed(&mut self) {
        self.failed_opening = FailedOpening::None;
        self.pending_close = false;
        self.marker_passed();
    }

    fn plan_begins(&self, c: char) -> bool {
        self.markers.may_begin(c)
    }

    /// The tags of calls alone.
    pub(super) fn find_tag(&self, held: &str) -> MarkerMatch {
        self.markers.find(held, |marker| {
            matches!(marker, Marker::CallOpen(_) | Marker::CallClose | Marker::End)
        })
    }
}

/// Characters that JSON has outside of strings.
fn is_json(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_whitespace(c) || "{}[]:,\"'+-._".contains(c)
}
