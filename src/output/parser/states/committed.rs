//! Calls after their commit point. Their arguments are emitted as they arrive and checked at the
//! end.

use super::{AfterCall, CommittedCall, ParserState, Transition};
use crate::output::message::Destination;
use crate::output::parser::calls::call_reader::{CallReader, CallStatus};
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::context::ParserContext;
use crate::output::read::json_scanner::is_whitespace;

impl CommittedCall {
    pub(in super::super) fn new(reader: CallReader, index: usize, untagged: bool) -> CommittedCall {
        CommittedCall { reader, index, untagged, message: None, tail: String::new() }
    }

    fn end(&self) -> AfterCall {
        AfterCall {
            untagged: self.untagged,
            has_closing_tag: !self.untagged && self.reader.has_closing_tag,
            pattern: self.reader.pattern,
            ..AfterCall::default()
        }
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let markers = &cx.forms.current.markers;
        let may_be_tag = self.reader.is_between_values() && !is_json(c) && markers.may_begin(c);
        if self.tail.is_empty() && !may_be_tag {
            return self.read(c, cx);
        }
        self.tail.push(c);
        let found = markers.find(&self.tail, |marker| {
            matches!(marker, Marker::CallOpen(_) | Marker::CallClose | Marker::End)
        });
        let tail = match found {
            MarkerMatch::Prefix => return Transition::Stay,
            _ => std::mem::take(&mut self.tail),
        };
        if let MarkerMatch::Full(..) = found {
            self.reader.finish();
            cx.end_call(&mut self.reader, self.index);
            cx.out.note("unbalanced_wrapper", "the call's object is not closed");
            return Transition::To(ParserState::AfterCall(self.end()), tail);
        }
        let mut rest = tail.chars();
        match rest.next() {
            Some(first) => self.read(first, cx).then(rest.as_str()),
            None => Transition::Stay,
        }
    }

    fn read(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let status = self.reader.step(c, &cx.settings.tools);
        if let Some(held) = self.message.as_mut().filter(|_| !self.reader.is_ready()) {
            held.push(c);
            if matches!(status, CallStatus::Broken(_)) {
                cx.out.destination = Destination::Arguments(self.index);
                return Transition::text(std::mem::take(held));
            }
        }
        self.after_reader_step(status, cx)
    }

    /// Handles the status of the reader after a character.
    pub(super) fn after_reader_step(
        &mut self,
        status: CallStatus,
        cx: &mut ParserContext,
    ) -> Transition {
        cx.out.emit_arguments(&mut self.reader, self.index);
        let (rest, broken) = match status {
            CallStatus::More => return Transition::Stay,
            CallStatus::Closed => (String::new(), false),
            CallStatus::Ended(rest) => (rest, false),
            CallStatus::Broken(_) => {
                cx.out.note("unbalanced_wrapper", "the call's object is not closed");
                (self.reader.take_after(), true)
            }
        };
        cx.end_call(&mut self.reader, self.index);
        cx.pending_close = broken;
        Transition::To(ParserState::AfterCall(AfterCall { closed: broken, ..self.end() }), rest)
    }
}

/// Characters of JSON outside strings.
fn is_json(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_whitespace(c) || "{}[]:,\"'+-._".contains(c)
}
