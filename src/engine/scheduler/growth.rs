//! Cells for replies without a limit. Such a job reserves cells for a part of its reply, and for
//! another part when these are full, so that jobs whose replies are short run side by side. If all
//! cells are reserved, the jobs that were admitted last wait: their cells are freed, and they
//! compute their tokens again when there is room.

use super::Scheduler;
use crate::engine::active_job::ActiveJob;
use crate::engine::job::Job;

/// The tokens of a reply for which cells are reserved at once.
const PART: usize = 256;

/// The cells that a job reserves when it is admitted.
pub(super) fn reserved_cells(job: &Job, n_ctx: usize) -> usize {
    (job.prompt.len() + job.max_tokens.unwrap_or(PART)).min(n_ctx)
}

impl Scheduler {
    /// Reserves cells for the next part of each reply that has filled its cells.
    pub(super) fn grow(&mut self) {
        let n_ctx = self.backend.n_ctx();
        let mut has_grown = false;
        for index in 0..self.active.len() {
            let ActiveJob { job, sequence, next, .. } = &self.active[index];
            let sequence = *sequence;
            let needed = match next {
                Some(_) => self.cache.len(sequence) + 1,
                None => job.prompt.len(),
            };
            while !self.cache.is_held(sequence) && self.cache.reserved(sequence) < needed {
                has_grown = true;
                if !self.cache.reserve(sequence, (needed + PART).min(n_ctx)) {
                    self.pause_last();
                }
            }
        }
        if has_grown {
            for idle in self.cache.evictions() {
                self.forget_from(idle, 0);
            }
        }
    }

    /// Frees the cells of the running job that was admitted last. It computes its tokens again when
    /// there is room.
    fn pause_last(&mut self) {
        let is_running = |index: &usize| !self.cache.is_held(self.active[*index].sequence);
        let Some(last) = (0..self.active.len()).rev().find(is_running) else { return };
        self.restart(last);
        let ActiveJob { job, sequence, .. } = &self.active[last];
        let (sequence, cells) = (*sequence, reserved_cells(job, self.backend.n_ctx()));
        self.backend.truncate(sequence, 0);
        self.cache.hold(sequence);
        self.cache.reserve(sequence, cells);
    }
}
