//! Fills the next batch: first tokens and drafts of the jobs that decode, then prefill.

use super::Scheduler;
use crate::api::AdapterScales;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::{BatchEntry, TokenId};

/// The entries of one job in the batch.
pub(super) struct BatchShare {
    pub(super) active: usize,
    /// The length of the job's sequence before the batch.
    pub(super) before: usize,
    /// The first row whose logits are needed; `None` if none are.
    pub(super) row: Option<usize>,
    /// The drafted tokens. Their rows follow `row`.
    pub(super) draft: Vec<TokenId>,
}

impl Scheduler {
    /// Fills a batch with the jobs that use these adapters. `drafts` has one draft for each active
    /// job, or is empty. Jobs that decode are in the order of their sequences: if each has its own
    /// cells, llama.cpp computes only consecutive sequences together.
    pub(super) fn fill_batch(
        &self,
        adapters: &AdapterScales,
        mut drafts: Vec<Vec<TokenId>>,
    ) -> (Vec<BatchEntry>, Vec<BatchShare>) {
        let n_batch = self.backend.n_batch();
        let mut batch = Vec::new();
        let mut shares = Vec::new();
        let mut ordered: Vec<(usize, &ActiveJob)> = self.active.iter().enumerate().collect();
        ordered.sort_by_key(|(_, active)| active.sequence);
        for (index, active) in ordered {
            let draft = drafts.get_mut(index).map(std::mem::take).unwrap_or_default();
            if let Some(token) = active.next.filter(|_| active.job.adapters == *adapters) {
                let before = self.cache.len(active.sequence);
                let row = Some(batch.len());
                for (offset, token) in [token].iter().chain(&draft).enumerate() {
                    let position = before + offset;
                    batch.push(BatchEntry {
                        token: *token,
                        position,
                        sequence: active.sequence,
                        logits: true,
                    });
                }
                shares.push(BatchShare { active: index, before, row, draft });
            }
        }
        let is_prefill = |active: &ActiveJob| {
            active.next.is_none()
                && active.job.adapters == *adapters
                && !self.cache.is_held(active.sequence)
        };
        for (index, active) in
            self.active.iter().enumerate().filter(|(_, active)| is_prefill(active))
        {
            let before = self.cache.len(active.sequence);
            let room = n_batch - batch.len();
            let rest = &active.job.prompt[before..];
            let room = active.next_stop(before).map_or(room, |due| room.min(due - before));
            let chunk = &rest[..rest.len().min(room)];
            if chunk.is_empty() {
                break;
            }
            let whole = chunk.len() == rest.len();
            for (offset, &token) in chunk.iter().enumerate() {
                let logits = whole && offset + 1 == chunk.len();
                batch.push(BatchEntry {
                    token,
                    position: before + offset,
                    sequence: active.sequence,
                    logits,
                });
            }
            shares.push(BatchShare {
                active: index,
                before,
                row: whole.then(|| batch.len() - 1),
                draft: Vec::new(),
            });
        }
        (batch, shares)
    }
}
