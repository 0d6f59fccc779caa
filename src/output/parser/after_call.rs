//! Behind a call: its closing tags, the end of its section, another call, or text again.

use super::candidate::Candidate;
use super::marker_set::MarkerMatch;
use super::{Marker, ParserState, ReplyParser, is_whitespace};

/// Text behind a call, until it is clear whose it is.
#[derive(Debug, Default)]
pub(super) struct AfterCall {
    pub(super) held: String,
    pub(super) tail: String,
    /// A closing tag has been read.
    pub(super) closed: bool,
    /// The call before it has no opening tag, so it needs no closing one.
    pub(super) bare: bool,
    /// The call should have a closing tag.
    pub(super) closes: bool,
    /// Closing tags were read: nothing but a tag opens another call.
    pub(super) over: bool,
    /// The shape of the call before it.
    pub(super) shape: Option<usize>,
}

impl AfterCall {
    /// Whether the call before it lacks its closing tag.
    pub(super) fn owes_close(&self) -> bool {
        self.closes && !self.closed
    }
}

impl ReplyParser {
    pub(super) fn after_call_step(&mut self, mut gap: AfterCall, c: char) {
        if gap.tail.is_empty() && !self.markers.may_begin(c) {
            return self.char_after_call(gap, c);
        }
        gap.tail.push(c);
        match self.markers.find(&gap.tail, |marker| !matches!(marker, Marker::Fence)) {
            MarkerMatch::Prefix => self.state = ParserState::AfterCall(gap),
            MarkerMatch::Full(marker, length) => {
                let tail = std::mem::take(&mut gap.tail);
                let (text, rest) = tail.split_at(length);
                self.tag_after_call(gap, marker, text);
                self.feed(rest);
            }
            MarkerMatch::None => {
                let tail = std::mem::take(&mut gap.tail);
                let mut rest = tail.chars();
                if let Some(first) = rest.next() {
                    self.char_after_call(gap, first);
                }
                self.feed(rest.as_str());
            }
        }
    }

    /// A character that begins no tag.
    fn char_after_call(&mut self, mut gap: AfterCall, c: char) {
        if is_whitespace(c) || matches!(c, ',' | ';' | ']' | '}' | ')') {
            gap.closed |= c == ')' && !self.patterns.closes;
            gap.held.push(c);
            self.state = ParserState::AfterCall(gap);
            return;
        }
        let readers = if gap.over || (gap.closed && gap.closes) {
            Vec::new()
        } else {
            self.readers_of_next_call(c, gap.shape)
        };
        if readers.is_empty() {
            self.leave_after_call(&gap);
            return self.feed(c.encode_utf8(&mut [0; 4]));
        }
        let (bare, follows, behind) = (gap.bare, gap.closes, gap.held.len());
        let mut candidate = Candidate::new(gap.held, readers);
        candidate.follows = follows;
        candidate.bare = bare;
        candidate.behind = behind;
        self.candidate_step(Box::new(candidate), c);
    }

    fn tag_after_call(&mut self, mut gap: AfterCall, marker: Marker, text: &str) {
        let closes = self.patterns.closing_tags.iter().any(|closer| closer == text);
        if closes {
            self.report_text_before_tag(&gap);
            self.marker_passed();
            gap.held.clear();
            gap.closed = true;
            gap.over = true;
            self.state = ParserState::AfterCall(gap);
            return;
        }
        match marker {
            Marker::CallOpen(_) | Marker::End => {
                self.report_text_before_tag(&gap);
                if gap.owes_close() {
                    self.note("missing_end_marker", "the call has no closing tag");
                }
                self.marker_passed();
            }
            _ => self.leave_after_call(&gap),
        }
        self.state = ParserState::Text;
        self.on_marker(marker, text);
    }

    /// Neither a closing tag nor another call: the machine is back in text.
    pub(super) fn leave_after_call(&mut self, gap: &AfterCall) {
        if gap.owes_close() {
            self.note("missing_end_marker", "the call has no closing tag");
            self.pending_close = true;
        }
        self.state = ParserState::Text;
        let text = gap.held.trim_start();
        self.feed(text.trim_start_matches([']', ')']));
    }

    fn report_text_before_tag(&mut self, gap: &AfterCall) {
        let between = gap.held.trim();
        if !matches!(between, "" | "]" | ")" | ")]") {
            self.note(
                "unbalanced_wrapper",
                &format!("`{between}` between the call and its closing tag was left out"),
            );
        }
    }
}
