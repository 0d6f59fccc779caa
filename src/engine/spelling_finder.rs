//! Finds the longest of many spellings at its leftmost position in a text.
//!
//! The size of an automaton of whole spellings grows with their bytes, and the time to build it
//! with the square of the longest. A model file may have spellings of any length, so the automaton
//! holds only their first bytes, and a sorted list decides the rest.

use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};

/// The maximum number of bytes of a spelling in the automaton. Real special tokens are shorter.
const MOST_HEAD: usize = 64;
/// The maximum number of states of the automaton, in case a file is hostile.
const MOST_STATES: usize = 1 << 22;

/// Finds spellings. Each is identified by its index.
pub(super) struct SpellingFinder {
    /// The distinct heads of all spellings.
    heads: AhoCorasick,
    /// The meaning of a match, for each head.
    found: Vec<HeadMatch>,
    /// All spellings, sorted by their bytes.
    sorted: Vec<SortedSpelling>,
}

#[derive(Clone, Copy)]
enum HeadMatch {
    /// The head is the spelling with this index, and no longer spelling begins with it.
    Whole(usize),
    /// The head begins longer spellings.
    Head,
}

struct SortedSpelling {
    bytes: Box<[u8]>,
    index: usize,
    /// The longest other spelling that this one begins with, as an index of the list.
    parent: Option<usize>,
}

impl SpellingFinder {
    /// Spellings must not be empty. Of equal spellings, the first one is found.
    pub(super) fn new<'a>(
        spellings: impl Iterator<Item = &'a [u8]>,
    ) -> Result<SpellingFinder, BuildError> {
        let sorted = sort(spellings);
        let most = (MOST_STATES / sorted.len().max(1)).clamp(1, MOST_HEAD);
        let mut heads: Vec<&[u8]> = Vec::new();
        let mut found = Vec::new();
        for SortedSpelling { bytes, index, .. } in &sorted {
            let head = &bytes[..bytes.len().min(most)];
            let whole = head.len() == bytes.len();
            match (heads.last() == Some(&head), found.last_mut()) {
                (true, Some(last)) => *last = HeadMatch::Head,
                _ => {
                    heads.push(head);
                    found.push(if whole { HeadMatch::Whole(*index) } else { HeadMatch::Head });
                }
            }
        }
        let heads = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(heads)?;
        Ok(SpellingFinder { heads, found, sorted })
    }

    /// The first match at or after `from`: its range, and the index of its spelling. If several
    /// spellings begin at that position, the longest wins.
    pub(super) fn find(&self, text: &str, mut from: usize) -> Option<(Range<usize>, usize)> {
        loop {
            let head = self.heads.find(Input::new(text).range(from..))?;
            let start = head.start();
            match self.found[head.pattern().as_usize()] {
                HeadMatch::Whole(index) => return Some((head.range(), index)),
                HeadMatch::Head => {
                    if let Some(spelling) = self.longest(&text.as_bytes()[start..]) {
                        return Some((start..start + spelling.bytes.len(), spelling.index));
                    }
                    from = start + 1;
                }
            }
        }
    }

    /// The longest spelling that a text begins with.
    fn longest(&self, text: &[u8]) -> Option<&SortedSpelling> {
        let after = self.sorted.partition_point(|spelling| *spelling.bytes <= *text);
        let mut place = after.checked_sub(1)?;
        // Every spelling that the text begins with is this one or a prefix of it.
        let last = &self.sorted[place].bytes;
        let common = last.iter().zip(text).take_while(|(a, b)| a == b).count();
        while self.sorted[place].bytes.len() > common {
            place = self.sorted[place].parent?;
        }
        Some(&self.sorted[place])
    }
}

/// The distinct spellings, sorted by their bytes.
fn sort<'a>(spellings: impl Iterator<Item = &'a [u8]>) -> Vec<SortedSpelling> {
    let mut indexed: Vec<(&[u8], usize)> =
        spellings.enumerate().map(|(index, bytes)| (bytes, index)).collect();
    indexed.sort_unstable();
    indexed.dedup_by_key(|(bytes, _)| *bytes);
    let mut sorted: Vec<SortedSpelling> = Vec::with_capacity(indexed.len());
    for (bytes, index) in indexed {
        let mut parent = sorted.len().checked_sub(1);
        while let Some(place) = parent
            && !bytes.starts_with(&sorted[place].bytes)
        {
            parent = sorted[place].parent;
        }
        sorted.push(SortedSpelling { bytes: bytes.into(), index, parent });
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the matches in a text with a search for all spellings at each position.
    #[track_caller]
    fn check(spellings: &[String], text: &str) {
        let finder =
            SpellingFinder::new(spellings.iter().map(String::as_bytes)).expect("an automaton");
        let mut from = 0;
        loop {
            let expected = (from..text.len()).find_map(|start| {
                let here = spellings.iter().enumerate();
                let here = here.filter(|(_, s)| text.as_bytes()[start..].starts_with(s.as_bytes()));
                let longest = here.max_by_key(|(index, s)| (s.len(), std::cmp::Reverse(*index)))?;
                Some((start..start + longest.1.len(), longest.0))
            });
            let found = finder.find(text, from);
            assert_eq!(found, expected, "from {from} in {} bytes", text.len());
            let Some((range, _)) = found else { return };
            from = range.end;
        }
    }

    #[test]
    fn the_leftmost_longest_spelling_is_found_whatever_its_length() {
        let x = |count: usize| "x".repeat(count);
        let spellings = [
            "<s>".to_owned(),
            "<s><s>".to_owned(),
            format!("<{}>", x(100)),
            format!("<{}>", x(200)),
            format!("<{}", x(64)),
            format!("<{}>y", x(100)),
            format!("<{}>", x(2000)),
            "<s>".to_owned(),
            x(62),
        ];
        for length in [0, 3, 61, 62, 63, 64, 65, 100, 199, 200, 201, 2000, 2001] {
            check(&spellings, &format!("a<{}>y<s><s><s>", x(length)));
            check(&spellings, &format!("<s<{}<s>{}", x(length), x(length)));
        }
        check(&spellings, "");
        check(&spellings[..1], "<s><s");
    }

    #[test]
    fn many_long_spellings_are_searched_at_once() {
        let long = |number: usize| format!("<|{number:05}{}|>", "long".repeat(250));
        let spellings: Vec<String> = (0..10_000).map(long).collect();
        let finder =
            SpellingFinder::new(spellings.iter().map(String::as_bytes)).expect("an automaton");
        let text = format!("{}<|04711{}", long(9_999), "long".repeat(2_000));
        assert_eq!(finder.find(&text, 0), Some((0..1009, 9_999)));
        assert_eq!(finder.find(&text, 1), None);
    }
}
