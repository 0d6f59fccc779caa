//! Appends text to the right part of the message, with the right whitespace.

use super::{Destination, ParserState, ReplyParser, is_whitespace};
use crate::output::message::Delta;

impl ReplyParser {
    /// Drops the whitespace around a marker.
    pub(super) fn marker_passed(&mut self) {
        self.whitespace.clear();
        self.after_marker = true;
        self.line_start = true;
    }

    /// Like [`push_char`](Self::push_char), for each character.
    pub(super) fn push_text(&mut self, text: &str) {
        for c in text.chars() {
            self.push_char(c);
        }
    }

    /// Appends a character that is not part of a marker. Whitespace is held until text follows.
    pub(super) fn push_char(&mut self, c: char) {
        self.code.step(c, self.line_start);
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
                "the reply contains a call, but the request allows none; it was kept as text",
            );
        }
        self.line_start = false;
        self.after_marker = false;
        self.after_removed = false;
        self.in_call_fence = false;
        self.show_kept_opening();
        if !self.whitespace.is_empty() {
            let whitespace = std::mem::take(&mut self.whitespace);
            self.emit(&whitespace);
        }
        self.emit(c.encode_utf8(&mut [0; 4]));
    }

    /// Appends text unchanged, except that its control tokens are removed.
    pub(super) fn emit(&mut self, text: &str) {
        if self.pending_controls.is_empty() {
            return self.append(self.destination, text);
        }
        let text = self.without_controls(self.destination, text);
        self.append(self.destination, &text);
    }

    pub(super) fn append(&mut self, destination: Destination, text: &str) {
        if text.is_empty() {
            return;
        }
        match destination {
            Destination::Leftover => match self.parsed.leftover.last_mut() {
                Some(last) => last.push_str(text),
                None => self.parsed.leftover.push(text.to_owned()),
            },
            Destination::Arguments(index) => self.append_arguments(index, text),
            Destination::Content => match self.json_text(text) {
                Some(text) => self.append_content(&text),
                None => self.append_content(text),
            },
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

    fn append_content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.parsed.content.push_str(text);
        match self.deltas.last_mut() {
            Some(Delta::Content(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Content(text.to_owned())),
        }
    }

    /// Appends to the arguments of a call.
    pub(super) fn emit_arguments(&mut self, index: usize, fragment: &str) {
        if self.pending_controls.is_empty() {
            return self.append_arguments(index, fragment);
        }
        let fragment = self.without_controls(Destination::Arguments(index), fragment);
        self.append_arguments(index, &fragment);
    }

    fn append_arguments(&mut self, index: usize, fragment: &str) {
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

    /// Makes held text part of the surrounding text. Only the last `again` bytes are parsed again,
    /// because they may start a marker.
    pub(super) fn release(&mut self, held: &str, again: usize) {
        let mut at = held.len().saturating_sub(again);
        while !held.is_char_boundary(at) {
            at -= 1;
        }
        self.push_text(&held[..at]);
        self.feed(&held[at..]);
    }

    /// Parses each character. States pass text that they reject back here. It is never longer than
    /// the start of a marker or the text between two calls.
    pub(super) fn feed(&mut self, text: &str) {
        let mut chars = text.chars();
        loop {
            if self.is_inside_text() {
                let (plain, rest) =
                    chars.as_str().split_at(self.markers.plain_length(chars.as_str()));
                if !plain.is_empty() {
                    self.emit(plain);
                }
                chars = rest.chars();
            }
            let Some(c) = chars.next() else { return };
            self.step(c);
        }
    }

    /// Whether the last character was text of the message, in a place where the next character is
    /// text too unless it begins a marker or a call.
    fn is_inside_text(&self) -> bool {
        matches!(self.state, ParserState::Text)
            && self.foreign.is_none()
            && self.tail.is_empty()
            && self.whitespace.is_empty()
            && !self.line_start
            && !self.after_marker
            && !self.after_removed
            && !self.in_call_fence
            && !self.call_tag_was_text
            && self.kept_opening.is_none()
            && !self.code.follows_backtick()
    }
}
