//! Speculative decoding: tokens are guessed cheaply, and one decode of the model looks at all of
//! them.
//!
//! A guess never changes a reply. The scheduler decodes guesses behind the token that is due, and
//! then chooses token by token from the model's own logits, with the same sampler, grammar and
//! penalties as ever; as long as what is chosen is what was guessed, the next logits are there
//! already. From the first difference on, guesses are forgotten.

mod model;
mod ngram;
mod pace;

pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub(crate) use pace::DraftPace;

use super::active_job::ActiveJob;
use super::backend::{Backend, TokenId, Vocab};
use super::prefix_cache::PrefixCache;

/// A job that decodes, as a drafter sees it.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// Its sequence.
    pub sequence: usize,
    /// What its sequence holds.
    pub tokens: &'a [TokenId],
    /// The token after those.
    pub next: TokenId,
    /// Most tokens to guess behind `next`; at least 1.
    pub most: usize,
}

/// Guesses tokens. Lives on the engine thread and is used by no other.
pub trait Drafter {
    /// Guesses for each of `wanted`, in its order; none where it has no idea. `abort` is asked now
    /// and then.
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>>;
}

/// How many guessed tokens there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Decoded.
    pub tokens: usize,
    /// Those of them that were chosen.
    pub accepted: usize,
}

/// A drafter, and how much it may guess.
pub struct Speculation {
    drafter: Box<dyn Drafter>,
    n_max: usize,
}

impl Speculation {
    /// Guesses of up to `n_max` tokens.
    pub fn new(drafter: Box<dyn Drafter>, n_max: usize) -> Self {
        Speculation { drafter, n_max }
    }

    /// Most tokens of one guess.
    pub(crate) fn n_max(&self) -> usize {
        self.n_max
    }

    /// Guesses for the jobs that decode, one list for each of `active` (an empty one where nothing
    /// is guessed). All of them and the tokens that are due fit in a batch; the more jobs there
    /// are, the less is guessed for each.
    pub(crate) fn draft(
        &mut self,
        active: &mut [ActiveJob],
        cache: &PrefixCache,
        backend: &dyn Backend,
        vocab: &dyn Vocab,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let mut drafts = vec![Vec::new(); active.len()];
        // A batch has room for every job's own token twice over, and what is left of it is for
        // prefill.
        let share =
            (self.n_max / active.len().max(1)).min(backend.n_batch() / (2 * active.len().max(1)));
        let mut wanted = Vec::new();
        let mut indices = Vec::new();
        for (index, job) in active.iter_mut().enumerate() {
            let Some(next) = job.next else { continue };
            let tokens = cache.tokens(job.sequence);
            // No cell is used that was not set aside, and no logits are computed that nobody would
            // look at.
            let room = backend
                .n_ctx()
                .saturating_sub(tokens.len() + 1)
                .min(job.tokens_left().saturating_sub(1));
            let most = job.pace.most(self.n_max).min(share).min(room);
            if most > 0 {
                wanted.push(DraftRequest { sequence: job.sequence, tokens, next, most });
                indices.push(index);
            }
        }
        if wanted.is_empty() {
            return drafts;
        }
        let guesses = self.drafter.draft(&wanted, abort);
        for ((index, wanted), mut guess) in indices.into_iter().zip(&wanted).zip(guesses) {
            guess.truncate(wanted.most);
            // An end that is chosen is not decoded, so one that is guessed need not be.
            if let Some(end) = guess.iter().position(|token| vocab.is_end_of_generation(*token)) {
                guess.truncate(end);
            }
            drafts[index] = guess;
        }
        drafts
    }
}
