//! One batch for many chats: admits jobs, fills the next decode, and takes its results.
//!
//! Each step admits waiting jobs in order of arrival, while a sequence and enough cells are free.
//! It fills a batch with the next token of every decoding job and its draft (`speculate`), then
//! with prefill in order of admission. Then it decodes, and samples all rows side by side
//! (`side_by_side`). Nothing else here blocks or knows threads.

mod sampling_task;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::active_job::ActiveJob;
use super::backend::{Backend, BatchEntry, Decoded, TokenId, Vocab};
use super::job::{Finish, Job, JobOutcome, JobUpdate, is_over};
use super::prefix_cache::{CacheLookup, CacheRequest, PrefixCache, SavedSequence, common_prefix};
use super::sampler::Sampler;
use super::side_by_side;
use super::speculate::Speculation;
use super::threads::ThreadController;
use crate::error::{Code, Error, Result};
use sampling_task::{SampledShare, SamplingTask};

/// A job waits for another one that computes the beginning of its prompt if that saves this many
/// tokens.
const WORTH_WAITING: usize = 64;

/// Owns the backend and all jobs.
pub(crate) struct Scheduler {
    backend: Box<dyn Backend>,
    threads: ThreadController,
    vocab: Arc<dyn Vocab>,
    cache: PrefixCache,
    speculation: Option<Speculation>,
    waiting: VecDeque<Job>,
    active: Vec<ActiveJob>,
}

/// The entries of one job in a batch.
struct BatchShare {
    active: usize,
    /// The length of its sequence before the batch.
    before: usize,
    /// The first row with logits that are needed.
    row: Option<usize>,
    /// The drafted tokens, in the rows after `row`.
    draft: Vec<TokenId>,
}

