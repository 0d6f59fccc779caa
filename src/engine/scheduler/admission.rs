//! Admits waiting jobs: claims a sequence for each, fills it with what is cached of the prompt, and
//! creates its samplers.

use std::time::Instant;

use super::Scheduler;
use super::growth::reserved_cells;
use crate::engine::active_job::ActiveJob;
use crate::engine::job::{Job, JobUpdate};
use crate::engine::prefix_cache::{CacheClaim, CacheRequest, OPENING, common_prefix};
use crate::engine::sampler::Sampler;
use crate::engine::speculate::Speculation;

/// A job waits until another job has computed the beginning of its prompt if that saves at least
/// this many tokens.
const WORTH_WAITING: usize = 64;
/// How many jobs may be admitted while one that came earlier waits for them.
const MAX_OVERTAKEN: usize = 16;

/// The sequence of a job that is admitted.
struct Admission {
    sequence: usize,
    /// The longest prefix of the prompt that any sequence held, usable or not.
    seen: usize,
    start: Instant,
}

impl Scheduler {
    /// Admits jobs in order of arrival. A job that has to wait, or waits again, lets some later ones
    /// pass for which there is room.
    pub(super) fn admit(&mut self) {
        let mut index = 0;
        while index < self.waiting.len() && self.cache.has_idle() {
            let overtakes = index > 0 || self.has_restarted;
            if overtakes && self.overtaken >= MAX_OVERTAKEN && self.is_held_up(index) {
                return;
            }
            let Some(job) = self.waiting.remove(index) else { return };
            let Some(admission) = self.claim_with_room(&job) else {
                self.waiting.insert(index, job);
                index += 1;
                continue;
            };
            self.count_overtaken(overtakes);
            for idle in self.cache.evictions() {
                self.forget_from(idle, 0);
            }
            self.start(job, &admission, overtakes);
        }
    }

    /// Counts a job that was admitted before one that waits. Without one, none is counted.
    pub(super) fn count_overtaken(&mut self, overtakes: bool) {
        if overtakes {
            self.overtaken += 1;
            return;
        }
        self.overtaken = 0;
        self.active.iter_mut().for_each(|active| active.has_overtaken = false);
    }

    /// Whether those that have overtaken the first job that waits for room, of those before `index`,
    /// or a paused one, are why it waits. They are not if it would wait for the other jobs alone.
    fn is_held_up(&self, index: usize) -> bool {
        if self.has_restarted {
            return true;
        }
        let mut earlier = self.waiting.iter().take(index);
        let first = earlier.find(|job| !self.is_being_computed(job));
        let Some(first) = first else { return false };
        let before = self.active.iter().filter(|active| !active.has_overtaken);
        let before: Vec<usize> = before.map(|active| active.sequence).collect();
        self.cache.has_room_beside(&before, reserved_cells(first, self.backend.n_ctx()))
    }

    /// Claims a sequence for a job. Pauses a much longer job if that makes room.
    fn claim_with_room(&mut self, job: &Job) -> Option<Admission> {
        self.update_shortest();
        if self.is_being_computed(job) {
            return None;
        }
        self.claim(job).or_else(|| {
            let has_room = self.make_room(reserved_cells(job, self.backend.n_ctx()));
            has_room.then(|| self.claim(job)).flatten()
        })
    }

    /// Claims a sequence for a job and fills it with the cached beginning of the prompt. `None` if
    /// the job has to wait.
    fn claim(&mut self, job: &Job) -> Option<Admission> {
        // As in llama-server, time spent on changes of the cache counts as prompt time.
        let start = Instant::now();
        self.update_shortest();
        let (seen, claim) = self.claim_cells(job, true)?;
        if self.fill(claim) {
            return Some(Admission { sequence: claim.sequence, seen, start });
        }
        // Without the copy, too few cells are reserved: claim again without copies.
        self.cache.release(claim.sequence);
        let start = Instant::now();
        self.update_shortest();
        let (seen, claim) = self.claim_cells(job, false)?;
        self.fill(claim);
        Some(Admission { sequence: claim.sequence, seen, start })
    }

    /// Claims a sequence, and cells for the prompt and the reply. Also returns
    /// [`Admission::seen`].
    fn claim_cells(&mut self, job: &Job, copy: bool) -> Option<(usize, CacheClaim)> {
        let seen = self.cache.longest_common(job.cache_key());
        let claim = self.cache.claim(CacheRequest {
            prompt: job.cache_key(),
            reserve: reserved_cells(job, self.backend.n_ctx()),
            chat: job.chat,
            reuse: job.reuse_prefix,
            copy,
        })?;
        Some((seen, claim))
    }

    /// Fills a claimed sequence with the cached beginning of its prompt. Returns false if it cannot
    /// be copied.
    fn fill(&mut self, claim: CacheClaim) -> bool {
        self.forget_from(claim.sequence, claim.kept);
        claim.copy.is_none_or(|(from, length)| self.copy(from, claim.sequence, length))
    }

    /// Starts a job on its sequence. Sends an error if it cannot be sampled.
    fn start(&mut self, job: Job, admission: &Admission, overtakes: bool) {
        let sequence = admission.sequence;
        let sampler = Sampler::new(&job.sampling, self.vocab.suppressed(), &job.breakers);
        let mut sampler = match sampler {
            Ok(sampler) => sampler,
            Err(error) => {
                self.cache.release(sequence);
                return drop(job.updates.send(JobUpdate::Failed(error)));
            }
        };
        let recent = job.prompt.len().saturating_sub(job.sampling.history());
        job.prompt[recent..].iter().for_each(|token| sampler.accept(*token));
        let cached_tokens = self.cache.len(sequence);
        let checkpoints = self.checkpoints_of(&job, sequence, admission.seen);
        if checkpoints.contains(&cached_tokens) {
            self.keep_checkpoint(sequence);
        }
        let mut active = ActiveJob::new(job, sequence, cached_tokens, sampler, admission.start);
        active.checkpoints = checkpoints;
        active.has_overtaken = overtakes;
        let speculation = self.speculation.as_ref().filter(|_| active.job.drafts);
        active.paces = speculation.map(Speculation::paces);
        self.active.push(active);
        self.copy_prefix(self.active.len() - 1);
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

    /// Whether a running job is about to compute the beginning of this prompt. It is ahead, so
    /// waiting loses little. The common prefix is then copied.
    fn is_being_computed(&self, job: &Job) -> bool {
        if !job.reuse_prefix || !self.backend.is_divisible() {
            return false;
        }
        let reusable = &job.prompt[..job.prompt.len().saturating_sub(1)];
        let mut prefills = self.active.iter().filter(|active| {
            let is_running = active.next.is_none() && !self.cache.is_held(active.sequence);
            is_running && active.job.adapters == job.adapters
        });
        prefills.any(|active| {
            let common = common_prefix(&active.job.prompt, reusable);
            let without = self.cache.longest_in_others(active.sequence, job.cache_key());
            self.cache.len(active.sequence) < common && common >= without + WORTH_WAITING
        })
    }
}
