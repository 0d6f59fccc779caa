//! Finds markers in text that comes one character at a time.

use super::Marker;

/// What the text held so far is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It begins with this marker, so many bytes long, and no longer one can come of it.
    Whole(Marker, usize),
    /// It may become a marker, or a longer one.
    Beginning,
    /// Its first character is text.
    No,
}

/// The markers of a format.
#[derive(Debug, Default)]
pub(super) struct Markers {
    list: Vec<(Marker, String)>,
    /// First characters: nearly every character of a reply is none of them.
    firsts: Vec<char>,
}

impl Markers {
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
    pub(super) fn find(&self, held: &str, active: impl Fn(Marker) -> bool) -> Found {
        let mut longest: Option<(Marker, usize)> = None;
        for (marker, text) in self.list.iter().filter(|(marker, _)| active(*marker)) {
            if text.len() > held.len() && text.starts_with(held) {
                return Found::Beginning;
            }
            if held.starts_with(text.as_str()) && longest.is_none_or(|(_, length)| text.len() > length) {
                longest = Some((*marker, text.len()));
            }
        }
        longest.map_or(Found::No, |(marker, length)| Found::Whole(marker, length))
    }
}