impl Scheduler {
    /// Ignores `speculation` if the backend cannot remove wrong drafts.
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        vocab: Arc<dyn Vocab>,
        speculation: Option<Speculation>,
    ) -> Self {
        let cache =
            PrefixCache::new(backend.n_sequences(), backend.n_ctx(), backend.is_divisible());
        let speculation = speculation.filter(|_| backend.is_divisible());
        Scheduler {
            threads: ThreadController::new(backend.threads()),
            backend,
            vocab,
            cache,
            speculation,
            waiting: VecDeque::new(),
            active: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// What a request of this chat would find in the KV cache.
    pub(crate) fn look_up(&mut self, chat: u64, prompt: &[TokenId]) -> CacheLookup {
        self.update_shortest();
        self.cache.look_up(chat, prompt)
    }

    /// Saves the last sequence of a chat; `None` if it is gone, or a job runs on it that is not
    /// cancelled.
    pub(crate) fn save(&mut self, chat: u64) -> Result<Option<SavedSequence>> {
        self.drop_cancelled();
        let Some(sequence) = self.cache.last_of(chat) else { return Ok(None) };
        let tokens = self.cache.tokens(sequence).to_vec();
        Ok(Some(SavedSequence { tokens, data: self.backend.save(sequence)? }))
    }

    /// Restores a saved sequence as the chat's.
    pub(crate) fn restore(&mut self, chat: u64, kept: &SavedSequence) -> Result<()> {
        let wish = CacheRequest {
            prompt: &kept.tokens,
            reserve: kept.tokens.len(),
            chat,
            reuse: false,
            copy: true,
        };
        let no_room = || {
            Error::new(
                Code::Busy,
                "the KV cache has no room for it next to the running requests; try again later",
            )
        };
        let sequence = self.cache.claim(wish).ok_or_else(no_room)?.sequence;
        self.forget_from(sequence, 0);
        for idle in self.cache.evictions() {
            self.forget_from(idle, 0);
        }
        let restored = self.backend.restore(sequence, &kept.data, kept.tokens.len());
        if restored.is_ok() {
            self.cache.push(sequence, &kept.tokens);
        }
        self.cache.release(sequence);
        restored
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Leaves the threads to the other engines of the process until the next step.
    pub(crate) fn rest(&self) {
        self.threads.rest();
    }

    /// Whether the backend is unusable.
    pub(crate) fn is_broken(&self) -> bool {
        self.backend.is_broken()
    }

    /// Ends every job with an error, because the engine stops.
    pub(crate) fn fail_all(&mut self, error: impl Fn() -> Error) {
        for job in self.waiting.drain(..).chain(self.active.drain(..).map(|active| active.job)) {
            let _ = job.updates.send(JobUpdate::Failed(error()));
        }
    }

    /// Decodes one batch of all running jobs.
    pub(crate) fn step(&mut self) {
        self.drop_cancelled();
        self.admit();
        let watched = self.active.iter().map(|active| &active.job);
        let flags: Vec<(Arc<AtomicBool>, Option<Instant>)> =
            watched.map(|job| (Arc::clone(&job.cancel), job.deadline)).collect();
        let abort = move || flags.iter().any(|(cancel, deadline)| is_over(cancel, *deadline));
        let drafts = self.draft(&abort);
        let (batch, shares) = self.fill_batch(drafts);
        if batch.is_empty() {
            return;
        }
        let (decoded, used) = self.threads.decode(self.backend.as_mut(), &batch, &abort);
        shares.iter().for_each(|share| self.active[share.active].threads.add(used));
        if let Some(speculation) = &mut self.speculation {
            speculation.set_threads(used.threads);
        }
        match decoded {
            Ok(Decoded::Done) => self.advance(&batch, shares),
            Ok(Decoded::Aborted) => self.undo_batch(&shares),
            Err(error) => self.fail_batch(&shares, &error),
        }
    }

    fn drop_cancelled(&mut self) {
        let (cancelled, waiting): (Vec<Job>, Vec<Job>) =
            self.waiting.drain(..).partition(Job::is_cancelled);
        self.waiting = waiting.into();
        for job in cancelled {
            let outcome = JobOutcome { finish: Finish::Cancelled, ..JobOutcome::default() };
            let _ = job.updates.send(JobUpdate::Done(outcome));
        }
        for index in (0..self.active.len()).rev() {
            if self.active[index].job.is_cancelled() {
                self.finish(index, Finish::Cancelled);
            }
        }
    }

    fn admit(&mut self) {
        let mut copy = true;
        while !self.waiting.is_empty() {
            // As in llama-server, the time of cache changes counts as prompt time.
            let admitted = Instant::now();
            self.update_shortest();
            let Some(job) = self.waiting.front() else { return };
            if copy && self.is_being_computed(job) {
                return;
            }
            let reserve = (job.prompt.len() + job.max_tokens).min(self.backend.n_ctx());
            let wish = CacheRequest {
                prompt: &job.prompt,
                reserve,
                chat: job.chat,
                reuse: job.reuse_prefix,
                copy,
            };
            let Some(claim) = self.cache.claim(wish) else { return };
            let sequence = claim.sequence;
            self.forget_from(sequence, claim.kept);
            if let Some((from, length)) = claim.copy
                && !self.copy(from, sequence, length)
            {
                // Without the copy the reserved cells do not suffice: claim again without copies.
                self.cache.release(sequence);
                copy = false;
                continue;
            }
            copy = true;
            let Some(job) = self.waiting.pop_front() else { return };
            for idle in self.cache.evictions() {
                self.forget_from(idle, 0);
            }
            match Sampler::new(&job.sampling, self.vocab.suppressed(), &job.breakers) {
                Ok(mut sampler) => {
                    let recent = job.prompt.len().saturating_sub(job.sampling.history());
                    job.prompt[recent..].iter().for_each(|token| sampler.accept(*token));
                    let cached_tokens = self.cache.len(sequence);
                    self.active.push(ActiveJob::new(
                        job,
                        sequence,
                        cached_tokens,
                        sampler,
                        admitted,
                    ));
                }
                Err(error) => {
                    self.cache.release(sequence);
                    let _ = job.updates.send(JobUpdate::Failed(error));
                }
            }
        }
    }

    /// Updates how much of each sequence is usable.
    fn update_shortest(&mut self) {
        for sequence in 0..self.backend.n_sequences() {
            self.cache
                .set_shortest(sequence, self.backend.shortest(sequence, self.cache.len(sequence)));
        }
    }

    /// Whether a running job is about to compute the beginning of this prompt. It was admitted
    /// earlier, and prefill runs in order of admission, so waiting loses nothing. The common prefix
    /// is then copied.
    fn is_being_computed(&self, job: &Job) -> bool {
        if !job.reuse_prefix || !self.cache.copies() {
            return false;
        }
        let reusable = &job.prompt[..job.prompt.len().saturating_sub(1)];
        let mut prefills = self.active.iter().filter(|active| active.next.is_none());
        prefills.any(|active| {
            let common = common_prefix(&active.job.prompt, reusable);
            let without = self.cache.longest_in_others(active.sequence, &job.prompt);
            self.cache.len(active.sequence) < common && common >= without + WORTH_WAITING
        })
    }

    /// Appends what `from` holds up to `length` to `to`.
    fn copy(&mut self, from: usize, to: usize, length: usize) -> bool {
        let copied = self.backend.copy(from, to, self.cache.len(to)..length);
        if copied {
            self.cache.copy(from, to, length);
        } else {
            self.cache.truncate(to, 0);
        }
        copied
    }

    /// Removes a sequence from `length` on, or all of it if the model cannot remove a part.
    fn forget_from(&mut self, sequence: usize, length: usize) {
        if self.cache.len(sequence) <= length {
            return;
        }
        let kept = if self.backend.truncate(sequence, length) {
            length
        } else {
            self.backend.truncate(sequence, 0);
            0
        };
        self.cache.truncate(sequence, kept);
    }

    fn draft(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Vec<Vec<TokenId>> {
        let Some(speculation) = &mut self.speculation else { return Vec::new() };
        speculation.draft(
            &mut self.active,
            &self.cache,
            self.backend.as_ref(),
            self.vocab.as_ref(),
            abort,
        )
    }

    /// `drafts` has one for each active job, or is empty.
    fn fill_batch(&self, drafts: Vec<Vec<TokenId>>) -> (Vec<BatchEntry>, Vec<BatchShare>) {
        let n_batch = self.backend.n_batch();
        let mut batch = Vec::new();
        let mut shares = Vec::new();
        let mut drafts = drafts.into_iter();
        for (index, active) in self.active.iter().enumerate() {
            let draft = drafts.next().unwrap_or_default();
            if let Some(token) = active.next {
                let before = self.cache.len(active.sequence);
                let row = Some(batch.len());
                for (offset, token) in [token].iter().chain(&draft).enumerate() {
                    let position = before + offset;
                    batch.push(BatchEntry {
                        token: *token,
                        position,
                        sequence: active.sequence,
                        logits: true,
                    });
                }
                shares.push(BatchShare { active: index, before, row, draft });
            }
        }
        for (index, active) in
            self.active.iter().enumerate().filter(|(_, active)| active.next.is_none())
        {
            let before = self.cache.len(active.sequence);
            let room = n_batch - batch.len();
            let rest = &active.job.prompt[before..];
            let chunk = &rest[..rest.len().min(room)];
            if chunk.is_empty() {
                break;
            }
            let whole = chunk.len() == rest.len();
            for (offset, &token) in chunk.iter().enumerate() {
                let logits = whole && offset + 1 == chunk.len();
                batch.push(BatchEntry {
                    token,
                    position: before + offset,
                    sequence: active.sequence,
                    logits,
                });
            }
            shares.push(BatchShare {
                active: index,
                before,
                row: whole.then(|| batch.len() - 1),
                draft: Vec::new(),
            });
        }
        (batch, shares)
    }

    /// Takes the result of a decode: the cache has grown, and tokens are sampled where logits were
    /// requested.
    fn advance(&mut self, batch: &[BatchEntry], shares: Vec<BatchShare>) {
        for entry in batch {
            self.cache.push(entry.sequence, &[entry.token]);
        }
        let mut ended = Vec::new();
        for sampled in self.sample(&shares) {
            let wrong = sampled.drafted - sampled.right;
            if wrong > 0 {
                // The end of a sequence can always be removed by a model that removes parts at all.
                let sequence = self.active[sampled.active].sequence;
                self.forget_from(sequence, self.cache.len(sequence) - wrong);
            }
            if let Some(end) = sampled.end {
                ended.push((sampled.active, end));
            }
        }
        ended.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        for (index, end) in ended {
            match end {
                Ok(finish) => self.finish(index, finish),
                Err(error) => self.fail(index, error),
            }
        }
    }

    /// Samples from the rows of all shares, side by side.
    fn sample(&mut self, shares: &[BatchShare]) -> Vec<SampledShare> {
        let n_ctx = self.backend.n_ctx();
        let n_max = self.speculation.as_ref().map(Speculation::n_max);
        let mut jobs: Vec<Option<&mut ActiveJob>> = self.active.iter_mut().map(Some).collect();
        let tasks = shares.iter().filter_map(|share| {
            let first = share.row?;
            let active = jobs[share.active].take()?;
            let rows = first..=first + share.draft.len();
            let length = self.cache.len(active.sequence) - share.draft.len();
            Some(SamplingTask {
                share,
                active,
                rows: rows.map(|row| self.backend.logits(row)).collect(),
                room: n_ctx.saturating_sub(length),
            })
        });
        let vocab = self.vocab.as_ref();
        side_by_side::map(tasks.collect(), self.backend.threads().most, |task| {
            task.run(vocab, n_max)
        })
    }

    /// Undoes an aborted batch. The cancelled job leaves at the next step.
    fn undo_batch(&mut self, shares: &[BatchShare]) {
        if !self.backend.is_divisible() {
            return self.restart_all();
        }
        for share in shares {
            let sequence = self.active[share.active].sequence;
            if !self.backend.truncate(sequence, share.before) {
                // No part can be removed: compute the prompt and the generated tokens again.
                self.backend.truncate(sequence, 0);
                self.restart(share.active);
            }
        }
    }

    /// Empties every sequence and restarts all jobs.
    fn restart_all(&mut self) {
        self.backend.clear();
        for index in 0..self.active.len() {
            self.restart(index);
        }
        for sequence in 0..self.backend.n_sequences() {
            self.cache.truncate(sequence, 0);
        }
    }

    /// Restarts the prefill of a sequence, including generated tokens.
    fn restart(&mut self, index: usize) {
        let active = &mut self.active[index];
        let generated = self
            .cache
            .tokens(active.sequence)
            .get(active.job.prompt.len()..)
            .unwrap_or_default()
            .to_vec();
        active.job.prompt.extend(generated);
        active.job.prompt.extend(active.next.take());
        self.cache.truncate(active.sequence, 0);
    }

    /// Ends the jobs of a failed batch with the error and empties their sequences.
    fn fail_batch(&mut self, shares: &[BatchShare], error: &Error) {
        let mut indices: Vec<usize> = shares.iter().map(|share| share.active).collect();
        indices.sort_unstable_by(|a, b| b.cmp(a));
        for index in indices {
            let sequence = self.active[index].sequence;
            self.backend.truncate(sequence, 0);
            self.cache.truncate(sequence, 0);
            self.fail(index, Error::new(error.code(), error.message()));
        }
        if !self.backend.is_divisible() {
            self.restart_all();
        }
    }

    fn fail(&mut self, index: usize, error: Error) {
        let active = self.active.remove(index);
        self.cache.release(active.sequence);
        active.fail(error);
    }

    fn finish(&mut self, index: usize, finish: Finish) {
        let active = self.active.remove(index);
        self.cache.release(active.sequence);
        let drafted = self.speculation.as_ref().map(|_| active.pace.drafted());
        active.finish(finish, drafted);
    }
}
