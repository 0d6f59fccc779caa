//! The markers of a format, and how they are found in text that comes one character at a time.

use super::FENCE;
use super::call_patterns::CallPatterns;
use crate::output::format::Format;

/// The meaning of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// An opening tag of a call, by its index in [`CallPatterns::opening_tags`].
    CallOpen(usize),
    CallClose,
    ReasoningOpen,
    ReasoningClose,
    /// A tag around visible text.
    Wrapper,
    /// The end of a turn or a message.
    End,
    /// The start of a message.
    Turn,
    /// The start or continuation of a message's header.
    Header,
    Fence,
}

/// How held text matches the markers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkerMatch {
    /// It starts with this marker, of this number of bytes. No longer marker can match.
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
    /// The first characters of all markers. Few characters of a reply are among them.
    firsts: Vec<char>,
}

impl MarkerSet {
    /// The markers of a format. Of two with the same text the first counts. `reasoning` says
    /// whether reasoning is separated from content, `json` whether the reply is JSON.
    pub(super) fn new(
        format: &Format,
        patterns: &CallPatterns,
        reasoning: bool,
        json: bool,
    ) -> MarkerSet {
        let mut markers = MarkerSet::default();
        let tags = format.reasoning.as_ref();
        if let Some(tags) = tags.filter(|_| reasoning) {
            markers.add(Marker::ReasoningOpen, &tags.open);
            markers.add(Marker::ReasoningClose, &tags.close);
        }
        for (index, opening) in patterns.opening_tags.iter().enumerate() {
            markers.add(Marker::CallOpen(index), &opening.tag);
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
        // Reasoning that is not separated keeps its tags.
        let in_kept_tag = |end: &str| {
            !reasoning
                && tags.is_some_and(|tags| tags.open.contains(end) || tags.close.contains(end))
        };
        for end in format.ends.iter().filter(|end| !in_kept_tag(end)) {
            markers.add(Marker::End, end);
        }
        if format.fenced_calls || json {
            markers.add(Marker::Fence, FENCE);
        }
        for closing in patterns.closing_tags.iter().filter(|closing| closing.len() > 2) {
            markers.add(Marker::CallClose, closing);
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

    /// The marker with exactly this text.
    pub(super) fn exact(&self, held: &str) -> Option<Marker> {
        self.list.iter().find(|(_, text)| text == held).map(|(marker, _)| *marker)
    }

    /// Matches held text with the `active` markers. The longest one wins.
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
