//! Samples the rows of one job after a decode, on any thread.

use super::BatchShare;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::Vocab;
use crate::engine::job::Finish;
use crate::error::Result;

/// The rows of one job, to be sampled on one thread.
pub(super) struct SamplingTask<'a> {
    pub(super) share: &'a BatchShare,
    pub(super) active: &'a mut ActiveJob,
    /// The row of the job's next token, followed by those of its draft.
    pub(super) rows: Vec<Result<&'a [f32]>>,
    /// How many more tokens fit in the context.
    pub(super) room: usize,
}

/// The result of sampling the rows of one job.
pub(super) struct SampledShare {
    pub(super) active: usize,
    pub(super) drafted: usize,
    /// How many drafted tokens were accepted.
    pub(super) right: usize,
    /// Why the job ends; `None` if it continues.
    pub(super) end: Option<Result<Finish>>,
}

impl SamplingTask<'_> {
    /// Samples row by row as long as each token equals the drafted one. `n_max` is the maximum
    /// length of a draft.
    pub(super) fn run(self, vocab: &dyn Vocab, n_max: Option<usize>) -> SampledShare {
        let SamplingTask { share, active, rows, room } = self;
        let mut right = 0;
        let mut end = None;
        for (row, logits) in rows.into_iter().enumerate() {
            let chosen = match logits.and_then(|logits| active.choose(logits)) {
                Ok(chosen) => chosen,
                Err(error) => {
                    end = Some(Err(error));
                    break;
                }
            };
            if let Some(finish) = active.take(chosen, vocab, row >= room) {
                end = Some(Ok(finish));
                break;
            }
            if share.draft.get(row).copied() != active.next {
                break;
            }
            right += 1;
        }
        if let Some(n_max) = n_max {
            active.pace.verified(share.draft.len(), right, n_max);
        }
        SampledShare { active: share.active, drafted: share.draft.len(), right, end }
    }
}
