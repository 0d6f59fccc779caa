//! Speculative decoding: tokens are drafted cheaply, and one decode of the model verifies them all.
//!
//! A draft never changes a reply. The scheduler decodes the drafted tokens after the next one, and
//! then samples token by token from the model's own logits, with the same sampler, grammar and
//! penalties. While the sampled tokens equal the drafted ones, the next logits are available
//! already. From the first difference on, the draft is discarded.
//!
//! Most text of a tool call or of JSON is certain before it is written: the grammar of the reply
//! allows nothing else, or the model's template writes nothing else. Every job with a grammar
//! drafts that text, also after its prompt. A drafter guesses where nothing is certain. By default
//! that is prompt lookup, and each job drafts only what its drafts have earned.

mod account;
mod draft;
mod drafter;
mod guesses;
mod model;
mod ngram;
mod pace;
mod predicting;

pub(crate) use draft::{Draft, DraftPaces};
pub use drafter::{DecodedTokens, DraftRequest, Drafter};
pub use model::ModelDrafter;
pub use ngram::NgramDrafter;
pub use pace::DraftCounts;
pub use predicting::{LayerDrafter, PredictingLayers};

use super::active_job::ActiveJob;
use super::backend::Backend;
use super::prefix_cache::PrefixCache;
use super::vocab::Vocab;
use crate::api::AdapterScales;

/// The maximum length of a draft that the grammar forces.
const MAX_FORCED: usize = 16;
/// The maximum length of all such drafts in a batch. Each token has a row of logits.
const MAX_ALL_FORCED: usize = 64;
/// The maximum length of a draft that prompt lookup makes by default, and the shortest repetition
/// that it continues.
const MAX_REPEATED: usize = 16;
const MIN_REPEATED: usize = 4;

/// Where drafts come from. Every job drafts what its grammar forces and what its template writes.
/// Where that is nothing, a drafter may guess.
#[derive(Default)]
pub struct Speculation {
    drafter: Option<(Box<dyn Drafter>, usize)>,
    /// Whether a job drafts only as much as its earlier drafts have saved.
    is_paid: bool,
}

impl Speculation {
    /// Limits the drafts of a drafter to `n_max` tokens.
    pub fn new(drafter: Box<dyn Drafter>, n_max: usize) -> Self {
        Speculation { drafter: Some((drafter, n_max)), is_paid: false }
    }

    /// Looks up repetitions. A job drafts as much as its earlier drafts have saved, so that a reply
    /// without repetitions takes no longer.
    pub fn auto() -> Self {
        let drafter = Box::new(NgramDrafter::longest(MIN_REPEATED));
        Speculation { drafter: Some((drafter, MAX_REPEATED)), is_paid: true }
    }

    /// Tells the drafter about new tokens, if it needs that.
    pub(crate) fn decoded(&mut self, parts: &[DecodedTokens]) {
        if let Some((drafter, _)) = self.drafter.as_mut().filter(|_| !parts.is_empty()) {
            drafter.decoded(parts);
        }
    }

    /// Whether the drafter needs the hidden states of new tokens.
    pub(crate) fn reads_hidden(&self) -> bool {
        self.drafter.as_ref().is_some_and(|(drafter, _)| drafter.reads_hidden())
    }

    /// The paces of a new job.
    pub(crate) fn paces(&self) -> DraftPaces {
        let n_max = self.drafter.as_ref().map(|(_, n_max)| *n_max);
        DraftPaces::new(MAX_FORCED, n_max, self.is_paid)
    }

