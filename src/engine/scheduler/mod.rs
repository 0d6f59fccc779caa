//! Runs the jobs of all chats in one batch: admits jobs, fills the next batch, and takes its
//! results.
//!
//! Each step admits waiting jobs in order of arrival, as long as a sequence and enough cells are
//! free (`admission`); a long job makes room for a short one (`growth`). It fills a batch with the
//! next token and the draft (`speculate`) of every decoding job, then with prefill, short prompts
//! first (`batch`). Then it decodes, and samples all rows in parallel (`sampling_task`). Jobs with
//! different adapters are never in the same batch: they take turns. Only the decode blocks.

mod admission;
mod batch;
mod context_shift;
mod growth;
mod media;
mod prompt_room;
mod sampling_task;
mod sequences;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::active_job::ActiveJob;
use super::backend::{Backend, BatchEntry, Decoded};
use super::interrupt::Interrupt;
use super::job::{Finish, Job, JobOutcome, JobUpdate};
use super::media::is_media;
use super::prefix_cache::PrefixCache;
use super::side_by_side::HelperThreads;
use super::speculate::{self, DecodedTokens, Draft, Speculation};
use super::threads::{StepThreads, ThreadController};
use super::vocab::Vocab;
use crate::api::AdapterScales;
use crate::error::{Error, Result};
use batch::{BatchShare, NextBatch, Turns};
pub(crate) use context_shift::dropped_tokens;
use prompt_room::PromptPace;
use sampling_task::{SampledShare, SamplingTask, writes_later};

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
    prompt_pace: PromptPace,
    /// Whether jobs may be held, or have to be: some have restarted.
    has_restarted: bool,
    /// How many jobs were admitted while an earlier one waited, since that last changed.
    overtaken: usize,
}

