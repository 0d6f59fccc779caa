//! Cells for replies, in parts. A job reserves cells for a part of its reply, and for another part
//! when these are full, so that jobs run side by side, whatever their `max_tokens`. If all cells are
//! reserved, the longest job waits: its cells are freed, and it computes its tokens again when there
//! is room. A short job never waits for a long one, except while that makes up for earlier waits.

use super::Scheduler;
use crate::engine::active_job::ActiveJob;
use crate::engine::job::Job;

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
            if self.cache.reserved(sequence) >= needed {
                continue;
            }
            has_grown = true;
            let cells = (needed + active.tokens_left().min(PART)).min(n_ctx);
            // The last one to wait is this job.
            while !self.cache.is_held(sequence) && !self.cache.reserve(sequence, cells) {
                let Some(longest) = self.longest_running(|_| true) else { break };
                self.pause(longest);
            }
        }
        if has_grown {
            for idle in self.cache.evictions() {
                self.forget_from(idle, 0);
            }
        }
    }

    /// Pauses the longest job to make room for one that waits. The longest one must be twice as
    /// long, and have a new part of its reply since it last began: it makes progress, and computes
    /// again no more often. Returns false if there is none.
    pub(super) fn make_room(&mut self, cells: usize) -> bool {
        let may_pause = |active: &ActiveJob| {
            let length = self.cache.len(active.sequence);
            length >= 2 * cells && active.next.is_some() && length >= active.job.prompt.len() + PART
        };
        let Some(longest) = self.longest_running(may_pause) else { return false };
        self.pause(longest);
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

    /// Frees the cells of a running job. It computes its tokens again when there is room.
    fn pause(&mut self, index: usize) {
        self.restart(index);
        let active = &self.active[index];
        let sequence = active.sequence;
        let part = active.tokens_left().min(PART);
        let cells = (active.job.prompt.len() + part).min(self.backend.n_ctx());
        self.backend.truncate(sequence, 0);
        self.cache.hold(sequence);
        self.cache.reserve(sequence, cells);
    }
}
