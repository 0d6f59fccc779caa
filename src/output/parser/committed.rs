//! Calls after their commit point. Their arguments are emitted as they arrive and checked at the
//! end.

use super::after_call::AfterCall;
use super::call_reader::{CallReader, CallStatus};
use super::marker_set::{Marker, MarkerMatch};
use super::{Destination, FailedOpening, ParserState, ReplyParser, is_whitespace};
use crate::output::message::{Delta, ToolCall};
use crate::output::read::{json_check, json_scanner};

/// A call that is part of the message.
#[derive(Debug)]
pub(super) struct CommittedCall {
    pub(super) reader: CallReader,
    /// Its index in the message.
    pub(super) index: usize,
    /// Whether the call had no opening tag.
    untagged: bool,
    /// For a message to a function: the text before the arguments. If no arguments follow, this
    /// text becomes the arguments.
    message: Option<String>,
    /// Text that may be a tag, at a place where the arguments cannot contain one.
    pub(super) tail: String,
}

impl CommittedCall {
    pub(super) fn new(reader: CallReader, index: usize, untagged: bool) -> CommittedCall {
        CommittedCall { reader, index, untagged, message: None, tail: String::new() }
    }

    /// The body of a message to a function.
    pub(super) fn message(reader: CallReader, index: usize) -> CommittedCall {
        CommittedCall { message: Some(String::new()), ..CommittedCall::new(reader, index, false) }
    }

    fn end(&self) -> AfterCall {
        AfterCall {
            untagged: self.untagged,
            has_closing_tag: !self.untagged && self.reader.has_closing_tag,
            pattern: self.reader.pattern,
            ..AfterCall::default()
        }
    }
}

impl ReplyParser {
    /// Adds a call to the message and returns its index.
    pub(super) fn commit(&mut self, name: String, id: Option<String>) -> usize {
        let name = self.word_without_controls(name);
        let id = id.map(|id| self.word_without_controls(id));
        let index = self.parsed.tool_calls.len();
        let name = match self.tools.tool_name(&name) {
            Some(own) if own == name => name,
            Some(own) => {
                self.note("tool_name_shortened", &format!("`{name}` was read as the tool `{own}`"));
                own.to_owned()
            }
            None => {
                self.note("unknown_tool", &format!("`{name}` is not a tool of the request"));
                name
            }
        };
        if index == 1 && !self.parallel {
            self.note(
                "parallel_not_requested",
                "there is more than one call, but the request allows only one",
            );
        }
        if self.destination == Destination::Reasoning {
            if self.reasoning.as_ref().is_none_or(|tags| !tags.closed_by_call) {
                self.note("call_in_reasoning", "the call is inside reasoning that never closes");
            }
            self.destination = Destination::Content;
        }
        self.whitespace.clear();
        self.pending_controls.committed();
        self.release_json();
        self.kept_opening = None;
        let id = match id.filter(|id| !id.is_empty()) {
            Some(id) if !self.ids.contains(&id) => id,
            Some(id) => {
                self.note(
                    "id_generated",
                    &format!("another call has the id `{id}`; a new id was generated"),
                );
                (self.new_id)()
            }
            None => {
                if self.patterns.has_ids {
                    self.note("id_generated", "the call has no id; one was generated");
                }
                (self.new_id)()
            }
        };
        self.ids.insert(id.clone());
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.clone() });
        self.parsed.tool_calls.push(ToolCall { id, name, arguments: String::new() });
        index
    }

    pub(super) fn committed_step(&mut self, mut call: Box<CommittedCall>, c: char) {
        let may_be_tag =
            call.reader.is_between_values() && !is_json(c) && self.markers.may_begin(c);
        if call.tail.is_empty() && !may_be_tag {
            return self.feed_reader(call, c);
        }
        call.tail.push(c);
        match self.find_call_tag(&call.tail) {
            MarkerMatch::Prefix => self.state = ParserState::Committed(call),
            MarkerMatch::Full(..) => {
                call.reader.finish();
                self.end_arguments(&mut call.reader, call.index);
                self.note("unbalanced_wrapper", "the call's object is not closed");
                self.call_closed();
                self.state = ParserState::AfterCall(call.end());
                self.feed(&call.tail);
            }
            MarkerMatch::None => {
                let tail = std::mem::take(&mut call.tail);
                let mut rest = tail.chars();
                if let Some(first) = rest.next() {
                    self.feed_reader(call, first);
                }
                self.feed(rest.as_str());
            }
        }
    }

    fn feed_reader(&mut self, mut call: Box<CommittedCall>, c: char) {
        let status = call.reader.step(c, &self.tools);
        if let Some(held) = call.message.as_mut().filter(|_| !call.reader.is_ready()) {
            held.push(c);
            if matches!(status, CallStatus::Broken(_)) {
                self.destination = Destination::Arguments(call.index);
                self.state = ParserState::Text;
                return self.feed(held);
            }
        }
        self.after_reader_step(call, status);
    }

    /// Handles the status of the reader after a character.
    pub(super) fn after_reader_step(&mut self, mut call: Box<CommittedCall>, status: CallStatus) {
        self.emit_read_arguments(&mut call.reader, call.index);
        let broken = matches!(status, CallStatus::Broken(_));
        let rest = match status {
            CallStatus::More => {
                self.state = ParserState::Committed(call);
                return;
            }
            CallStatus::Closed => String::new(),
            CallStatus::Ended(rest) => rest,
            CallStatus::Broken(_) => {
                self.note("unbalanced_wrapper", "the call's object is not closed");
                call.reader.take_after()
            }
        };
        self.end_arguments(&mut call.reader, call.index);
        self.call_closed();
        self.pending_close = broken;
        self.state = ParserState::AfterCall(AfterCall { closed: broken, ..call.end() });
        self.feed(&rest);
    }

    /// Emits the arguments that the reader has read since the last time.
    pub(super) fn emit_read_arguments(&mut self, reader: &mut CallReader, index: usize) {
        self.emit_arguments(index, reader.arguments());
        reader.clear_arguments();
    }

    /// Emits the rest of the arguments and reports their faults.
    pub(super) fn end_arguments(&mut self, reader: &mut CallReader, index: usize) {
        self.emit_read_arguments(reader, index);
        if reader.lacks_arguments() {
            self.emit_arguments(index, "{}");
            self.note("arguments_missing", "the call has no arguments");
        }
        self.note_relaxed(reader);
        if let Some(late) = reader.id().filter(|id| !self.ids.contains(*id)).map(str::to_owned) {
            self.note(
                "id_generated",
                &format!("the id `{late}` follows the arguments; the call already has a new id"),
            );
        }
        let text = &self.parsed.tool_calls[index].arguments;
        let faults = json_check::check_object(text);
        if faults.too_deep {
            let max = json_scanner::NESTING_CAP;
            self.note("arguments_too_deep", &format!("more than {max} levels of nesting"));
        } else if faults.any() {
            let message = match json_check::repair(text) {
                Some(repaired) => {
                    format!("the arguments are not a JSON object; repaired: {repaired}")
                }
                None => "the arguments are not a JSON object".to_owned(),
            };
            self.note("arguments_invalid_json", &message);
        }
    }

    /// Reports the deviations that the reader accepted.
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

    fn find_call_tag(&self, held: &str) -> MarkerMatch {
        self.markers.find(held, |marker| {
            matches!(marker, Marker::CallOpen(_) | Marker::CallClose | Marker::End)
        })
    }
}

/// Characters of JSON outside strings.
fn is_json(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_whitespace(c) || "{}[]:,\"'+-._".contains(c)
}
