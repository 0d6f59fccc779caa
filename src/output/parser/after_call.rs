//! The state after a call: its closing tags, the end of the section, the next call, or text.

use super::candidate::Candidate;
use super::marker_set::{Marker, MarkerMatch};
use super::{FENCE, ParserState, ReplyParser, is_whitespace};

/// The text after a call, until it is clear what it is.
#[derive(Debug, Default)]
pub(super) struct AfterCall {
    pub(super) held: String,
    pub(super) tail: String,
    /// Whether the call's closing tag was read.
    pub(super) closed: bool,
    /// Whether the call had no opening tag.
    pub(super) untagged: bool,
    /// Whether the call requires a closing tag.
    pub(super) has_closing_tag: bool,
    /// Whether the next call needs an opening tag, because a closing tag was read.
    pub(super) over: bool,
    pub(super) pattern: Option<usize>,
}

impl AfterCall {
    /// Whether the call's closing tag is missing.
    pub(super) fn lacks_closing_tag(&self) -> bool {
        self.has_closing_tag && !self.closed
    }
}

impl ReplyParser {
    pub(super) fn after_call_step(&mut self, mut after: AfterCall, c: char) {
        if after.tail.is_empty() && !self.markers.may_begin(c) {
            return self.char_after_call(after, c);
        }
        after.tail.push(c);
        match self.markers.find(&after.tail, |marker| !matches!(marker, Marker::Fence)) {
            MarkerMatch::Prefix => self.state = ParserState::AfterCall(after),
            MarkerMatch::Full(marker, length) => {
                let tail = std::mem::take(&mut after.tail);
                let (text, rest) = tail.split_at(length);
                self.marker_after_call(after, marker, text);
                self.feed(rest);
            }
            MarkerMatch::None => {
                let tail = std::mem::take(&mut after.tail);
                let mut rest = tail.chars();
                if let Some(first) = rest.next() {
                    self.char_after_call(after, first);
                }
                self.feed(rest.as_str());
            }
        }
    }

    /// Reads a character that starts no marker.
    fn char_after_call(&mut self, mut after: AfterCall, c: char) {
        // The end of a fence around the call.
        let fence = c == '`' && after.lacks_closing_tag() && !after.held.ends_with(FENCE);
        if fence || is_whitespace(c) || matches!(c, ',' | ';' | ']' | '}' | ')') {
            after.closed |= c == ')' && !self.patterns.has_closing_tag;
            after.held.push(c);
            self.state = ParserState::AfterCall(after);
            return;
        }
        let readers = if after.over || (after.closed && after.has_closing_tag) {
            Vec::new()
        } else {
            self.readers_of_next_call(c, after.pattern)
        };
        if readers.is_empty() {
            self.leave_after_call(&after);
            return self.feed(c.encode_utf8(&mut [0; 4]));
        }
        self.candidate_step(Box::new(Candidate::after(after, readers)), c);
    }

    fn marker_after_call(&mut self, mut after: AfterCall, marker: Marker, text: &str) {
        let closes = self.patterns.closing_tags.iter().any(|closing| closing == text);
        if closes && marker != Marker::OtherTurn {
            self.report_text_before_tag(&after);
            self.marker_passed();
            after.held.clear();
            after.closed = true;
            after.over = true;
            self.state = ParserState::AfterCall(after);
            return;
        }
        match marker {
            Marker::CallOpen(_) | Marker::End | Marker::OtherTurn => {
                self.report_text_before_tag(&after);
                if after.lacks_closing_tag() {
                    self.note("missing_end_marker", "the call has no closing tag");
                }
                self.marker_passed();
            }
            _ => self.leave_after_call(&after),
        }
        self.state = ParserState::Text;
        self.on_marker(marker, text);
    }

    /// Returns to the text state, because neither a closing tag nor another call follows.
    pub(super) fn leave_after_call(&mut self, after: &AfterCall) {
        if after.lacks_closing_tag() {
            self.note("missing_end_marker", "the call has no closing tag");
            self.pending_close = true;
        }
        self.state = ParserState::Text;
        let rest = without_closing(&after.held);
        if after.held[..after.held.len() - rest.len()].contains('}') {
            self.note("unbalanced_wrapper", "a brace too many after the call was removed");
        }
        self.feed(rest);
    }

    fn report_text_before_tag(&mut self, after: &AfterCall) {
        let between = after.held.trim();
        let brackets = |c: char| matches!(c, ']' | ')') || is_whitespace(c);
        if between != FENCE && !between.chars().all(brackets) {
            self.note(
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
