//! Prompt lookup: drafts the tokens that followed an earlier occurrence of the last tokens.

use super::drafter::{DraftRequest, Drafter};
use crate::engine::TokenId;

/// The maximum length of a repetition that is compared.
const MAX_COMPARED: usize = 32;
/// The shortest repetition that is continued within a value, if the longest one is looked for.
const MIN_IN_VALUE: usize = 2;

/// Searches the earlier tokens for the last ones. Needs no decode.
#[derive(Debug)]
pub struct NgramDrafter {
    length: usize,
    takes_longest: bool,
}

impl NgramDrafter {
    /// Continues the latest occurrence of the last `length` tokens; at least 1.
    pub fn new(length: usize) -> Self {
        NgramDrafter { length: length.max(1), takes_longest: false }
    }

    /// Continues the longest repetition of at least `length` tokens, by at most as many tokens as it
    /// has, and only as far as the others continue alike that are at least half as long. Within a
    /// value two tokens are enough.
    pub fn longest(length: usize) -> Self {
        NgramDrafter { takes_longest: true, ..NgramDrafter::new(length) }
    }

    /// The tokens that followed an earlier occurrence of the last tokens.
    fn guess(&self, wanted: &DraftRequest) -> Vec<TokenId> {
        let DraftRequest { tokens, next, most, is_value, .. } = *wanted;
        let shortest = if is_value && self.takes_longest { MIN_IN_VALUE } else { self.length };
        // The key is the end of `tokens` followed by `next`. The draft starts after the last token
        // of an occurrence.
        let Some(start) = (tokens.len() + 1).checked_sub(shortest.min(self.length)) else {
            return Vec::new();
        };
        let key = &tokens[start..];
        let is_here = |end: &usize| tokens[*end] == next && tokens[end - key.len()..*end] == *key;
        let mut ends = (key.len()..tokens.len()).rev().filter(is_here);
        if !self.takes_longest {
            return ends.next().map_or_else(Vec::new, |end| continued(wanted, &[end], most));
        }
        let repetitions = ends.map(|end| (end, repeated(tokens, end))).collect::<Vec<_>>();
        let longest = repetitions.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let long = repetitions.iter().filter(|(_, length)| 2 * length >= longest);
        let ends = long.map(|(end, _)| *end).collect::<Vec<_>>();
        continued(wanted, &ends, most.min(longest))
    }
}

/// What follows all of these occurrences, which end at `ends`: at most `most` tokens, up to the
/// first in which they differ. A draft that reaches its own beginning continues with itself.
fn continued(wanted: &DraftRequest, ends: &[usize], most: usize) -> Vec<TokenId> {
    let DraftRequest { tokens, next, .. } = *wanted;
    let mut guess = Vec::new();
    while guess.len() < most {
        let following = |end: &usize| match end + 1 + guess.len() {
            place if place < tokens.len() => tokens[place],
            place if place == tokens.len() => next,
            place => guess[place - tokens.len() - 1],
        };
        let mut tokens = ends.iter().map(following);
        match tokens.next() {
            Some(token) if tokens.all(|other| other == token) => guess.push(token),
            _ => break,
        }
    }
    guess
}

/// The length of the repetition whose last token is at `end`, and is the next token of `tokens`.
fn repeated(tokens: &[TokenId], end: usize) -> usize {
    let before = tokens[..end].iter().rev().zip(tokens.iter().rev());
    1 + before.take(MAX_COMPARED).take_while(|(one, other)| one == other).count()
}

impl Drafter for NgramDrafter {
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        _: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        wanted.iter().map(|wanted| self.guess(wanted)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_occurrence_is_continued() {
        // The length of the key, the tokens, the next token, the limit, and the expected draft.
        type NgramCase<'a> = (usize, &'a [TokenId], TokenId, usize, &'a [TokenId]);
        let cases: &[NgramCase] = &[
            (2, &[1, 2, 3, 4, 9, 1], 2, 8, &[3, 4, 9, 1, 2, 3, 4, 9]),
            (2, &[1, 2, 3, 4, 9, 1], 2, 2, &[3, 4]),
            (2, &[1, 2, 3, 1, 2, 5, 1], 2, 1, &[5]),
            (2, &[1, 2, 3, 4, 9, 9], 2, 8, &[]),
            // A run of one token continues.
            (2, &[7, 7], 7, 4, &[7, 7, 7, 7]),
            (1, &[5, 6], 5, 4, &[6, 5, 6, 5]),
            (1, &[], 5, 4, &[]),
            (3, &[1], 2, 4, &[]),
        ];
        for (length, tokens, next, most, guess) in cases {
            let wanted =
                DraftRequest { sequence: 0, tokens, next: *next, most: *most, is_value: true };
            assert_eq!(NgramDrafter::new(*length).guess(&wanted), *guess, "{tokens:?} {next}");
        }
    }

    #[test]
    fn the_longest_repetition_is_continued() {
        let tokens = [6, 5, 4, 9, 1, 2, 3, 7, 7, 1, 2, 3, 8, 8, 6, 5, 4, 9, 1, 2];
        let text = DraftRequest { sequence: 0, tokens: &tokens, next: 3, most: 3, is_value: false };
        let guess = |drafter: NgramDrafter, most| drafter.guess(&DraftRequest { most, ..text });
        assert_eq!(guess(NgramDrafter::new(2), 3), [8, 8, 6]);
        assert_eq!(guess(NgramDrafter::longest(2), 3), [7, 7, 1]);
        // A draft is no longer than its repetition.
        let whole = [7, 7, 1, 2, 3, 8, 8];
        assert_eq!(guess(NgramDrafter::longest(2), 9), whole);
        assert_eq!(guess(NgramDrafter::longest(8), 9), Vec::<TokenId>::new());
        let value = DraftRequest { most: 9, is_value: true, ..text };
        assert_eq!(NgramDrafter::longest(8).guess(&value), whole);
    }

    #[test]
    fn a_draft_ends_where_repetitions_of_like_length_differ() {
        // After `1 2 3 4` came first 5 6 7, then 5 6 8.
        let tokens = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 8];
        let guess = |before: &[TokenId]| {
            let tokens = [&tokens[..], before].concat();
            let wanted =
                DraftRequest { sequence: 0, tokens: &tokens, next: 4, most: 8, is_value: false };
            NgramDrafter::longest(3).guess(&wanted)
        };
        assert_eq!(guess(&[1, 2, 3]), [5, 6]);
        assert_eq!(guess(&[9, 1, 2, 3]), [5, 6], "four tokens are at least half of five");
        let longer = [5, 6, 7, 8, 9, 1, 2, 3];
        assert_eq!(guess(&longer), [5, 6, 8, 5, 6, 7, 8, 9], "four are less than half of nine");
    }
}
