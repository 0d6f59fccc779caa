//! Samples the rows of one job after a decode, on any thread.
//!
//! The text of the last tokens may be sent later, while the backend computes the next ones. With a
//! device, the next batch can be submitted as soon as all tokens are chosen. Detokenizing them,
//! searching for stop strings and waking the receivers then takes no time of a step. If the text
//! ends a job, its next token is computed for nothing and removed from its sequence.

use super::batch::BatchShare;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::{Backend, ThreadPolicy};
use crate::engine::job::Finish;
use crate::engine::side_by_side;
use crate::engine::vocab::Vocab;
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
    /// How many of the last decoded tokens do not belong to the reply: rejected drafts, and the
    /// token after a stop string.
    pub(super) surplus: usize,
    /// Why the job ends; `None` if it continues.
    pub(super) end: Option<Result<Finish>>,
}

impl SamplingTask<'_> {
    /// Samples row by row as long as each token equals the drafted one. With `writes_later`, the
    /// text of the last token is not sent yet, unless the job ends.
    pub(super) fn run(self, vocab: &dyn Vocab, writes_later: bool) -> SampledShare {
        let SamplingTask { share, active, rows, room } = self;
        let draft = &share.draft.tokens;
        let mut sampled = SampledShare {
            active: share.active,
            surplus: draft.len(),
            end: active.ended().map(Ok),
        };
        if sampled.end.is_some() {
            // The text of the previous token has ended the job during the decode.
            sampled.surplus += 1;
            return sampled;
        }
        let mut right = 0;
        for (row, logits) in rows.into_iter().enumerate() {
            let chosen = match logits.and_then(|logits| active.choose(logits)) {
                Ok(chosen) => chosen,
                Err(error) => {
                    sampled.end = Some(Err(error));
                    break;
                }
            };
            let end = active.take(chosen, vocab, row >= room);
            let is_drafted = end.is_none() && draft.get(row).copied() == active.next;
            let end = if writes_later && !is_drafted && end.is_none() {
                None
            } else {
                active.write(vocab).or(end)
            };
            if end.is_some() || !is_drafted {
                sampled.end = end.map(Ok);
                break;
            }
            right += 1;
        }
        sampled.surplus -= right;
        if let Some(paces) = &mut active.paces {
            paces.verified(&share.draft, right);
        }
        sampled
    }
}

/// Whether the text of this many jobs is sent during the next decode. If the processors compute,
/// they are not idle during a decode. A backend that is not divisible cannot remove a token.
pub(super) fn writes_later(backend: &dyn Backend, jobs: usize) -> bool {
    let threads = backend.threads();
    threads.policy == ThreadPolicy::Device
        && threads.most > 1
        && backend.is_divisible()
        && side_by_side::is_worth_a_thread(jobs)
}
