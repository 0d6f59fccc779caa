//! Calls after their commit point. Their arguments are emitted as they arrive and checked at the
//! end. Then a closing tag, the end of the section, the next call, or text may follow.

use super::{AfterCall, Candidate, CommittedCall, ParserState, Transition};
use crate::output::format::FENCE;
use crate::output::message::Destination;
use crate::output::parser::calls::call_reader::CallReader;
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::context::ParserContext;
use crate::output::read::ReadStep;
use crate::output::read::json_scanner::is_whitespace;

impl CommittedCall {
    pub(crate) fn new(reader: CallReader, index: usize, untagged: bool) -> CommittedCall {
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
            if matches!(status, ReadStep::Broken(_)) {
                cx.out.destination = Destination::Arguments(self.index);
                return Transition::text(std::mem::take(held));
            }
        }
        self.after_reader_step(status, cx)
    }

    /// Handles the status of the reader after a character.
    pub(super) fn after_reader_step(
        &mut self,
        status: ReadStep,
        cx: &mut ParserContext,
    ) -> Transition {
        cx.out.emit_arguments(&mut self.reader, self.index);
        let (rest, broken) = match status {
            ReadStep::More => return Transition::Stay,
            ReadStep::Closed => (String::new(), false),
            ReadStep::Ended(rest) => (rest, false),
            ReadStep::Broken(_) => {
                cx.out.note("unbalanced_wrapper", "the call's object is not closed");
                (self.reader.take_after(), true)
            }
        };
        cx.end_call(&mut self.reader, self.index);
        cx.pending_close = broken;
        Transition::To(ParserState::AfterCall(AfterCall { closed: broken, ..self.end() }), rest)
    }
}

impl AfterCall {
    /// Whether the call's closing tag is missing.
    pub(crate) fn lacks_closing_tag(&self) -> bool {
        self.has_closing_tag && !self.closed
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let markers = &cx.forms.current.markers;
        if self.tail.is_empty() && !markers.may_begin(c) {
            return self.read(c, cx);
        }
        self.tail.push(c);
        let found = markers.find(&self.tail, |marker| !matches!(marker, Marker::Fence));
        if found == MarkerMatch::Prefix {
            return Transition::Stay;
        }
        let tail = std::mem::take(&mut self.tail);
        if let MarkerMatch::Full(marker, length) = found {
            let (text, rest) = tail.split_at(length);
            return self.read_marker(marker, text, cx).then(rest);
        }
        let mut rest = tail.chars();
        match rest.next() {
            Some(first) => self.read(first, cx).then(rest.as_str()),
            None => Transition::Stay,
        }
    }

    /// Reads a character that starts no marker.
    fn read(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        // The end of a fence around the call.
        let fence = c == '`' && self.lacks_closing_tag() && !self.held.ends_with(FENCE);
        if fence || is_whitespace(c) || matches!(c, ',' | ';' | ']' | '}' | ')') {
            self.closed |= c == ')' && !cx.forms.current.patterns.has_closing_tag;
            self.held.push(c);
            return Transition::Stay;
        }
        let readers = if self.over || (self.closed && self.has_closing_tag) {
            Vec::new()
        } else {
            cx.forms.readers_of_next_call(c, self.pattern, cx.out.is_empty())
        };
        if readers.is_empty() {
            return self.leave(cx).then(c.encode_utf8(&mut [0; 4]));
        }
        let candidate = Candidate::after(self, readers);
        Transition::To(ParserState::Candidate(Box::new(candidate)), c.into())
    }

    fn read_marker(&mut self, marker: Marker, text: &str, cx: &mut ParserContext) -> Transition {
        let closes = cx.forms.current.patterns.closing_tags.iter().any(|closing| closing == text);
        if closes && marker != Marker::OtherTurn {
            self.report_text_before_tag(cx);
            cx.out.marker_passed();
            self.held.clear();
            self.closed = true;
            self.over = true;
            return Transition::Stay;
        }
        if matches!(marker, Marker::CallOpen(_) | Marker::End | Marker::OtherTurn) {
            self.report_text_before_tag(cx);
            self.report_missing_tag(cx);
            cx.out.marker_passed();
        } else if let Transition::To(_, rest) = self.leave(cx) {
            // A fence around the call is dropped.
            if rest.trim_end() != FENCE {
                cx.out.push_text(&rest);
            }
        }
        Transition::to(cx.on_marker(marker, text))
    }

    /// Returns to the text state, because neither a closing tag nor another call follows.
    pub(crate) fn leave(&self, cx: &mut ParserContext) -> Transition {
        cx.pending_close |= self.report_missing_tag(cx);
        let rest = without_closing(&self.held);
        cx.out.keep_whitespace_after_call(&self.held[..self.held.len() - rest.len()]);
        if self.held[..self.held.len() - rest.len()].contains('}') {
            cx.out.note("unbalanced_wrapper", "a brace too many after the call was removed");
        }
        Transition::text(rest)
    }

    /// Reports a missing closing tag. Returns whether it is missing.
    pub(crate) fn report_missing_tag(&self, cx: &mut ParserContext) -> bool {
        if self.lacks_closing_tag() {
            cx.out.note("missing_end_marker", "the call has no closing tag");
        }
        self.lacks_closing_tag()
    }

    fn report_text_before_tag(&self, cx: &mut ParserContext) {
        let between = self.held.trim();
        let brackets = |c: char| matches!(c, ']' | ')') || is_whitespace(c);
        if between != FENCE && !between.chars().all(brackets) {
            cx.out.note(
                "unbalanced_wrapper",
                &format!("`{between}` between the call and its closing tag was removed"),
            );
        }
    }
}

/// The text after the brackets that close a call or a list, without whitespace in front. A comma
/// before a bracket belongs to the list.
pub(super) fn without_closing(text: &str) -> &str {
    let run = text.find(|c: char| !is_whitespace(c) && !matches!(c, ',' | ';' | ']' | ')' | '}'));
    let closing = text[..run.unwrap_or(text.len())].rfind([']', ')', '}']);
    text[closing.map_or(0, |at| at + 1)..].trim_start()
}

/// Characters of JSON outside strings.
fn is_json(c: char) -> bool {
    c.is_ascii_alphanumeric() || is_whitespace(c) || "{}[]:,\"'+-._".contains(c)
}
