//! Runs the jobs of all chats in one batch: admits jobs, fills the next batch, and takes its
//! results.
//!
//! Each step admits waiting jobs in order of arrival, as long as a sequence and enough cells are
//! free. It fills a batch with the next token and the draft (`speculate`) of every decoding job,
//! then with prefill in order of admission. Then it decodes, and samples all rows in parallel
//! (`side_by_side`). Jobs with different adapters are never in the same batch: they take turns
//! (`turns`). Only the decode blocks.
//!
//! If a device computes for many sequences, the text of their last tokens is sent during the decode
//! (`writing`).

mod batch;
mod context_shift;
mod sampling_task;
#[cfg(test)]
mod tests;
mod turns;
mod undo;
mod writing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::active_job::ActiveJob;
use super::backend::{Backend, BatchEntry, Decoded, TokenId};
use super::interrupt::Interrupt;
use super::job::{Finish, Job, JobOutcome, JobUpdate};
use super::prefix_cache::{
    CacheKey, CacheLookup, CacheRequest, OPENING, PrefixCache, SavedSequence, common_prefix,
};
use super::sampler::Sampler;
use super::side_by_side::HelperThreads;
use super::speculate::Speculation;
use super::threads::ThreadController;
use super::vocab::Vocab;
use crate::api::AdapterScales;
use crate::error::{Code, Error, Result};
use batch::BatchShare;
pub(crate) use context_shift::dropped_tokens;
use sampling_task::{SampledShare, SamplingTask};
use turns::Turns;

/// A job waits until another job has computed the beginning of its prompt if that saves at least
/// this many tokens.
const WORTH_WAITING: usize = 64;

/// Owns the backend and all jobs.
pub(crate) struct Scheduler {
    backend: Box<dyn Backend>,
    threads: ThreadController,
    helpers: HelperThreads,
    vocab: Arc<dyn Vocab>,
    cache: PrefixCache,
    speculation: Option<Speculation>,
    waiting: VecDeque<Job>,
    active: Vec<ActiveJob>,
    turns: Turns,
    /// Whether jobs may be held, or have to be: some have restarted.
    has_restarted: bool,
}