    /// Sets the number of threads for the following drafts.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        if let Some((drafter, _)) = &mut self.drafter {
            drafter.set_threads(threads);
        }
    }

    /// Drafts for the jobs that use these adapters. Returns one draft for each of `active`, which
    /// may be empty. A draft of a job in prefill follows the prompt. All drafts and next tokens fit
    /// in a batch: with more jobs, each draft is shorter. If the backend is not divisible, several
    /// jobs have drafts only where [`level`] may leave some.
    pub(crate) fn draft(
        &mut self,
        adapters: &AdapterScales,
        active: &mut [ActiveJob],
        cache: &PrefixCache,
        backend: &dyn Backend,
        vocab: &dyn Vocab,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = active.iter().map(|_| Draft::default()).collect();
        let rollback = backend.max_rollback();
        if !can_roll_back(active, adapters, cache, backend) {
            return drafts;
        }
        let count = active.len().max(1);
        // Half of a batch is for next tokens and drafts, and the other half for prefill.
        let in_batch = backend.n_batch() / (2 * count);
        let forced_share = (MAX_ALL_FORCED / count).min(in_batch);
        let cost = account::cost(backend.threads().policy, count);
        let mut wanted = Vec::new();
        let mut indices = Vec::new();
        for (index, job) in active.iter_mut().enumerate() {
            if job.job.adapters != *adapters {
                continue;
            }
            let Some(room) = room(job, cache, backend) else { continue };
            let room = room.min(rollback);
            let draft = job.call_draft(room.min(forced_share));
            if !draft.tokens.is_empty() {
                drafts[index] = draft;
                continue;
            }
            let Some((_, n_max)) = &self.drafter else { continue };
            let (Some(next), Some(paces)) = (job.next, &mut job.paces) else { continue };
            let most = paces.most(cost).min(n_max / count).min(in_batch).min(room);
            if most > 0 {
                let tokens = cache.tokens(job.sequence);
                let (sequence, is_value) = (job.sequence, job.is_in_value());
                wanted.push(DraftRequest { sequence, tokens, next, most, is_value });
                indices.push(index);
            }
        }
        if let Some((drafter, _)) = self.drafter.as_mut().filter(|_| !wanted.is_empty()) {
            let guesses = drafter.draft(&wanted, abort);
            for ((index, wanted), mut guess) in indices.into_iter().zip(&wanted).zip(guesses) {
                guess.truncate(wanted.most);
                active[index].retain_allowed(&mut guess);
                drafts[index].tokens = guess;
            }
        }
        for draft in &mut drafts {
            // A sampled end of generation is never decoded, so the draft stops before it.
            let end = draft.tokens.iter().position(|token| vocab.is_end_of_generation(*token));
            draft.tokens.truncate(end.unwrap_or(draft.tokens.len()));
        }
        drafts
    }
}

/// The jobs that may be in a batch with these adapters.
fn running<'a>(
    active: &'a [ActiveJob],
    adapters: &'a AdapterScales,
    cache: &'a PrefixCache,
) -> impl Iterator<Item = (usize, &'a ActiveJob)> {
    active
        .iter()
        .enumerate()
        .filter(|(_, job)| job.job.adapters == *adapters && !cache.is_held(job.sequence))
}

/// Whether rejected tokens of these jobs can be removed, if their drafts have one length.
fn can_roll_back(
    active: &[ActiveJob],
    adapters: &AdapterScales,
    cache: &PrefixCache,
    backend: &dyn Backend,
) -> bool {
    if backend.is_divisible() {
        return true;
    }
    let jobs = || running(active, adapters, cache).map(|(_, job)| job);
    let mut sequences: Vec<usize> = jobs().map(|job| job.sequence).collect();
    // The order of the batch.
    sequences.sort_unstable();
    // Parts of prompts have other lengths.
    sequences.len() < 2
        || jobs().all(|job| job.next.is_some()) && backend.can_roll_back_together(&sequences)
}

/// Cuts the drafts of several jobs to the length of the shortest one, if the backend is not divisible:
/// rejected tokens can be removed only if the batch has the same number of tokens of each job.
pub(crate) fn level(
    drafts: &mut [Draft],
    adapters: &AdapterScales,
    active: &[ActiveJob],
    cache: &PrefixCache,
    backend: &dyn Backend,
) {
    if backend.is_divisible() {
        return;
    }
    let lengths = running(active, adapters, cache).map(|(index, _)| drafts[index].tokens.len());
    let shortest = lengths.min().unwrap_or(0);
    drafts.iter_mut().for_each(|draft| draft.tokens.truncate(shortest));
}

/// How many tokens of a draft a job has room for. `None` if the next batch does not reach the end
/// of its prompt.
fn room(job: &ActiveJob, cache: &PrefixCache, backend: &dyn Backend) -> Option<usize> {
    let held = cache.len(job.sequence);
    let before = match job.next {
        Some(_) => held + 1,
        None => {
            let prompt = job.job.prompt.len();
            let is_last = prompt - held <= backend.n_batch() && job.next_stop(held).is_none();
            is_last.then_some(prompt)?
        }
    };
    // A draft stays within the reserved cells and within the tokens that the job may still
    // generate. If the context can be shifted, the last cell stays free so that drafts do not
    // change what a shift drops.
    let free = usize::from(job.job.shift_keeps.is_some());
    let cells = backend.n_ctx().saturating_sub(before + free);
    let reserved = cache.reserved(job.sequence).saturating_sub(before);
    Some(cells.min(reserved).min(job.tokens_left().saturating_sub(1)))
}
