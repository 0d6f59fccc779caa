//! The markers of a format, and how they are found in text that arrives one character at a time.

use super::call_patterns::{CallPatterns, foreign_openings};
use crate::output::format::{FENCE, Format};

/// The meaning of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// An opening tag of a call, by its index in [`CallPatterns::opening_tags`].
    CallOpen(usize),
    /// An opening tag of a call of another family, by its index in [`foreign_openings`].
    ForeignOpen(usize),
    CallClose,
    ReasoningOpen,
    ReasoningClose,
    /// The opening tag of visible text.
    WrapperOpen,
    /// Another tag around visible text.
    Wrapper,
    /// The end of a turn or a message.
    End,
    /// The start of a message.
    Turn,
    /// The start of a message of another role.
    OtherTurn,
    /// The start or continuation of a message's header.
    Header,
    Fence,
}

impl Marker {
    const KINDS: [Marker; 12] = [
        Marker::CallOpen(0),
        Marker::ForeignOpen(0),
        Marker::CallClose,
        Marker::ReasoningOpen,
        Marker::ReasoningClose,
        Marker::WrapperOpen,
        Marker::Wrapper,
        Marker::End,
        Marker::Turn,
        Marker::OtherTurn,
        Marker::Header,
        Marker::Fence,
    ];

    /// The index of its kind in [`KINDS`](Self::KINDS).
    fn kind(self) -> usize {
        let same = |kind: &Marker| std::mem::discriminant(kind) == std::mem::discriminant(&self);
        Marker::KINDS.iter().position(same).unwrap_or_default()
    }
}

/// How held text matches the markers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MarkerMatch {
    /// It starts with this marker, which has this number of bytes. No longer marker can match.
    Full(Marker, usize),
    /// It may become a marker, or a longer one.
    Prefix,
    /// Its first character is text.
    None,
}

/// The markers of a format as a tree of bytes. Matching takes time proportional to the text's
/// length, however many markers there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkerSet {
    list: Vec<(Marker, String)>,
    nodes: Vec<TrieNode>,
    /// The first characters of all markers, with one bit per ASCII character, and a list of the
    /// others. Few characters of a reply are among them.
    ascii_firsts: u128,
    firsts: Vec<char>,
    /// The first characters of markers that count only at the start of a line.
    line_firsts: Vec<char>,
    /// Ends of turns that also open calls of another family, such as `<|python_tag|>`. They end a
    /// turn unless a call follows.
    shadowed_ends: Vec<String>,
}

/// One byte of a marker; the parents hold the bytes before it. Index 0 means no node: the first
/// node has index 0, but is neither a child nor a sibling of another node.
#[derive(Debug, Clone, Copy)]
struct TrieNode {
    byte: u8,
    child: u32,
    sibling: u32,
    /// The marker that ends here, as its list index plus one. 0 if none ends here.
    marker: u32,
    /// The kinds of the longer markers, one bit per kind.
    longer: u16,
}

impl MarkerSet {
    /// The markers of a format. If two have the same text, the first counts. `reasoning` says
    /// whether reasoning is separated from content.
    pub(crate) fn new(format: &Format, patterns: &CallPatterns, reasoning: bool) -> MarkerSet {
        let mut markers = MarkerSet::default();
        let tags = format.reasoning.as_ref();
        if let Some(tags) = tags.filter(|_| reasoning) {
            markers.add(Marker::ReasoningOpen, &tags.open);
            markers.add(Marker::ReasoningClose, &tags.close);
            for pair in &tags.others {
                markers.add(Marker::ReasoningOpen, &pair.open);
                markers.add(Marker::ReasoningClose, &pair.close);
            }
        }
        markers.add_openings(patterns);
        for wrapper in &format.wrappers {
            markers.add(Marker::WrapperOpen, &wrapper.open);
            markers.add(Marker::Wrapper, &wrapper.close);
        }
        markers.add(Marker::Wrapper, &format.repeated_header);
        if let Some(channels) = &format.channels {
            markers.add(Marker::Turn, &channels.turn);
            markers.add(Marker::Header, &channels.header);
            markers.add(Marker::OtherTurn, channels.message());
            for end in &channels.ends {
                markers.add(Marker::End, end);
            }
        }
        // If reasoning is not separated, its tags stay in the text.
        let in_kept_tag = |end: &str| {
            !reasoning
                && tags.is_some_and(|tags| tags.open.contains(end) || tags.close.contains(end))
        };
        let opens_foreign = |end: &str| foreign_openings().iter().any(|other| other.tag == end);
        for end in format.ends.iter().filter(|end| !in_kept_tag(end)) {
            if opens_foreign(end) && markers.exact(end).is_none() {
                markers.shadowed_ends.push(end.to_string());
            } else {
                markers.add(Marker::End, end);
            }
        }
        markers.add_closings(patterns);
        markers.add(Marker::Fence, FENCE);
        markers.add_foreign();
        markers
    }

    /// The markers of replies without a format: those of calls of any family.
    pub(crate) fn foreign() -> MarkerSet {
        let mut markers = MarkerSet::default();
        markers.add(Marker::Fence, FENCE);
        markers.add_foreign();
        markers
    }

    fn add(&mut self, marker: Marker, text: &str) {
        let Some(first) = text.chars().next().filter(|_| self.exact(text).is_none()) else {
            return;
        };
        let firsts = match marker {
            // A word is likely in prose.
            Marker::ForeignOpen(_) if first.is_ascii_alphanumeric() => &mut self.line_firsts,
            _ => {
                self.ascii_firsts |= ascii_bit(first);
                &mut self.firsts
            }
        };
        if !firsts.contains(&first) {
            firsts.push(first);
        }
        let end = self.insert(text.as_bytes(), 1 << marker.kind());
        self.list.push((marker, text.to_owned()));
        self.nodes[end].marker = self.list.len() as u32;
    }

