//! Behind a call: its closing tags, the end of its section, another call, or text again.

use super::candidate::Candidate;
use super::marker_set::Found;
use super::{Marker, ReplyParser, State, is_blank};

/// Text behind a call, until it is clear whose it is.
#[derive(Debug, Default)]
pub(super) struct Gap {
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

impl Gap {
    /// Whether the call before it lacks its closing tag.
    pub(super) fn owes_close(&self) -> bool {
        self.closes && !self.closed
    }
}

impl ReplyParser {
    pub(super) fn between_step(&mut self, mut gap: Gap, c: char) {
        if gap.tail.is_empty() && !self.markers.may_begin(c) {
            return self.between_tags(gap, c);
        }
        gap.tail.push(c);
        match self.markers.find(&gap.tail, |marker| !matches!(marker, Marker::Fence)) {
            Found::Beginning => self.state = State::Between(gap),
            Found::Whole(marker, length) => {
                let tail = std::mem::take(&mut gap.tail);
                let (text, rest) = tail.split_at(length);
                self.tag_behind(gap, marker, text);
                self.again(rest);
            }
            Found::No => {
                let tail = std::mem::take(&mut gap.tail);
                let mut rest = tail.chars();
                if let Some(first) = rest.next() {
                    self.between_tags(gap, first);
                }
                self.again(rest.as_str());
            }
        }
    }

    /// A character that begins no tag.
    fn between_tags(&mut self, mut gap: Gap, c: char) {
        if is_blank(c) || matches!(c, ',' | ';' | ']' | '}' | ')') {
            gap.closed |= c == ')' && !self.plan.closes;
            gap.held.push(c);
            self.state = State::Between(gap);
            return;
        }
        let readers = if gap.over || (gap.closed && gap.closes) {
            Vec::new()
        } else {
            self.readers_of_next_call(c, gap.shape)
        };
        if readers.is_empty() {
            self.leave_gap(&gap);
            return self.again(c.encode_utf8(&mut [0; 4]));
        }
        let (bare, follows, behind) = (gap.bare, gap.closes, gap.held.len());
        let mut candidate = Candidate::new(gap.held, readers);
        candidate.follows = follows;
        candidate.bare = bare;
        candidate.behind = behind;
        self.candidate_step(Box::new(candidate), c);
    }

    fn tag_behind(&mut self, mut gap: Gap, marker: Marker, text: &str) {
        let closes = self.plan.closers.iter().any(|closer| closer == text);
        if closes {
            self.report_gap(&gap);
            self.marker_passed();
            gap.held.clear();
            gap.closed = true;
            gap.over = true;
            self.state = State::Between(gap);
            return;
        }
        match marker {
            Marker::CallOpen(_) | Marker::End => {
                self.report_gap(&gap);
                if gap.owes_close() {
                    self.note("missing_end_marker", "the call has no closing tag");
                }
                self.marker_passed();
            }
            _ => self.leave_gap(&gap),
        }
        self.state = State::Text;
        self.on_marker(marker, text);
    }

    /// Neither a closing tag nor another call: the machine is back in text.
    pub(super) fn leave_gap(&mut self, gap: &Gap) {
        if gap.owes_close() {
            self.note("missing_end_marker", "the call has no closing tag");
            self.owed_close = true;
        }
        self.state = State::Text;
        let text = gap.held.trim_start();
        self.again(text.trim_start_matches([']', ')']));
    }

    fn report_gap(&mut self, gap: &Gap) {
        let between = gap.held.trim();
        if !matches!(between, "" | "]" | ")" | ")]") {
            self.note(
                "unbalanced_wrapper",
                &format!("`{between}` between the call and its closing tag was left out"),
            );
        }
    }
}
