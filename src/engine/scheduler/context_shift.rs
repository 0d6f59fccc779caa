//! Shifts the context of a job that is full: half of its tokens are dropped, and the job continues.
//!
//! What is dropped, and when, is the same as in llama-server (`--context-shift`, `n_keep`;
//! llama.cpp b11429, tools/server/server-context.cpp). Before the token that would take the last
//! cell, the first half of the tokens after the kept ones is dropped. The cells after them move,
//! and still hold values that depend on the dropped tokens. A prompt with the same tokens would get
//! other values, so those cells are removed when the job ends.

use super::Scheduler;
use crate::engine::active_job::ActiveJob;
use crate::engine::job::Finish;

/// The minimum number of cells that are not kept, as in llama-server.
const MIN_NOT_KEPT: usize = 4;

/// How many of the first tokens a shift keeps, and how many after them it drops. `held` tokens are
/// in the context, and `keeps` of them should stay.
pub(crate) fn dropped_tokens(held: usize, keeps: usize, n_ctx: usize) -> (usize, usize) {
    let kept = keeps.min(n_ctx.saturating_sub(MIN_NOT_KEPT)).min(held);
    (kept, (held - kept) / 2)
}

/// Shifts the context of a job that is about to compute its tokens again, before its next token is
/// added, if that would take the last cell.
pub(super) fn shift_prompt(active: &mut ActiveJob, n_ctx: usize) {
    let Some(keeps) = active.job.shift_keeps else { return };
    let held = active.job.prompt.len();
    if held + 1 < n_ctx {
        return;
    }
    let (kept, count) = dropped_tokens(held, keeps, n_ctx);
    active.job.prompt.drain(kept..kept + count);
    count_shift(active, count);
}

fn count_shift(active: &mut ActiveJob, dropped: usize) {
    active.outcome.shifts.times += 1;
    active.outcome.shifts.dropped += dropped;
}

impl Scheduler {
    /// Makes room in each full context. A job whose context cannot be shifted ends.
    pub(super) fn shift_full_contexts(&mut self) {
        for index in (0..self.active.len()).rev() {
            let active = &self.active[index];
            let (Some(keeps), Some(_)) = (active.job.shift_keeps, active.next) else { continue };
            let held = self.cache.len(active.sequence);
            if held + 1 < self.backend.n_ctx() {
                continue;
            }
            // A job that ends here must not lose what it has computed.
            if let Some(finish) = self.active[index].write(self.vocab.as_ref()) {
                self.finish(index, finish);
            } else if !self.shift(index, held, keeps) {
                self.finish(index, Finish::Length);
            }
        }
    }

    fn shift(&mut self, index: usize, held: usize, keeps: usize) -> bool {
        let sequence = self.active[index].sequence;
        let (kept, count) = dropped_tokens(held, keeps, self.backend.n_ctx());
        if count == 0 {
            return false;
        }
        // Cells that are shared would move in every sequence. A job that may fill the context runs
        // alone, so only idle sequences can share its cells.
        for other in self.cache.sharing(sequence, kept) {
            if self.cache.is_busy(other) {
                return false;
            }
            self.forget_from(other, kept);
        }
        let Some(exact) = self.backend.shift(sequence, kept, count) else { return false };
        self.cache.shift(sequence, kept, count, exact);
        let active = &mut self.active[index];
        count_shift(active, count);
        // If the job restarts, this is the prompt that it computes.
        active.job.prompt = self.cache.tokens(sequence).to_vec();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::dropped_tokens;

    #[test]
    fn half_of_what_is_not_kept_leaves() {
        assert_eq!(dropped_tokens(511, 0, 512), (0, 255));
        assert_eq!(dropped_tokens(511, 11, 512), (11, 250));
        // Four cells are never kept.
        assert_eq!(dropped_tokens(511, 600, 512), (508, 1));
        assert_eq!(dropped_tokens(15, 16, 16), (12, 1));
    }
}
