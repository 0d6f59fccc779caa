//! What drafters with a KV cache of their own share: drafts that grow by one token with each batch,
//! and room in the cache.

use super::drafter::DraftRequest;
use crate::engine::backend::{BatchEntry, TokenId};
use crate::error::Result;

/// A draft ends before a token that is less likely than this.
const MIN_PROBABILITY: f32 = 0.5;

/// Drafts of several jobs that grow together.
pub(super) struct Guesses {
    /// One for each request.
    pub(super) drafts: Vec<Vec<TokenId>>,
    growing: Vec<Guess>,
}

/// A draft that grows.
struct Guess {
    /// The index of its request.
    place: usize,
    sequence: usize,
    most: usize,
    /// The position of its next token, and the row of the last batch with the logits of it.
    position: usize,
    row: usize,
}

impl Guesses {
    /// Empty drafts for this many requests.
    pub(super) fn new(count: usize) -> Self {
        Guesses { drafts: vec![Vec::new(); count], growing: Vec::new() }
    }

    /// Begins the draft of a request, whose next token is in this row of the first batch.
    pub(super) fn begin(&mut self, place: usize, wanted: &DraftRequest, row: usize) {
        let DraftRequest { sequence, tokens, most, .. } = *wanted;
        self.growing.push(Guess { place, sequence, most, position: tokens.len() + 1, row });
    }

    /// Adds the likeliest token to each draft, and ends drafts that are long enough or not sure.
    /// Returns the batch that computes the others further, and the rows that its entries follow.
    pub(super) fn grow<'a>(
        &mut self,
        logits: impl Fn(usize) -> Result<&'a [f32]>,
    ) -> (Vec<BatchEntry>, Vec<usize>) {
        let (mut batch, mut rows) = (Vec::new(), Vec::new());
        self.growing.retain_mut(|guess| {
            let Some(token) = logits(guess.row).ok().and_then(confident) else { return false };
            let draft = &mut self.drafts[guess.place];
            draft.push(token);
            if draft.len() == guess.most {
                return false;
            }
            let (position, sequence) = (guess.position, guess.sequence);
            rows.push(guess.row);
            (guess.row, guess.position) = (batch.len(), position + 1);
            batch.push(BatchEntry { token, position, sequence, logits: true });
            true
        });
        (batch, rows)
    }
}

/// The likeliest token; `None` if its probability is too low.
fn confident(logits: &[f32]) -> Option<TokenId> {
    let (token, best) = logits.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let others: f32 = logits.iter().map(|logit| (logit - best).exp()).sum();
    (1.0 / others >= MIN_PROBABILITY).then_some(token as TokenId)
}

/// How many tokens, from the first one on, are the same.
pub(super) fn shared<'a>(held: &[TokenId], tokens: impl IntoIterator<Item = &'a TokenId>) -> usize {
    held.iter().zip(tokens).take_while(|(one, other)| one == other).count()
}

/// The unused sequences to empty, so that a cache has room for `needed` more of its `n_cells`.
/// `held` are the cells of each sequence. `None` if there cannot be room.
pub(super) fn to_empty(
    held: &[usize],
    needed: usize,
    n_cells: usize,
    is_used: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let mut total = needed + held.iter().sum::<usize>();
    let mut emptied = Vec::new();
    for (sequence, cells) in held.iter().enumerate() {
        if total > n_cells && *cells > 0 && !is_used(sequence) {
            total -= cells;
            emptied.push(sequence);
        }
    }
    (total <= n_cells).then_some(emptied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_likely_tokens_are_drafted() {
        assert_eq!(confident(&[0.0, 5.0, 1.0]), Some(1));
        assert_eq!(confident(&[1.0, 1.0, 1.0]), None);
        assert_eq!(confident(&[0.0, f32::NAN]), None);
        assert_eq!(confident(&[]), None);
    }

    #[test]
    fn unused_sequences_make_room() {
        let is_used = |sequence| sequence == 1;
        assert_eq!(to_empty(&[3, 4, 5], 8, 20, is_used), Some(vec![]));
        assert_eq!(to_empty(&[3, 4, 5], 9, 20, is_used), Some(vec![0]));
        assert_eq!(to_empty(&[3, 4, 5], 16, 20, is_used), Some(vec![0, 2]));
        assert_eq!(to_empty(&[3, 4, 5], 17, 20, is_used), None);
    }
}