    /// Returns the node of a text, which must not be empty, and creates missing nodes. `kind` is
    /// added to the kinds of longer markers of its parents.
    fn insert(&mut self, text: &[u8], kind: u16) -> usize {
        let mut at = self.child(None, text[0]).unwrap_or_else(|| self.push_node(None, text[0]));
        for byte in &text[1..] {
            self.nodes[at].longer |= kind;
            at = match self.child(Some(at), *byte) {
                Some(child) => child,
                None => self.push_node(Some(at), *byte),
            };
        }
        at
    }

    fn push_node(&mut self, parent: Option<usize>, byte: u8) -> usize {
        let at = self.nodes.len();
        let mut node = TrieNode { byte, child: 0, sibling: 0, marker: 0, longer: 0 };
        match parent {
            Some(parent) => {
                node.sibling = self.nodes[parent].child;
                self.nodes[parent].child = at as u32;
            }
            // The first bytes of all markers are siblings of the first node.
            None if at > 0 => {
                node.sibling = self.nodes[0].sibling;
                self.nodes[0].sibling = at as u32;
            }
            None => {}
        }
        self.nodes.push(node);
        at
    }

    fn child(&self, parent: Option<usize>, byte: u8) -> Option<usize> {
        let mut at = match parent {
            Some(parent) => match self.nodes[parent].child {
                0 => return None,
                child => child as usize,
            },
            None => 0,
        };
        loop {
            let node = self.nodes.get(at)?;
            if node.byte == byte {
                return Some(at);
            }
            if node.sibling == 0 {
                return None;
            }
            at = node.sibling as usize;
        }
    }

    pub(crate) fn may_begin(&self, c: char) -> bool {
        match ascii_bit(c) {
            0 => self.firsts.contains(&c),
            bit => self.ascii_firsts & bit != 0,
        }
    }

    /// The length of the plain text at the start of `text`. Plain text consists of words, spaces
    /// within a line and punctuation, begins no marker and no call, and ends with a word or
    /// punctuation.
    pub(crate) fn plain_length(&self, text: &str) -> usize {
        let stops = self.ascii_firsts | ascii_bit('{') | ascii_bit('[') | ascii_bit('`');
        let (mut end, bytes) = (0, text.as_bytes());
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b' ' if stops & ascii_bit(' ') == 0 => {}
                b'!'..=b'~' if stops & (1 << byte) == 0 => end = at + 1,
                _ => break,
            }
        }
        end
    }

    /// Whether the character may begin a marker that counts only at the start of a line.
    pub(crate) fn may_begin_line(&self, c: char) -> bool {
        self.line_firsts.contains(&c)
    }

    /// Whether an opening of another family's calls also ends turns.
    pub(crate) fn is_shadowed_end(&self, text: &str) -> bool {
        self.shadowed_ends.iter().any(|end| end == text)
    }

    /// The marker with exactly this text.
    pub(crate) fn exact(&self, held: &str) -> Option<Marker> {
        let mut at = None;
        for byte in held.bytes() {
            at = Some(self.child(at, byte)?);
        }
        self.marker_at(at?)
    }

    fn marker_at(&self, node: usize) -> Option<Marker> {
        let index = (self.nodes[node].marker as usize).checked_sub(1)?;
        Some(self.list[index].0)
    }

    /// Matches held text with the markers that `active` accepts. The longest one wins.
    pub(crate) fn find(&self, held: &str, active: impl Fn(Marker) -> bool) -> MarkerMatch {
        let mut longest = MarkerMatch::None;
        let mut at = None;
        for (index, byte) in held.bytes().enumerate() {
            let Some(node) = self.child(at, byte) else { return longest };
            if let Some(marker) = self.marker_at(node).filter(|marker| active(*marker)) {
                longest = MarkerMatch::Full(marker, index + 1);
            }
            at = Some(node);
        }
        let longer = at.map_or(0, |node| self.nodes[node].longer);
        let mut kinds = (0..16).filter(|kind| longer & (1 << kind) != 0);
        match kinds.any(|kind| active(Marker::KINDS[kind])) {
            true => MarkerMatch::Prefix,
            false => longest,
        }
    }

    /// The markers for replies in which another family's patterns are in use.
    pub(crate) fn with_calls_of(&self, patterns: &CallPatterns) -> MarkerSet {
        let mut markers =
            MarkerSet { shadowed_ends: self.shadowed_ends.clone(), ..MarkerSet::default() };
        for (marker, text) in &self.list {
            let of_text = matches!(
                marker,
                Marker::CallOpen(_) | Marker::CallClose | Marker::ForeignOpen(_) | Marker::Fence
            );
            if !of_text {
                markers.add(*marker, text);
            }
        }
        markers.add_openings(patterns);
        markers.add_closings(patterns);
        markers
    }

    fn add_openings(&mut self, patterns: &CallPatterns) {
        for (index, opening) in patterns.opening_tags.iter().enumerate() {
            self.add(Marker::CallOpen(index), &opening.tag);
        }
    }

    fn add_closings(&mut self, patterns: &CallPatterns) {
        for closing in patterns.closing_tags.iter().filter(|closing| closing.len() > 2) {
            self.add(Marker::CallClose, closing);
        }
    }

    /// Adds the opening tags of other families' calls. Tags that the format also has keep their own
    /// meaning.
    fn add_foreign(&mut self) {
        for (index, opening) in foreign_openings().iter().enumerate() {
            self.add(Marker::ForeignOpen(index), &opening.tag);
        }
    }
}

/// The bit of an ASCII character. 0 for any other.
fn ascii_bit(c: char) -> u128 {
    if c.is_ascii() { 1 << u32::from(c) } else { 0 }
}
