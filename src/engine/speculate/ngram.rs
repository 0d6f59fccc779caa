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
    /// has. Within a value two tokens are enough.
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
        let found = if self.takes_longest {
            let lengths = ends.map(|end| (end, repeated(tokens, end)));
            lengths.reduce(|best, other| if other.1 > best.1 { other } else { best })
        } else {
            ends.next().map(|end| (end, most))
        };
        let Some((end, most)) = found.map(|(end, length)| (end, most.min(length))) else {
            return Vec::new();
        };
        let mut guess =
            tokens[end + 1..].iter().copied().chain([next]).take(most).collect::<Vec<_>>();
        // A repetition continues, so the draft is extended by its own beginning.
        let period = guess.len();
        (period..most).for_each(|place| guess.push(guess[place - period]));
        guess
    }
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
        let tokens = [9, 1, 2, 3, 7, 7, 1, 2, 3, 8, 8, 9, 1, 2];
        let text = DraftRequest { sequence: 0, tokens: &tokens, next: 3, most: 3, is_value: false };
        let guess = |drafter: NgramDrafter, most| drafter.guess(&DraftRequest { most, ..text });
        assert_eq!(guess(NgramDrafter::new(2), 3), [8, 8, 9]);
        assert_eq!(guess(NgramDrafter::longest(2), 3), [7, 7, 1]);
        // A draft is no longer than its repetition.
        assert_eq!(guess(NgramDrafter::longest(2), 9), [7, 7, 1, 2]);
        assert_eq!(guess(NgramDrafter::longest(5), 9), Vec::<TokenId>::new());
        let value = DraftRequest { most: 9, is_value: true, ..text };
        assert_eq!(NgramDrafter::longest(5).guess(&value), [7, 7, 1, 2]);
    }
}