impl Scheduler {
    /// Ignores `speculation` if the backend cannot remove rejected drafts.
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        vocab: Arc<dyn Vocab>,
        speculation: Option<Speculation>,
    ) -> Self {
        let cache = PrefixCache::new(backend.n_sequences(), backend.n_cells());
        let speculation = speculation.filter(|_| backend.max_rollback() > 0);
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
            prompt_pace: PromptPace::default(),
            has_restarted: false,
            overtaken: 0,
        }
    }

    pub(crate) fn add(&mut self, job: Job) {
        self.waiting.push_back(job);
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
        self.grow();
        let interrupts: Vec<Interrupt> =
            self.active.iter().map(|active| active.job.interrupt.clone()).collect();
        let abort = move || interrupts.iter().any(Interrupt::is_over);
        self.shift_full_contexts();
        self.compute_media();
        let running = |active: &&ActiveJob| !self.cache.is_held(active.sequence);
        let running: Vec<&ActiveJob> = self.active.iter().filter(running).collect();
        let Some(adapters) = self.turns.next(&running) else { return };
        let drafts = self.draft(&adapters, &abort);
        let n_batch = self.backend.n_batch();
        self.prompt_pace.see(self.active.len() + self.waiting.len(), Instant::now());
        let room = (n_batch, &self.prompt_pace);
        let NextBatch { entries, shares, n_reply } =
            NextBatch::fill(&self.active, &self.cache, room, &adapters, drafts);
        if entries.is_empty() {
            return;
        }
        if let Err(error) = self.backend.set_adapters(&adapters) {
            return self.fail_batch(&shares, &error);
        }
        let (decoded, used) = self.decode(&entries, &abort);
        shares.iter().for_each(|share| self.active[share.active].threads.add(used));
        if let Some(speculation) = &mut self.speculation {
            speculation.set_threads(used.threads);
        }
        match decoded {
            Ok(Decoded::Done) => {
                self.prompt_pace.record(entries.len() - n_reply, n_reply > 0, used.wall);
                self.advance(&entries, &shares);
            }
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

    fn draft(&mut self, adapters: &AdapterScales, abort: &(dyn Fn() -> bool + Sync)) -> Vec<Draft> {
        let Some(speculation) = &mut self.speculation else { return Vec::new() };
        let mut drafts = speculation.draft(
            adapters,
            &mut self.active,
            &self.cache,
            self.backend.as_ref(),
            self.vocab.as_ref(),
            abort,
        );
        for draft in &mut drafts {
            // A repetition may lead into media, which no token continues.
            let end = draft.tokens.iter().position(|token| is_media(*token));
            draft.tokens.truncate(end.unwrap_or(draft.tokens.len()));
        }
        let (active, cache) = (&self.active, &self.cache);
        speculate::level(&mut drafts, adapters, active, cache, self.backend.as_ref());
        drafts
    }

    /// Decodes a batch. Meanwhile another thread sends the text of the last tokens.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> (Result<Decoded>, StepThreads) {
        let Scheduler { backend, threads, helpers, vocab, active, .. } = self;
        let mut decode = || threads.decode(backend.as_mut(), batch, abort);
        let unwritten: Vec<&mut ActiveJob> =
            active.iter_mut().filter(|active| active.is_unwritten()).collect();
        if unwritten.is_empty() {
            return decode();
        }
        let vocab = vocab.as_ref();
        let write = || {
            for active in unwritten {
                active.write(vocab);
            }
        };
        helpers.join(write, decode)
    }

    /// Processes a finished decode: updates the cache, and samples tokens where logits were
    /// requested.
    fn advance(&mut self, batch: &[BatchEntry], shares: &[BatchShare]) {
        for entry in batch {
            self.cache.push(entry.sequence, &[entry.token]);
        }
        self.keep_checkpoints(shares);
        self.pass_hidden(shares);
        let mut ended = Vec::new();
        for sampled in self.sample(shares) {
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

    /// Passes the hidden states of the new tokens to a drafter that reads them.
    fn pass_hidden(&mut self, shares: &[BatchShare]) {
        let Scheduler { speculation, backend, cache, active, .. } = self;
        let Some(speculation) = speculation.as_mut().filter(|it| it.reads_hidden()) else { return };
        let Some(states) = backend.hidden() else { return };
        let count = |share: &BatchShare| cache.len(active[share.active].sequence) - share.before;
        let all: usize = shares.iter().map(count).sum();
        let length = states.len() / all.max(1);
        let mut rest = states;
        let mut parts = Vec::new();
        for share in shares {
            let (states, others) = rest.split_at(count(share) * length);
            rest = others;
            let job = &active[share.active];
            if job.paces.is_some() {
                let (sequence, tokens) = (job.sequence, cache.tokens(job.sequence));
                parts.push(DecodedTokens { sequence, tokens, before: share.before, states });
            }
        }
        speculation.decoded(&parts);
    }

    /// Samples from the rows of all shares in parallel.
    fn sample(&mut self, shares: &[BatchShare]) -> Vec<SampledShare> {
        let n_ctx = self.backend.n_ctx();
        let mut jobs: Vec<Option<&mut ActiveJob>> = self.active.iter_mut().map(Some).collect();
        let tasks = shares.iter().filter_map(|share| {
            let first = share.row?;
            let active = jobs[share.active].take()?;
            let drafted = share.draft.tokens.len();
            let rows = first..=first + drafted;
            let length = self.cache.len(active.sequence) - drafted;
            let room = match active.job.shift_keeps {
                Some(_) => usize::MAX,
                None => n_ctx.saturating_sub(length),
            };
            let rows = rows.map(|row| self.backend.logits(row)).collect();
            Some(SamplingTask { share, active, rows, room })
        });
        let tasks: Vec<SamplingTask> = tasks.collect();
        let writes_later = writes_later(self.backend.as_ref(), tasks.len());
        let vocab = self.vocab.as_ref();
        self.helpers.map(tasks, |task| task.run(vocab, writes_later))
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
        active.finish(finish);
    }
}
