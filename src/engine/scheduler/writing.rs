//! Sends the text of the last tokens while the backend computes the next ones.
//!
//! With a device, the next batch can be submitted as soon as all tokens are chosen. Detokenizing
//! them, searching for stop strings and waking the receivers then takes no time of a step. If the
//! text ends a job, its next token is computed for nothing and removed from its sequence.

use super::Scheduler;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::{Backend, BatchEntry, Decoded, ThreadPolicy};
use crate::engine::side_by_side;
use crate::engine::threads::StepThreads;
use crate::error::Result;

/// Whether the text of this many jobs is sent during the next decode. If the processors compute,
/// they are not idle during a decode. A backend that is not divisible cannot remove a token.
pub(super) fn is_later(backend: &dyn Backend, jobs: usize) -> bool {
    let threads = backend.threads();
    threads.policy == ThreadPolicy::Device
        && threads.most > 1
        && backend.is_divisible()
        && side_by_side::is_worth_a_thread(jobs)
}

impl Scheduler {
    /// Decodes a batch. Meanwhile another thread sends the text of the last tokens.
    pub(super) fn decode(
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
}
