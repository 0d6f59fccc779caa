//! Computes the media that a job in prefill has reached. They are decoded in batches of their own,
//! because a batch of llama.cpp has either tokens or embeddings. Each step computes one of them, and
//! then a batch of tokens as always.

use super::Scheduler;
use super::batch::BatchShare;
use crate::engine::backend::{Decoded, EmbeddingBatch};
use crate::engine::speculate::Draft;

impl Scheduler {
    /// Encodes the piece that the first such job has reached, if that has not been done, and decodes
    /// as much of it as a batch holds.
    pub(super) fn compute_media(&mut self) {
        let due = self.active.iter().enumerate().find_map(|(index, active)| {
            let before = self.cache.len(active.sequence);
            let is_running = active.next.is_none() && !self.cache.is_held(active.sequence);
            let placed = active.media_at(before).filter(|_| is_running)?;
            Some((index, before, placed.clone()))
        });
        let Some((index, before, placed)) = due else { return };
        let active = &self.active[index];
        let (sequence, interrupt) = (active.sequence, active.job.interrupt.clone());
        let adapters = active.job.adapters.clone();
        let abort = move || interrupt.is_over();
        let embeddings = match placed.piece.embeddings(&abort) {
            Ok(Some(embeddings)) => embeddings,
            // The next step ends the job.
            Ok(None) => return,
            Err(error) => return self.fail(index, error),
        };
        let mut share = [BatchShare { active: index, before, row: None, draft: Draft::default() }];
        if let Err(error) = self.backend.set_adapters(&adapters) {
            return self.fail_batch(&share, &error);
        }
        let length = embeddings.len() / placed.piece.len();
        let start = before - placed.start;
        let count = (placed.piece.len() - start).min(self.backend.n_batch());
        let decoded = self.backend.decode_embeddings(
            &EmbeddingBatch {
                rows: &embeddings[start * length..(start + count) * length],
                start,
                count,
                sequence,
                position: before,
                is_causal: placed.piece.is_causal(),
                rotations: placed.piece.rotations(),
            },
            &abort,
        );
        match decoded {
            Ok(Decoded::Done) => {
                self.cache.push(sequence, &placed.piece.places()[start..start + count]);
                self.keep_checkpoints(&share);
            }
            Ok(Decoded::Aborted) => {
                // The places of a picture may have one position, and are then removed together.
                self.cache.truncate(sequence, placed.start);
                share[0].before = placed.start;
                self.undo_batch(&share);
            }
            Err(error) => self.fail_batch(&share, &error),
        }
    }
}
