//! Text that is no marker: where it goes, and which blanks around it are the message's.

use super::{Destination, ReplyParser, is_whitespace};
use crate::output::message::Delta;

impl ReplyParser {
    /// Blanks around a marker belong to it.
    pub(super) fn marker_passed(&mut self) {
        self.whitespace.clear();
        self.after_marker = true;
        self.line_start = true;
    }

    pub(super) fn push_text(&mut self, text: &str) {
        for c in text.chars() {
            self.push_char(c);
        }
    }

    /// One character that is certainly not part of a marker.
    pub(super) fn push_char(&mut self, c: char) {
        if is_whitespace(c) {
            self.line_start |= c == '\n';
            if !self.after_marker {
                self.whitespace.push(c);
            }
            return;
        }
        if std::mem::take(&mut self.call_tag_was_text) && matches!(c, '{' | '[') {
            self.note(
                "call_without_tools",
                "the reply holds a call, but no call was asked for; it was kept as text",
            );
        }
        self.line_start = false;
        self.after_marker = false;
        if !self.whitespace.is_empty() {
            let blanks = std::mem::take(&mut self.whitespace);
            self.emit(&blanks);
        }
        self.emit(c.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn emit(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.destination {
            Destination::Elsewhere => match self.parsed.leftover.last_mut() {
                Some(last) => last.push_str(text),
                None => self.parsed.leftover.push(text.to_owned()),
            },
            Destination::Arguments(index) => self.emit_arguments(index, text),
            Destination::Content => {
                self.parsed.content.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Content(last)) => last.push_str(text),
                    _ => self.deltas.push(Delta::Content(text.to_owned())),
                }
            }
            Destination::Reasoning => {
                let all = self.parsed.reasoning.get_or_insert_default();
                let join = if self.block_empty && !all.is_empty() { "\n" } else { "" };
                self.block_empty = false;
                all.push_str(join);
                all.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Reasoning(last)) => {
                        last.push_str(join);
                        last.push_str(text);
                    }
                    _ => self.deltas.push(Delta::Reasoning(format!("{join}{text}"))),
                }
            }
        }
    }

    /// Returns held text to the text around it. It is not read again, but for its end, which may
    /// begin something new.
    pub(super) fn release(&mut self, held: &str, again: usize) {
        let mut at = held.len().saturating_sub(again);
        while !held.is_char_boundary(at) {
            at -= 1;
        }
        self.push_text(&held[..at]);
        self.feed(&held[at..]);
    }

    /// Reads text again that no state wants: never more than a marker's beginning or the few
    /// characters of a gap.
    pub(super) fn feed(&mut self, text: &str) {
        for c in text.chars() {
            self.step(c);
        }
    }
}
