//! Speculative decoding: tokens are drafted cheaply, and one decode of the model verifies all of
//! them.
//!
//! A draft never changes a reply. The scheduler decodes the drafted tokens after the next one, and
//! then samples token by token from the model's own logits, with the same sampler, grammar and
//! penalties. While the sampled tokens equal the drafted ones, the next logits are available
//! already. From the first difference on, the draft is discarded.

mod model;
mod ngram;
mod pace;

pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub(crate) use pace::DraftPace;

use super::active_job::ActiveJob;
use super::backend::{Backend, TokenId, Vocab};
use super::prefix_cache::PrefixCache;

/// A decoding job, as a drafter sees it.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// Its sequence.
    pub sequence: usize,
    /// The tokens in its sequence.
    pub tokens: &'a [TokenId],
    /// The token after them.
    pub next: TokenId,
    /// The most tokens to draft after `next`; at least 1.
    pub most: usize,
}

/// Drafts tokens. Lives on the engine thread and is used by no other.
pub trait Drafter {
    /// One draft for each of `wanted`, in order; empty if it has none. `abort` is polled.
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>>;

    /// Sets the threads of the following drafts, where there is a model.
    fn set_threads(&mut self, _threads: usize) {}
}

/// Counts of drafted tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Decoded draft tokens.
    pub tokens: usize,
    /// Draft tokens that were sampled.
    pub accepted: usize,
}

/// A drafter and the limit of its drafts.
pub struct Speculation {
    drafter: Box<dyn Drafter>,
    n_max: usize,
}

impl Speculation {
    /// Drafts of up to `n_max` tokens.
    pub fn new(drafter: Box<dyn Drafter>, n_max: usize) -> Self {
        Speculation { drafter, n_max }
    }

    /// The most tokens of one draft.
    pub(crate) fn n_max(&self) -> usize {
        self.n_max
    }

    /// Sets the threads of the following drafts.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.drafter.set_threads(threads);
    }

    /// Drafts for the decoding jobs, one list for each of `active`, which may be empty. All drafts
    /// and next tokens fit in a batch: with more jobs, each draft is shorter.
    pub(crate) fn draft(
        &mut self,
        active: &mut [ActiveJob],
        cache: &PrefixCache,
        backend: &dyn Backend,
        vocab: &dyn Vocab,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let mut drafts = vec![Vec::new(); active.len()];
        // Half of a batch is for the next tokens and drafts of all jobs, the rest for prefill.
        let share =
            (self.n_max / active.len().max(1)).min(backend.n_batch() / (2 * active.len().max(1)));
        let mut wanted = Vec::new();
        let mut indices = Vec::new();
        for (index, job) in active.iter_mut().enumerate() {
            let Some(next) = job.next else { continue };
            let tokens = cache.tokens(job.sequence);
            // Stays within the reserved cells and the tokens that the job may still generate.
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
            // A sampled end is not decoded, so a drafted one need not be.
            if let Some(end) = guess.iter().position(|token| vocab.is_end_of_generation(*token)) {
                guess.truncate(end);
            }
            drafts[index] = guess;
        }
        drafts
    }
}
