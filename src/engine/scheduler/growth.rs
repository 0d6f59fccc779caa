//! Cells for replies, in parts. A job reserves cells for a part of its reply, and for another part
//! when these are full, so that jobs run side by side, whatever their `max_tokens`. If all cells are
//! reserved, the longest job waits: it frees as many cells as others need, from its end, and
//! computes these tokens again when there is room. A short job waits for a long one only as long as
//! the long one has waited for others.

use super::Scheduler;
use crate::engine::active_job::ActiveJob;
use crate::engine::job::Job;
use crate::engine::prefix_cache::common_prefix;

/// The tokens of a reply for which cells are reserved at once.
pub(super) const PART: usize = 256;

/// The cells that a job reserves when it is admitted.
pub(super) fn reserved_cells(job: &Job, n_ctx: usize) -> usize {
    (job.prompt.len() + job.max_tokens.map_or(PART, |most| most.min(PART))).min(n_ctx)
}

impl Scheduler {
    /// Reserves cells for the next part of each reply that has filled its cells.
    pub(super) fn grow(&mut self) {
        let n_ctx = self.backend.n_ctx();
        let mut has_grown = false;
        for index in 0..self.active.len() {
            let active = &self.active[index];
            let sequence = active.sequence;
            let needed = match active.next {
                Some(_) => self.cache.len(sequence) + 1,
                None => active.job.prompt.len(),
            };
            let reserved = self.cache.reserved(sequence);
            if reserved >= needed {
                continue;
            }
            has_grown = true;
            let cells = (needed + active.tokens_left().min(PART)).min(n_ctx);
            // The last one to wait is this job.
            while !self.cache.is_held(sequence) && !self.cache.reserve(sequence, cells) {
                let victim = self.last_paused().or_else(|| self.longest_running(|_| true));
                let Some(victim) = victim else { break };
                self.pause(victim, if victim == index { 0 } else { cells - reserved });
            }
        }
        if has_grown {
            for idle in self.cache.evictions() {
                self.forget_from(idle, 0);
            }
        }
        self.count_steps();
    }

    /// Pauses the longest job to make room for one that waits. The longest one must be twice as
    /// long, and have run for as many steps as it has waited before. In prefill it must have
    /// computed more than it computes again. Returns false if there is none.
    pub(super) fn make_room(&mut self, cells: usize) -> bool {
        let may_pause = |active: &ActiveJob| {
            let (length, turn) = (self.cache.len(active.sequence), &active.turn);
            let is_over = turn.steps >= turn.waited.clamp(1, PART);
            let has_progress = active.next.is_some() || length >= turn.began + 2 * cells;
            length >= 2 * cells && is_over && has_progress
        };
        let Some(longest) = self.longest_running(may_pause) else { return false };
        self.pause(longest, cells);
        true
    }

    /// The running job with the most tokens; of equals the one that was admitted last.
    fn longest_running(&self, is_of: impl Fn(&ActiveJob) -> bool) -> Option<usize> {
        let is_running = |index: &usize| {
            let active = &self.active[*index];
            !self.cache.is_held(active.sequence) && is_of(active)
        };
        let length = |index: &usize| self.cache.len(self.active[*index].sequence);
        (0..self.active.len()).filter(is_running).max_by_key(length)
    }

    /// The paused job that was admitted last and still has cells.
    fn last_paused(&self) -> Option<usize> {
        let has_cells = |active: &ActiveJob| {
            self.cache.is_held(active.sequence) && self.cache.len(active.sequence) > 0
        };
        self.active.iter().rposition(has_cells)
    }

    /// Lets a job wait, and frees the last cells of its sequence until there are this many. It
    /// computes those tokens again when there is room.
    fn pause(&mut self, index: usize, cells: usize) {
        self.renew_prompt(index);
        let active = &mut self.active[index];
        active.turn.waited = 0;
        let sequence = active.sequence;
        let part = active.tokens_left().min(PART);
        let reserved = (active.job.prompt.len() + part).min(self.backend.n_ctx());
        // A shift has dropped tokens in the middle.
        let same = common_prefix(self.cache.tokens(sequence), &active.job.prompt);
        self.cache.hold(sequence);
        let length = self.cache.len(sequence);
        let kept = same.min(length.saturating_sub(self.cache.missing(cells)));
        // A piece of media is computed as a whole.
        let kept = self.active[index].media_at(kept).map_or(kept, |placed| placed.start);
        self.forget_from(sequence, kept);
        self.cache.reserve(sequence, reserved);
    }

    /// Lets paused jobs go on for which there is room, in the order of their admission. If no other
    /// job runs, the first one gets the cells of the others.
    pub(super) fn resume_paused(&mut self) {
        for index in 0..self.active.len() {
            if self.cache.is_held(self.active[index].sequence) && !self.resume(index) {
                self.has_restarted = true;
                break;
            }
        }
        let is_paused = |active: &ActiveJob| self.cache.is_held(active.sequence);
        if self.active.iter().all(is_paused) {
            for index in (1..self.active.len()).rev() {
                self.forget_from(self.active[index].sequence, 0);
                if self.resume(0) {
                    break;
                }
            }
        }
    }

    /// Lets a paused job go on. Returns false if there are too few cells.
    fn resume(&mut self, index: usize) -> bool {
        let active = &mut self.active[index];
        if !self.cache.resume(active.sequence) {
            return false;
        }
        (active.turn.began, active.turn.steps) = (self.cache.len(active.sequence), 0);
        self.count_overtaken(false);
        true
    }

    /// Counts the steps for which jobs run or wait.
    fn count_steps(&mut self) {
        for active in &mut self.active {
            if self.cache.is_held(active.sequence) {
                active.turn.waited += 1;
            } else {
                active.turn.steps += 1;
            }
        }
    }
}
