//! Which tokens can be taken back from the states of recurrent layers.
//!
//! With `n_rs_seq`, llama.cpp keeps the states that a sequence had after each of the last tokens of
//! a decode, in rows after each other (`llama_memory_recurrent`). To remove a token, it notes which
//! row is the current state, and the next decode begins there. It does not check that the rows are
//! those of the last tokens, and they may not be:
//!
//! - A decode of fewer tokens leaves older rows as they are.
//! - A decode of several sequences is computed in parts if they have different numbers of tokens.
//!   A later part may move the current state of a sequence of an earlier part, without its older
//!   states. A decode of other sequences may do that, too.
//! - A copy of a sequence forgets which row is the current one.
//!
//! So tokens are taken back only after a decode that had no other sequence, before any other change,
//! and once. Before a copy, the state is read and written, which makes it the first row.

use crate::engine::BatchEntry;

/// What is known of the rows of each sequence.
pub(super) struct Rollbacks {
    /// The maximum number of tokens that llama.cpp can take back; 0 if it cannot.
    most: usize,
    /// The sequence of the last decode, and how many of its last tokens can be taken back.
    last: Option<(usize, usize)>,
    /// Whether the current state of each sequence may be another row than the first.
    pending: Vec<bool>,
}

impl Rollbacks {
    pub(super) fn new(most: usize, n_sequences: usize) -> Rollbacks {
        Rollbacks { most, last: None, pending: vec![false; n_sequences] }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Called before states change or move. Nothing can be taken back until the next decode.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Notes a decode of these entries, which has succeeded.
    pub(super) fn decoded(&mut self, batch: &[BatchEntry]) {
        self.last = None;
        for entry in batch {
            self.pending[entry.sequence] = false;
        }
        if let Some(first) = batch.first()
            && batch.iter().all(|entry| entry.sequence == first.sequence)
        {
            self.last = Some((first.sequence, self.most.min(batch.len() - 1)));
        }
    }

    /// Whether the last `count` tokens of a sequence can be taken back. If so, they are.
    pub(super) fn take_back(&mut self, sequence: usize, count: usize) -> bool {
        let can = self.last.is_some_and(|(last, most)| last == sequence && count <= most);
        if can {
            self.last = None;
            self.pending[sequence] = true;
        }
        can
    }

    /// Whether the current state of a sequence may be another row than the first.
    pub(super) fn is_pending(&self, sequence: usize) -> bool {
        self.pending[sequence]
    }

    /// Called when a sequence is empty, or when its current state is in the first row again.
    pub(super) fn settled(&mut self, sequence: usize) {
        self.last = None;
        self.pending[sequence] = false;
    }

    /// Called when all sequences have been emptied.
    pub(super) fn clear(&mut self) {
        self.last = None;
        self.pending.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sequences: &[usize]) -> Vec<BatchEntry> {
        let entry = |sequence: &usize| BatchEntry {
            token: 0,
            position: 0,
            sequence: *sequence,
            logits: false,
        };
        sequences.iter().map(entry).collect()
    }

    #[test]
    fn only_tokens_of_the_last_decode_are_taken_back_and_once() {
        let mut rollbacks = Rollbacks::new(3, 2);
        let after = |rollbacks: &mut Rollbacks, sequences: &[usize], sequence, count| {
            rollbacks.decoded(&batch(sequences));
            rollbacks.take_back(sequence, count)
        };
        assert!(!rollbacks.take_back(0, 1));
        assert!(after(&mut rollbacks, &[0; 9], 0, 3));
        assert!(!rollbacks.take_back(0, 1), "once");
        assert!(!after(&mut rollbacks, &[0; 9], 0, 4), "more than there are rows");
        assert!(!after(&mut rollbacks, &[0; 2], 0, 2), "a row of an earlier decode");
        assert!(after(&mut rollbacks, &[0; 2], 0, 1));
        assert!(!after(&mut rollbacks, &[0; 9], 1, 1), "another sequence");
        assert!(!after(&mut rollbacks, &[0, 0, 1], 0, 1), "beside another sequence");
        rollbacks.decoded(&batch(&[0; 9]));
        rollbacks.forget();
        assert!(!rollbacks.take_back(0, 1), "states may have moved");
        assert!(!after(&mut Rollbacks::new(0, 1), &[0; 9], 0, 1));
    }

    #[test]
    fn a_state_is_pending_until_the_sequence_is_decoded() {
        let mut rollbacks = Rollbacks::new(3, 2);
        rollbacks.decoded(&batch(&[0; 4]));
        assert!(!rollbacks.is_pending(0));
        assert!(rollbacks.take_back(0, 2) && rollbacks.is_pending(0));
        rollbacks.decoded(&batch(&[1; 4]));
        assert!(rollbacks.is_pending(0) && !rollbacks.is_pending(1));
        rollbacks.decoded(&batch(&[1, 0]));
        assert!(!rollbacks.is_pending(0));
        for settle in [Rollbacks::clear, |rollbacks: &mut Rollbacks| rollbacks.settled(0)] {
            rollbacks.decoded(&batch(&[0; 4]));
            assert!(rollbacks.take_back(0, 1));
            settle(&mut rollbacks);
            assert!(!rollbacks.is_pending(0));
        }
    }
}
