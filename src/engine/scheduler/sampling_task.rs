//! The rows of one job in a decode, sampled on any thread.

use super::BatchShare;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::Vocab;
use crate::engine::job::Finish;
use crate::error::Result;

/// The rows of a share, for one thread.
pub(super) struct SamplingTask<'a> {
    pub(super) share: &'a BatchShare,
    pub(super) active: &'a mut ActiveJob,
    /// The row of the job's next token, and those of its draft.
    pub(super) rows: Vec<Result<&'a [f32]>>,
    /// Tokens until the context is full.
    pub(super) room: usize,
}

/// What came of a share.
pub(super) struct SampledShare {
    pub(super) active: usize,
    pub(super) drafted: usize,
    /// How many drafted tokens were right.
    pub(super) right: usize,
    /// How the job ends, if it does.
    pub(super) end: Option<Result<Finish>>,
}

impl SamplingTask<'_> {
    /// Samples while each token equals the drafted one. `n_max` is the most tokens of a draft.
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
