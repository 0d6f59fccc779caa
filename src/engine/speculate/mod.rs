//! Speculative decoding: tokens are drafted cheaply, and one decode of the model verifies them all.
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
pub use pace::DraftCounts;
pub(crate) use pace::DraftPace;

use super::active_job::ActiveJob;
use super::backend::{Backend, TokenId};
use super::prefix_cache::PrefixCache;
use super::vocab::Vocab;
use crate::api::AdapterScales;

/// A decoding job, as a drafter sees it.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The sequence of the job.
    pub sequence: usize,
    /// The tokens in its sequence.
    pub tokens: &'a [TokenId],
    /// The sampled token that follows `tokens`.
    pub next: TokenId,
    /// The maximum number of tokens to draft after `next`; at least 1.
    pub most: usize,
}

/// Drafts tokens. A drafter lives on the engine thread and is used by no other thread.
pub trait Drafter {
    /// Returns one draft for each of `wanted`, in order. A draft may be empty. `abort` is polled.
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>>;

    /// Sets the number of threads for the following drafts. Does nothing for a drafter without a
    /// model.
    fn set_threads(&mut self, _threads: usize) {}
}

/// A drafter, and the maximum length of its drafts.
pub struct Speculation {
    drafter: Box<dyn Drafter>,
    n_max: usize,
}

impl Speculation {
    /// Limits drafts to `n_max` tokens.
    pub fn new(drafter: Box<dyn Drafter>, n_max: usize) -> Self {
        Speculation { drafter, n_max }
    }

    /// The maximum length of a draft.
    pub(crate) fn n_max(&self) -> usize {
        self.n_max
    }

    /// Sets the number of threads for the following drafts.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.drafter.set_threads(threads);
    }

    /// Drafts for the decoding jobs that use these adapters. Returns one draft for each of
    /// `active`, which may be empty. All drafts and next tokens fit in a batch: with more jobs,
    /// each draft is shorter.
    pub(crate) fn draft(
        &mut self,
        adapters: &AdapterScales,
        active: &mut [ActiveJob],
        cache: &PrefixCache,
        backend: &dyn Backend,
        vocab: &dyn Vocab,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let mut drafts = vec![Vec::new(); active.len()];
        // Half of a batch is for next tokens and drafts, and the other half for prefill.
        let share =
            (self.n_max / active.len().max(1)).min(backend.n_batch() / (2 * active.len().max(1)));
        let mut wanted = Vec::new();
        let mut indices = Vec::new();
        for (index, job) in active.iter_mut().enumerate() {
            let next = job.next.filter(|_| job.job.adapters == *adapters);
            let Some(next) = next else { continue };
            let tokens = cache.tokens(job.sequence);
            // A draft stays within the reserved cells and within the tokens that the job may still
            // generate. If the context can be shifted, the last cell stays free so that drafts do
            // not change what a shift drops.
            let free = usize::from(job.job.shift_keeps.is_some());
            let room = backend
                .n_ctx()
                .saturating_sub(tokens.len() + 1 + free)
                .min(cache.reserved(job.sequence).saturating_sub(tokens.len() + 1))
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
            // A sampled end of generation is never decoded, so the draft stops before it.
            if let Some(end) = guess.iter().position(|token| vocab.is_end_of_generation(*token)) {
                guess.truncate(end);
            }
            drafts[index] = guess;
        }
        drafts
    }
}
