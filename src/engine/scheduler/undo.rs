//! Removes decoded tokens that are not part of a reply, undoes a batch that was aborted, and ends
//! the jobs of one that failed.

use super::Scheduler;
use super::batch::BatchShare;
use super::context_shift::shift_prompt;
use crate::error::Error;

impl Scheduler {
    /// Removes the last tokens of a job's sequence, such as rejected drafts. If the backend refuses
    /// that, the job computes its tokens again.
    pub(super) fn remove_surplus(&mut self, index: usize, surplus: usize) {
        let sequence = self.active[index].sequence;
        let length = self.cache.len(sequence) - surplus;
        self.cache.truncate(sequence, length);
        if !self.backend.truncate(sequence, length) {
            self.backend.truncate(sequence, 0);
            self.restart(index);
        }
    }

    /// Undoes an aborted batch. The next step removes the cancelled job.
    pub(super) fn undo_batch(&mut self, shares: &[BatchShare]) {
        if !self.backend.is_divisible() {
            return self.restart_all();
        }
        for share in shares {
            let sequence = self.active[share.active].sequence;
            if !self.backend.truncate(sequence, share.before) {
                // The model cannot remove a part: compute the prompt and the generated tokens
                // again.
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

    /// Restarts the prefill of a job, including the tokens generated so far.
    pub(super) fn restart(&mut self, index: usize) {
        self.renew_prompt(index);
        self.cache.truncate(self.active[index].sequence, 0);
    }

    /// Makes the tokens of a job so far its prompt.
    pub(super) fn renew_prompt(&mut self, index: usize) {
        let active = &mut self.active[index];
        let generated = self
            .cache
            .tokens(active.sequence)
            .get(active.job.prompt.len()..)
            .unwrap_or_default()
            .to_vec();
        active.job.prompt.extend(generated);
        if let Some(next) = active.next.take() {
            shift_prompt(active, self.backend.n_ctx());
            active.job.prompt.push(next);
        }
        self.has_restarted = true;
    }

    /// Restarted jobs have lost the cells that they shared with others, so all jobs together may
    /// need more cells than there are. Pauses the last ones then, until others have ended.
    pub(super) fn share_cells_again(&mut self) {
        if !self.has_restarted {
            return;
        }
        for active in self.active.iter().rev() {
            if self.cache.fits() {
                break;
            }
            if self.cache.len(active.sequence) == 0 {
                self.cache.hold(active.sequence);
            }
        }
        self.has_restarted = false;
        self.resume_paused();
        // Those that go on take the cells of idle sequences.
        for idle in self.cache.evictions() {
            self.forget_from(idle, 0);
        }
    }

    /// Ends the jobs of a failed batch with the error and empties their sequences.
    pub(super) fn fail_batch(&mut self, shares: &[BatchShare], error: &Error) {
        let mut indices: Vec<usize> = shares.iter().map(|share| share.active).collect();
        indices.sort_unstable_by(|a, b| b.cmp(a));
        for index in indices {
            let sequence = self.active[index].sequence;
            self.backend.truncate(sequence, 0);
            self.cache.truncate(sequence, 0);
            match self.active[index].write(self.vocab.as_ref()) {
                Some(finish) => self.finish(index, finish),
                None => self.fail(index, Error::new(error.code(), error.message())),
            }
        }
        if !self.backend.is_divisible() {
            self.restart_all();
        }
    }
}
