//! Which tokens can be taken back from sequences of a model that keeps states.
//!
//! llama.cpp keeps the states before each of the last tokens of a decode (`n_rs_seq`), so the end of
//! a sequence can be removed once, right after its decode. It notes which state is the current one,
//! and reads it in the next decode. A copy of the sequence would not have the note
//! (docs/upstream.md).

use super::context::LlamaContext;
use crate::engine::{Backend, BatchEntry};

/// What can be taken back from each sequence.
#[derive(Debug, Default)]
pub(super) struct Rollbacks {
    /// The most tokens that llama.cpp takes back.
    most: usize,
    sequences: Vec<SequenceRollback>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SequenceRollback {
    /// How many of the last tokens can be removed now.
    removable: usize,
    /// Whether tokens were removed since the last decode.
    is_pending: bool,
}

impl Rollbacks {
    pub(super) fn new(most: usize, n_sequences: usize) -> Rollbacks {
        Rollbacks { most, sequences: vec![SequenceRollback::default(); n_sequences] }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Records a batch that was computed. At least one of its tokens stays in each sequence, because
    /// the state before the batch is gone.
    pub(super) fn decoded(&mut self, batch: &[BatchEntry]) {
        if self.most == 0 {
            return;
        }
        for entry in batch {
            self.reset(entry.sequence);
        }
        let mut counts = vec![0_usize; self.sequences.len()];
        batch.iter().for_each(|entry| counts[entry.sequence] += 1);
        for (sequence, count) in self.sequences.iter_mut().zip(counts) {
            if count > 0 {
                sequence.removable = (count - 1).min(self.most);
            }
        }
    }

    /// Records that the last tokens of a sequence are removed. Returns false if they cannot be.
    pub(super) fn take_back(&mut self, sequence: usize, tokens: usize) -> bool {
        let of = &mut self.sequences[sequence];
        if tokens > of.removable {
            return false;
        }
        *of = SequenceRollback { removable: 0, is_pending: true };
        true
    }

    /// Whether tokens were removed from a sequence since its last decode.
    pub(super) fn is_pending(&self, sequence: usize) -> bool {
        self.sequences[sequence].is_pending
    }

    /// Records that a sequence was emptied, replaced or copied: nothing can be taken back from it.
    pub(super) fn reset(&mut self, sequence: usize) {
        self.sequences[sequence] = SequenceRollback::default();
    }

    /// Records that all sequences were emptied.
    pub(super) fn clear(&mut self) {
        self.sequences.fill(SequenceRollback::default());
    }
}

impl LlamaContext {
    /// Makes the state after a rollback the one that copies get. llama.cpp does that when a state is
    /// read. Returns false if no memory is left for a copy of it.
    pub(super) fn settle(&mut self, sequence: usize) -> bool {
        if !self.rollbacks.is_pending(sequence) {
            return true;
        }
        let held = self.last_position(sequence).map_or(0, |last| last + 1);
        let Some(state) = self.checkpoint(sequence) else { return false };
        let is_settled = self.rewind(sequence, held, &state);
        if !is_settled {
            // The sequence is lost, but the caller still expects it.
            self.abandon();
        }
        is_settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(counts: &[usize]) -> Vec<BatchEntry> {
        let entry = |sequence| BatchEntry { token: 0, position: 0, sequence, logits: true };
        let entries = counts.iter().enumerate();
        entries.flat_map(|(sequence, count)| vec![entry(sequence); *count]).collect()
    }

    #[test]
    fn only_tokens_of_the_last_decode_are_taken_back_and_only_once() {
        let mut rollbacks = Rollbacks::new(3, 3);
        assert!(!rollbacks.take_back(0, 1), "nothing was decoded");
        rollbacks.decoded(&batch(&[4, 1, 9]));
        assert!(!rollbacks.take_back(0, 4), "the state before the batch is gone");
        assert!(!rollbacks.take_back(1, 1));
        assert!(!rollbacks.take_back(2, 4), "more than llama.cpp keeps");
        assert!(rollbacks.take_back(2, 3) && rollbacks.is_pending(2));
        // A decode of other sequences changes nothing.
        rollbacks.decoded(&batch(&[0, 2, 0]));
        assert!(rollbacks.is_pending(2) && !rollbacks.take_back(2, 1), "only once");
        assert!(rollbacks.take_back(0, 2) && rollbacks.take_back(1, 1));
        rollbacks.decoded(&batch(&[3, 0, 0]));
        assert!(!rollbacks.is_pending(0) && rollbacks.is_pending(1));
        rollbacks.reset(1);
        assert!(!rollbacks.is_pending(1));
        rollbacks.clear();
        assert!(!rollbacks.take_back(0, 1));
    }

    #[test]
    fn a_model_without_rollback_takes_nothing_back() {
        let mut rollbacks = Rollbacks::new(0, 1);
        rollbacks.decoded(&batch(&[4]));
        assert!(!rollbacks.take_back(0, 1));
    }
}