impl Scheduler {
    /// Ignores `speculation` if the backend cannot remove rejected drafts.
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        vocab: Arc<dyn Vocab>,
        speculation: Option<Speculation>,
    ) -> Self {
        let cache = PrefixCache::new(backend.n_sequences(), backend.n_cells());
        let speculation = speculation.filter(|_| backend.is_divisible());
        Scheduler {
            threads: ThreadController::new(backend.threads()),
            helpers: HelperThreads::new(
                backend.threads().most.saturating_sub(1),
                backend.n_sequences(),
            ),
            backend,
            vocab,
            cache,
            speculation,
            waiting: VecDeque::new(),
            active: Vec::new(),
            turns: Turns::default(),
            has_restarted: false,
        }
    }

    pub(crate) fn add(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// Looks up what a request of this chat would find in the KV cache.
    pub(crate) fn look_up(&mut self, chat: u64, prompt: CacheKey) -> CacheLookup {
        self.update_shortest();
        self.cache.look_up(chat, prompt)
    }

    /// Saves the last sequence of a chat. `None` if it is no longer cached, or if a job that is not
    /// cancelled runs on it.
    pub(crate) fn save(&mut self, chat: u64) -> Result<Option<SavedSequence>> {
        self.drop_ended();
        let Some(sequence) = self.cache.last_of(chat) else { return Ok(None) };
        let tokens = self.cache.tokens(sequence).to_vec();
        let adapters = self.cache.adapters(sequence).clone();
        Ok(Some(SavedSequence { tokens, adapters, data: self.backend.save(sequence)? }))
    }

    /// Restores a saved sequence as the last one of this chat.
    pub(crate) fn restore(&mut self, chat: u64, kept: &SavedSequence) -> Result<()> {
        let wish = CacheRequest {
            prompt: CacheKey { tokens: &kept.tokens, adapters: &kept.adapters },
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

    /// Leaves the processors to the other engines of the process until the next step.
    pub(crate) fn rest(&self) {
        self.threads.rest();
    }

    /// Whether the backend is unusable.
    pub(crate) fn is_broken(&self) -> bool {
        self.backend.is_broken()
    }

    /// Ends every job with an error because the engine stops.
    pub(crate) fn fail_all(&mut self, error: impl Fn() -> Error) {
        for job in self.waiting.drain(..).chain(self.active.drain(..).map(|active| active.job)) {
            let _ = job.updates.send(JobUpdate::Failed(error()));
        }
    }

    /// Decodes one batch of all running jobs.
    pub(crate) fn step(&mut self) {
        self.drop_ended();
        self.share_cells_again();
        self.admit();
        let interrupts: Vec<Interrupt> =
            self.active.iter().map(|active| active.job.interrupt.clone()).collect();
        let abort = move || interrupts.iter().any(Interrupt::is_over);
        self.shift_full_contexts();
        let running = |active: &&ActiveJob| !self.cache.is_held(active.sequence);
        let running: Vec<&ActiveJob> = self.active.iter().filter(running).collect();
        let Some(adapters) = self.turns.next(&running) else { return };
        let drafts = self.draft(&adapters, &abort);
        let (batch, shares) = self.fill_batch(&adapters, drafts);
        if batch.is_empty() {
            return;
        }
        if let Err(error) = self.backend.set_adapters(&adapters) {
            return self.fail_batch(&shares, &error);
        }
        let (decoded, used) = self.decode(&batch, &abort);
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

    /// Ends the jobs that are cancelled, and those that their text has ended.
    fn drop_ended(&mut self) {
        let (cancelled, waiting): (Vec<Job>, Vec<Job>) =
            self.waiting.drain(..).partition(|job| job.interrupt.is_over());
        self.waiting = waiting.into();
        for job in cancelled {
            let outcome = JobOutcome { finish: Finish::Cancelled, ..JobOutcome::default() };
            let _ = job.updates.send(JobUpdate::Done(outcome));
        }
        for index in (0..self.active.len()).rev() {
            let active = &self.active[index];
            let cancelled = active.job.interrupt.is_over().then_some(Finish::Cancelled);
            if let Some(finish) = active.ended().or(cancelled) {
                self.finish(index, finish);
            }
        }
    }

    fn admit(&mut self) {
        let mut copy = true;
        // The cells that held jobs wait for are not given to later ones.
        while !self.waiting.is_empty() && !self.has_restarted {
            // As in llama-server, time spent on changes of the cache counts as prompt time.
            let admitted = Instant::now();
            self.update_shortest();
            let Some(job) = self.waiting.front() else { return };
            if copy && self.is_being_computed(job) {
                return;
            }
            let reserve = (job.prompt.len() + job.max_tokens).min(self.backend.n_ctx());
            let wish = CacheRequest {
                prompt: job.cache_key(),
                reserve,
                chat: job.chat,
                reuse: job.reuse_prefix,
                copy,
            };
            let seen = self.cache.longest_common(job.cache_key());
            let Some(claim) = self.cache.claim(wish) else { return };
            let sequence = claim.sequence;
            self.forget_from(sequence, claim.kept);
            if let Some((from, length)) = claim.copy
                && !self.copy(from, sequence, length)
            {
                // Without the copy, too few cells are reserved: claim again without copies.
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
                    let checkpoints = self.checkpoints_of(&job, sequence, seen);
                    if checkpoints.contains(&cached_tokens) {
                        self.keep_checkpoint(sequence);
                    }
                    let mut active =
                        ActiveJob::new(job, sequence, cached_tokens, sampler, admitted);
                    active.checkpoints = checkpoints;
                    self.active.push(active);
                    self.copy_prefix(self.active.len() - 1);
                }
                Err(error) => {
                    self.cache.release(sequence);
                    let _ = job.updates.send(JobUpdate::Failed(error));
                }
            }
        }
    }

    /// The lengths of a prompt at which to keep a checkpoint, in ascending order. One is before the
    /// opening of the reply: a template often renders an earlier turn differently, for example
    /// without its reasoning, so the next prompt differs from there on. Another is at the end of
    /// the prefix that an earlier prompt shares, because a third prompt may share it too.
    fn checkpoints_of(&self, job: &Job, sequence: usize, seen: usize) -> Vec<usize> {
        if self.backend.is_divisible() || !job.reuse_prefix {
            return Vec::new();
        }
        let cached = self.cache.len(sequence);
        let opening = job.prompt.len().saturating_sub(OPENING).max(cached);
        let mut before = self.cache.last_checkpoint(sequence);
        let mut lengths = Vec::new();
        for length in [seen, opening] {
            // Computing a few tokens again is faster than copying a state.
            let is_near_the_next = length < opening && length + OPENING > opening;
            if length >= cached.max(before + OPENING) && !is_near_the_next {
                lengths.push(length);
                before = length;
            }
        }
        lengths
    }

    /// Asks the backend for the shortest usable prefix of each sequence.
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
        if !job.reuse_prefix || !self.backend.is_divisible() {
            return false;
        }
        let reusable = &job.prompt[..job.prompt.len().saturating_sub(1)];
        let mut prefills = self
            .active
            .iter()
            .filter(|active| active.next.is_none() && active.job.adapters == job.adapters);
        prefills.any(|active| {
            let common = common_prefix(&active.job.prompt, reusable);
            let without = self.cache.longest_in_others(active.sequence, job.cache_key());
            self.cache.len(active.sequence) < common && common >= without + WORTH_WAITING
        })
    }

    /// Appends the tokens of `from` up to `length` to `to`.
    fn copy(&mut self, from: usize, to: usize, length: usize) -> bool {
        let whole = self.cache.len(from);
        let end = if self.backend.is_divisible() { length } else { whole };
        if !self.backend.copy(from, to, self.cache.len(to)..end) {
            self.cache.truncate(to, 0);
            return false;
        }
        self.cache.copy(from, to, end);
        self.forget_from(to, length);
        self.cache.len(to) == length
    }

    /// Removes a sequence from `length` on, or all of it if the model cannot remove a part of it.
    fn forget_from(&mut self, sequence: usize, length: usize) {
        if self.cache.len(sequence) <= length {
            return;
        }
        let kept = if self.backend.truncate(sequence, length) || self.rewind(sequence, length) {
            length
        } else {
            self.backend.truncate(sequence, 0);
            0
        };
        self.cache.truncate(sequence, kept);
    }

    /// Cuts a sequence at a checkpoint. Returns false if there is no checkpoint at `length`, or if
    /// the backend fails.
    fn rewind(&mut self, sequence: usize, length: usize) -> bool {
        let state = self.cache.checkpoint(sequence, length);
        state.is_some_and(|state| self.backend.rewind(sequence, length, &state))
    }

    /// Saves or copies the state of each sequence whose prefill has reached a length at which that
    /// is wanted.
    fn keep_checkpoints(&mut self, shares: &[BatchShare]) {
        for share in shares.iter().filter(|share| share.row.is_none()) {
            let active = &self.active[share.active];
            let sequence = active.sequence;
            if active.checkpoints.contains(&self.cache.len(sequence)) {
                self.keep_checkpoint(sequence);
            }
            self.copy_prefix(share.active);
        }
    }

    /// Sends a copy of a sequence to its job, if the job wants one at the current length. If saving
    /// fails, no copy is sent.
    fn copy_prefix(&mut self, index: usize) {
        let active = &mut self.active[index];
        let (sequence, length) = (active.sequence, self.cache.len(active.sequence));
        let lengths = &mut active.job.copied_lengths;
        if !lengths.contains(&length) || self.cache.inexact_from(sequence).is_some() {
            return;
        }
        // A job that restarts must not send the copy again.
        lengths.retain(|other| *other != length);
        if let Ok(data) = self.backend.save(sequence) {
            let tokens = self.cache.tokens(sequence).to_vec();
            active.send_prefix(SavedSequence {
                tokens,
                adapters: active.job.adapters.clone(),
                data,
            });
        }
    }

    fn keep_checkpoint(&mut self, sequence: usize) {
        if let Some(state) = self.backend.checkpoint(sequence) {
            self.cache.keep_checkpoint(sequence, state);
        }
    }

    fn draft(
        &mut self,
        adapters: &AdapterScales,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let Some(speculation) = &mut self.speculation else { return Vec::new() };
        speculation.draft(
            adapters,
            &mut self.active,
            &self.cache,
            self.backend.as_ref(),
            self.vocab.as_ref(),
            abort,
        )
    }

    /// Processes a finished decode: updates the cache, and samples tokens where logits were
    /// requested.
    fn advance(&mut self, batch: &[BatchEntry], shares: Vec<BatchShare>) {
        for entry in batch {
            self.cache.push(entry.sequence, &[entry.token]);
        }
        self.keep_checkpoints(&shares);
        let mut ended = Vec::new();
        for sampled in self.sample(&shares) {
            if sampled.surplus > 0 {
                self.remove_surplus(sampled.active, sampled.surplus);
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

    /// Samples from the rows of all shares in parallel.
    fn sample(&mut self, shares: &[BatchShare]) -> Vec<SampledShare> {
        let n_ctx = self.backend.n_ctx();
        let n_max = self.speculation.as_ref().map(Speculation::n_max);
        let mut jobs: Vec<Option<&mut ActiveJob>> = self.active.iter_mut().map(Some).collect();
        let tasks = shares.iter().filter_map(|share| {
            let first = share.row?;
            let active = jobs[share.active].take()?;
            let rows = first..=first + share.draft.len();
            let length = self.cache.len(active.sequence) - share.draft.len();
            let room = match active.job.shift_keeps {
                Some(_) => usize::MAX,
                None => n_ctx.saturating_sub(length),
            };
            let rows = rows.map(|row| self.backend.logits(row)).collect();
            Some(SamplingTask { share, active, rows, room })
        });
        let tasks: Vec<SamplingTask> = tasks.collect();
        let writes_later = writing::is_later(self.backend.as_ref(), tasks.len());
        let vocab = self.vocab.as_ref();
        self.helpers.map(tasks, |task| task.run(vocab, n_max, writes_later))
    }

    fn fail(&mut self, index: usize, error: Error) {
        let active = self.active.remove(index);
        self.release(active.sequence);
        active.fail(error);
    }

    fn finish(&mut self, index: usize, finish: Finish) {
        let mut active = self.active.remove(index);
        let finish = active.write(self.vocab.as_ref()).unwrap_or(finish);
        self.release(active.sequence);
        let drafted = self.speculation.as_ref().map(|_| active.pace.drafted());
        active.finish(finish, drafted);
    }
}
