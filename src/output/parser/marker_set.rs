//! Finds markers in text that comes one character at a time.

use super::call_patterns::CallPatterns;
use super::{FENCE, Marker};
use crate::output::format::{Format, ReasoningTags};

/// What the text held so far is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkerMatch {
    /// It begins with this marker, so many bytes long, and no longer one can come of it.
    Full(Marker, usize),
    /// It may become a marker, or a longer one.
    Prefix,
    /// Its first character is text.
    None,
}

/// The markers of a format.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkerSet {
    list: Vec<(Marker, String)>,
    /// First characters: nearly every character of a reply is none of them.
    firsts: Vec<char>,
}

impl MarkerSet {
    /// The markers that text may hold. Of two that are spelled alike the first counts.
    pub(super) fn of(
        format: &Format,
        patterns: &CallPatterns,
        reasoning: Option<&ReasoningTags>,
        unsplit_reasoning: Option<&ReasoningTags>,
        json: bool,
    ) -> MarkerSet {
        let mut markers = MarkerSet::default();
        if let Some(tags) = reasoning {
            markers.add(Marker::ReasoningOpen, &tags.open);
            markers.add(Marker::ReasoningClose, &tags.close);
        }
        for (index, opener) in patterns.opening_tags.iter().enumerate() {
            markers.add(Marker::CallOpen(index), &opener.tag);
        }
        for wrapper in &format.wrappers {
            markers.add(Marker::Wrapper, &wrapper.open);
            markers.add(Marker::Wrapper, &wrapper.close);
        }
        if let Some(channels) = &format.channels {
            markers.add(Marker::Turn, &channels.turn);
            markers.add(Marker::Header, &channels.header);
            for end in &channels.ends {
                markers.add(Marker::End, end);
            }
        }
        let tagged = |end: &str| {
            unsplit_reasoning
                .is_some_and(|tags| tags.open.contains(end) || tags.close.contains(end))
        };
        for end in format.ends.iter().filter(|end| !tagged(end)) {
            markers.add(Marker::End, end);
        }
        if format.fenced_calls || json {
            markers.add(Marker::Fence, FENCE);
        }
        for closer in patterns.closing_tags.iter().filter(|closer| closer.len() > 2) {
            markers.add(Marker::CallClose, closer);
        }
        markers
    }

    pub(super) fn add(&mut self, marker: Marker, text: &str) {
        let Some(first) = text.chars().next() else { return };
        if !self.firsts.contains(&first) {
            self.firsts.push(first);
        }
        if !self.list.iter().any(|(_, known)| known == text) {
            self.list.push((marker, text.to_owned()));
        }
    }

    pub(super) fn may_begin(&self, c: char) -> bool {
        self.firsts.contains(&c)
    }

    /// The marker that is spelled exactly so.
    pub(super) fn exact(&self, held: &str) -> Option<Marker> {
        self.list.iter().find(|(_, text)| text == held).map(|(marker, _)| *marker)
    }

    /// The longest marker wins; `active` says which ones count here.
    pub(super) fn find(&self, held: &str, active: impl Fn(Marker) -> bool) -> MarkerMatch {
        let mut longest: Option<(Marker, usize)> = None;
        for (marker, text) in self.list.iter().filter(|(marker, _)| active(*marker)) {
            if text.len() > held.len() && text.starts_with(held) {
                return MarkerMatch::Prefix;
            }
            if held.starts_with(text.as_str())
                && longest.is_none_or(|(_, length)| text.len() > length)
            {
                longest = Some((*marker, text.len()));
            }
        }
        longest.map_or(MarkerMatch::None, |(marker, length)| MarkerMatch::Full(marker, length))
    }
}
