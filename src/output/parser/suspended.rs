//! A complete call inside reasoning, held until the reasoning closes or the text ends.

use super::marker_set::Marker;
use super::{ParserState, ReplyParser};

impl ReplyParser {
    /// Reads a character. `tail` holds the start of what may close the reasoning, `held` all text
    /// before it.
    pub(super) fn suspended_step(&mut self, mut held: String, mut tail: String, c: char) {
        tail.push(c);
        let close = self.reasoning.as_ref().map_or("", |tags| &*tags.close);
        let ends = self.channels.as_ref().map_or(&[][..], |channels| &*channels.ends);
        let may_close =
            |tail: &str| close.starts_with(tail) || ends.iter().any(|end| end.starts_with(tail));
        while !tail.is_empty() && !may_close(&tail) {
            held.push(tail.remove(0));
        }
        let marker = match &*tail {
            "" => None,
            tail if tail == close => Some(Marker::ReasoningClose),
            tail => ends.iter().any(|end| end == tail).then_some(Marker::End),
        };
        let Some(marker) = marker else {
            self.state = ParserState::Suspended { held, tail };
            return;
        };
        self.push_text(&held);
        self.state = ParserState::Text;
        self.on_marker(marker, &tail);
    }
}
