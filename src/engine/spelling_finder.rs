//! Finds the longest of many spellings at its leftmost position in a text.
//!
//! The size of an automaton of whole spellings grows with their bytes, and the time to build it
//! with the squares of their number and of the longest. A model file may have any number of spellings
//! of any length, so the automaton holds only their first bytes, fewer if there are many, and a
//! sorted list decides the rest.

use std::ops::Range;

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};

use super::interrupt::Interrupt;
use crate::error::Result;

/// The maximum number of bytes of a spelling in the automaton. Real special tokens are shorter.
const MAX_HEAD: usize = 64;
/// The maximum number of distinct heads, unless heads are a single byte.
const MAX_HEADS: usize = 4096;
/// The maximum number of states of the automaton, in case a file is hostile.
const MAX_STATES: usize = 1 << 22;
/// After how many heads without a spelling the interrupt is checked.
const CHECK_EVERY: usize = 4096;

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
    /// Another spelling that this one begins with, or this one if it has no parent. With these
    /// jumps, a search for a parent of some length takes logarithmic time (skew-binary jump
    /// pointers, Myers 1983).
    jump: usize,
    /// The number of parents.
    depth: usize,
}

impl SpellingFinder {
    /// Spellings must not be empty. Of equal spellings, the first one is found.
    pub(super) fn new<'a>(
        spellings: impl Iterator<Item = &'a [u8]>,
    ) -> std::result::Result<SpellingFinder, BuildError> {
        let sorted = sort(spellings);
        let mut most = (MAX_STATES / sorted.len().max(1)).clamp(1, MAX_HEAD);
        while most > 1 && count_heads(&sorted, most) > MAX_HEADS {
            most /= 2;
        }
        let mut heads: Vec<&[u8]> = Vec::new();
        let mut found = Vec::new();
        for SortedSpelling { bytes, index, .. } in &sorted {
            let head = head(bytes, most);
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
    ///
    /// # Errors
    /// `CANCELLED` when `interrupt` asks for it during a long search.
    pub(super) fn find(
        &self,
        text: &str,
        mut from: usize,
        interrupt: &Interrupt,
    ) -> Result<Option<(Range<usize>, usize)>> {
        let mut misses = 0_usize;
        while let Some(head) = self.heads.find(Input::new(text).range(from..)) {
            let start = head.start();
            match self.found[head.pattern().as_usize()] {
                HeadMatch::Whole(index) => return Ok(Some((head.range(), index))),
                HeadMatch::Head => {
                    if let Some(spelling) = self.longest(&text.as_bytes()[start..]) {
                        let range = start..start + spelling.bytes.len();
                        return Ok(Some((range, spelling.index)));
                    }
                    from = start + 1;
                    misses += 1;
                    if misses.is_multiple_of(CHECK_EVERY) {
                        interrupt.check()?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// The longest spelling that a text begins with.
    fn longest(&self, text: &[u8]) -> Option<&SortedSpelling> {
        let after = self.sorted.partition_point(|spelling| *spelling.bytes <= *text);
        let mut place = after.checked_sub(1)?;
        // Every spelling that the text begins with is this one or a prefix of it.
        let common = common_prefix(&self.sorted[place].bytes, text);
        let is_longer = |place: usize| self.sorted[place].bytes.len() > common;
        while is_longer(place) {
            let SortedSpelling { parent, jump, .. } = self.sorted[place];
            let parent = parent?;
            place = if is_longer(jump) { jump } else { parent };
        }
        Some(&self.sorted[place])
    }
}

/// The length of the common prefix of two texts.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const AT_ONCE: usize = 64;
    let alike =
        a.chunks_exact(AT_ONCE).zip(b.chunks_exact(AT_ONCE)).take_while(|(a, b)| a == b).count()
            * AT_ONCE;
    alike + a[alike..].iter().zip(&b[alike..]).take_while(|(a, b)| a == b).count()
}

fn head(spelling: &[u8], most: usize) -> &[u8] {
    &spelling[..spelling.len().min(most)]
}

fn count_heads(sorted: &[SortedSpelling], most: usize) -> usize {
    sorted.chunk_by(|a, b| head(&a.bytes, most) == head(&b.bytes, most)).count()
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
        let (jump, depth) = match parent {
            Some(parent) => (next_jump(&sorted, parent), sorted[parent].depth + 1),
            None => (sorted.len(), 0),
        };
        sorted.push(SortedSpelling { bytes: bytes.into(), index, parent, jump, depth });
    }
    sorted
}

/// The jump of a spelling with this parent. Two jumps of equal length are joined.
fn next_jump(sorted: &[SortedSpelling], parent: usize) -> usize {
    let first = sorted[parent].jump;
    let second = sorted[first].jump;
    let depth = |place: usize| sorted[place].depth;
    if depth(parent) - depth(first) == depth(first) - depth(second) { second } else { parent }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
            let found = finder.find(text, from, &Interrupt::default()).unwrap();
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
        let find = |from| finder.find(&text, from, &Interrupt::default()).unwrap();
        assert_eq!(find(0), Some((0..1009, 9_999)));
        assert_eq!(find(1), None);
    }

    #[test]
    fn spellings_that_begin_with_each_other_are_found() {
        let mut spellings: Vec<String> =
            (1..150).map(|count| format!("{}{}", "a".repeat(64), "A".repeat(count))).collect();
        for length in [1, 3, 60, 62, 63, 66, 70, 90, 200] {
            spellings.push("a".repeat(length));
            spellings.push(format!("{}b{}", "a".repeat(length), "A".repeat(length)));
        }
        for from in [0, 40, 63, 64, 65, 66, 67, 80] {
            for count in [0, 1, 2, 7, 80, 148, 149, 150, 200] {
                let text = format!("{}{}b{}", "a".repeat(from), "A".repeat(count), "A".repeat(90));
                check(&spellings, &text);
            }
        }
        check(&spellings[..149], &"a".repeat(300));
    }

    #[test]
    fn many_spellings_share_few_heads() {
        let numbers = (0..100_000).map(|number| format!(" {number}"));
        let letters = (0..26_u8).flat_map(|a| (0..26_u8).map(move |b| [b'a' + a, b'a' + b]));
        let letters = letters.map(|pair| format!("<|speech_{}|>", String::from_utf8_lossy(&pair)));
        let spellings: Vec<String> = numbers.chain(letters).collect();
        let finder =
            SpellingFinder::new(spellings.iter().map(String::as_bytes)).expect("an automaton");
        assert!(finder.heads.patterns_len() <= MAX_HEADS, "{}", finder.heads.patterns_len());
        check(&spellings, " 12 99999 100000<|speech_zz|><|speech_z 4x 0");
    }

    /// A spelling for each number of capital letters after the same head.
    fn nested(count: usize) -> Vec<String> {
        (1..=count).map(|count| format!("{}{}", "a".repeat(64), "A".repeat(count))).collect()
    }

    #[test]
    fn parents_of_a_spelling_are_skipped() {
        // One step per parent would take minutes.
        let spellings = nested(6_000);
        let finder =
            SpellingFinder::new(spellings.iter().map(String::as_bytes)).expect("an automaton");
        let text = "a".repeat(4_000_000);
        assert_eq!(finder.find(&text, 0, &Interrupt::default()).unwrap(), None);
        let most = finder.sorted.iter().map(|spelling| {
            let jumps = std::iter::successors(Some(spelling), |spelling| {
                spelling.parent.map(|_| &finder.sorted[spelling.jump])
            });
            jumps.count()
        });
        assert!(most.max() < Some(40));
    }

    #[test]
    fn a_search_without_a_match_is_interrupted() {
        let spellings = nested(2);
        let finder =
            SpellingFinder::new(spellings.iter().map(String::as_bytes)).expect("an automaton");
        let interrupt = Interrupt::default();
        interrupt.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        let text = "a".repeat(CHECK_EVERY + 64);
        let error = finder.find(&text, 0, &interrupt).unwrap_err();
        assert_eq!(error.code(), crate::error::Code::Cancelled);
        assert_eq!(finder.find("<s>", 0, &interrupt).unwrap(), None);
    }
}
