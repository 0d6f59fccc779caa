//! Content and reasoning, and the markers in them.

use super::fence::Fence;
use super::marker_set::{Marker, MarkerMatch};
use super::{Destination, FENCE, FailedOpening, ParserState, ReplyParser};

impl ReplyParser {
    pub(super) fn text_step(&mut self, c: char) {
        let may_begin =
            self.markers.may_begin(c) || (self.line_start && self.markers.may_begin_line(c));
        if self.tail.is_empty() && !may_begin {
            return self.push_char(c);
        }
        self.tail.push(c);
        let (content, line_start) = (self.destination == Destination::Content, self.line_start);
        let fence = content && line_start && self.calls_allowed;
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

    /// Handles a marker in text, or one that ended another state.
    pub(super) fn on_marker(&mut self, marker: Marker, text: &str) {
        let ends_other_turn = matches!(marker, Marker::End | Marker::Turn | Marker::OtherTurn);
        if self.in_other_turn && !ends_other_turn {
            return self.push_text(text);
        }
        self.in_other_turn = false;
        match (self.destination, marker) {
            (
                Destination::Leftover | Destination::Arguments(_),
                Marker::End | Marker::Turn | Marker::OtherTurn | Marker::Header,
            ) => {
                self.leave_message();
                self.on_marker(marker, text);
            }
            (Destination::Leftover | Destination::Arguments(_), _) => self.push_text(text),
            (_, Marker::CallOpen(index)) if self.calls_allowed => self.open_call(index, text),
            (_, Marker::CallOpen(_)) => {
                self.push_text(text);
                self.call_tag_was_text = true;
            }
            (_, Marker::ForeignOpen(index)) => self.open_foreign(index, text),
            (_, Marker::CallClose) => self.stray_close(text),
            (_, Marker::Fence) if std::mem::take(&mut self.in_call_fence) => self.marker_passed(),
            (_, Marker::Fence) => {
                let mut held = std::mem::take(&mut self.whitespace);
                held.push_str(text);
                self.state = ParserState::Fence(Box::new(Fence::new(held)));
            }
            (_, Marker::Wrapper) => self.marker_passed(),
            (_, Marker::End) => self.message_ended(text),
            (_, Marker::Turn) => self.open_header(String::new(), text),
            (_, Marker::OtherTurn) => self.open_other_turn(text),
            (_, Marker::Header) => self.open_header(text.to_owned(), ""),
            (Destination::Content, Marker::ReasoningOpen) => {
                let first = self.parsed.content.is_empty()
                    && self.parsed.reasoning.is_none()
                    && self.parsed.tool_calls.is_empty();
                if !first {
                    self.note("reasoning_reopened", "reasoning opens after the answer has begun");
                }
                self.opened_by_tag = true;
                self.begin_reasoning();
            }
            (Destination::Reasoning, Marker::ReasoningOpen) if self.block_empty => {
                let is_control = self.pending_controls.contains(text);
                self.opened_twice = !self.opened_by_tag && !self.turn_repeated && !is_control;
                self.marker_passed();
            }
            (Destination::Reasoning, Marker::ReasoningClose) => self.close_reasoning(),
            (Destination::Content, Marker::ReasoningClose) => self.stray_reasoning_close(text),
            (Destination::Reasoning, _) => self.push_text(text),
        }
    }

    /// Handles a message of another role, which is not part of the reply. In the middle of a
    /// message the marker is text.
    fn open_other_turn(&mut self, text: &str) {
        if !self.after_marker || self.priming {
            return self.push_text(text);
        }
        self.note_once(
            "next_turn_removed",
            "the reply continues with a turn of another role, which was removed",
        );
        self.destination = Destination::Leftover;
        self.in_other_turn = true;
        self.parsed.leftover.push(String::new());
        self.push_text(text);
    }

    /// Ends a message to a function or to an unknown recipient.
    pub(super) fn leave_message(&mut self) {
        if let Destination::Arguments(_) = self.destination {
            self.note("arguments_invalid_json", "the message to the function is not a JSON object");
        }
        if self.destination != Destination::Reasoning {
            self.destination = Destination::Content;
        }
    }

    pub(super) fn begin_reasoning(&mut self) {
        self.destination = Destination::Reasoning;
        self.block_empty = true;
        self.opened_twice = false;
        self.marker_passed();
    }

    fn close_reasoning(&mut self) {
        if self.block_empty && std::mem::take(&mut self.opened_twice) {
            // The block consists of a repeated opening tag, which is the only text of the model.
            let open = self.reasoning.as_ref().map(|tags| tags.open.clone()).unwrap_or_default();
            self.emit(&open);
        }
        self.destination = Destination::Content;
        self.marker_passed();
    }

    /// Handles a closing tag of reasoning in content.
    fn stray_reasoning_close(&mut self, text: &str) {
        let close_only = self.reasoning.as_ref().is_some_and(|tags| tags.close_only);
        let expected = close_only && self.parsed.content.is_empty();
        if self.close_is_end || self.priming || expected {
            return self.marker_passed();
        }
        let what = if close_only { "removed" } else { "kept as text" };
        if close_only {
            self.marker_passed();
        } else {
            self.push_text(text);
        }
        self.note("stray_end_marker", &format!("`{text}` closes nothing and was {what}"));
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
            self.note("eog_text_removed", &format!("`{text}` ends a turn and was removed"));
        }
        self.marker_passed();
    }

    /// Handles a closing tag of a call in content.
    fn stray_close(&mut self, text: &str) {
        if self.pending_close {
            self.pending_close = false;
            self.marker_passed();
            return;
        }
        self.push_text(text);
        // A fence is common in ordinary text.
        if !self.calls_allowed || text == FENCE {
            return;
        }
        match self.failed_opening {
            FailedOpening::None => self
                .note("stray_end_marker", &format!("`{text}` closes nothing and was kept as text")),
            FailedOpening::Silent => {
                self.note("malformed_call", "the text between the call's tags is not a call")
            }
            FailedOpening::Reported => {}
        }
        self.failed_opening = FailedOpening::None;
    }
}
