//! Which tokens can be taken back from the states of recurrent layers.
//!
//! With `n_rs_seq`, llama.cpp keeps the states that a sequence had after each of the last tokens of
//! a decode, in rows after each other (`llama_memory_recurrent`). To remove a token, it notes which
//! row is the current state, and the next decode begins there. It does not check that the rows are
//! those of the last tokens, and they may not be:
//!
//! - A decode of fewer tokens leaves older rows as they are.
//! - A decode of several sequences is computed in parts if they have different numbers of tokens, or
//!   if each has cells of its own and they do not follow each other (`split_equal`). A later part
//!   may move the current state of a sequence of an earlier part, without its older states. A decode
//!   of other sequences may do that, too.
//! - A copy of a sequence forgets which row is the current one.
//!
//! So tokens are taken back only after a decode that was computed in one part, before any other
//! change, and once for each sequence of that decode. Before a copy, the state is read and written,
//! which makes it the first row.

use crate::engine::BatchEntry;

/// What is known of the rows of each sequence.
pub(super) struct Rollbacks {
    /// The maximum number of tokens that llama.cpp can take back; 0 if it cannot.
    most: usize,
    /// Whether all sequences share the cells of layers with attention.
    shares_cells: bool,
    /// How many of the last tokens of each sequence can be taken back.
    removable: Vec<usize>,
    /// Whether the current state of each sequence may be another row than the first.
    pending: Vec<bool>,
}

impl Rollbacks {
    pub(super) fn new(most: usize, n_sequences: usize, shares_cells: bool) -> Rollbacks {
        let (removable, pending) = (vec![0; n_sequences], vec![false; n_sequences]);
        Rollbacks { most, shares_cells, removable, pending }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Called before states change or move. Nothing can be taken back until the next decode.
    pub(super) fn forget(&mut self) {
        self.removable.fill(0);
    }

    /// Whether llama.cpp computes a decode of these sequences in one part, if they have the same
    /// numbers of tokens.
    pub(super) fn are_computed_together(&self, sequences: &[usize]) -> bool {
        self.shares_cells || sequences.windows(2).all(|pair| pair[0] + 1 == pair[1])
    }

    /// Notes a decode of these entries, which has succeeded.
    pub(super) fn decoded(&mut self, batch: &[BatchEntry]) {
        self.forget();
        // The sequences in their order, with their numbers of tokens.
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for entry in batch {
            self.pending[entry.sequence] = false;
            match counts.iter_mut().find(|(sequence, _)| *sequence == entry.sequence) {
                Some((_, count)) => *count += 1,
                None => counts.push((entry.sequence, 1)),
            }
        }
        let sequences: Vec<usize> = counts.iter().map(|(sequence, _)| *sequence).collect();
        if counts.windows(2).all(|pair| pair[0].1 == pair[1].1)
            && self.are_computed_together(&sequences)
        {
            for (sequence, count) in counts {
                self.removable[sequence] = self.most.min(count - 1);
            }
        }
    }

    /// Whether the last `count` tokens of a sequence can be taken back. If so, they are.
    pub(super) fn take_back(&mut self, sequence: usize, count: usize) -> bool {
        let can = count <= self.removable[sequence] && count > 0;
        if can {
            self.removable[sequence] = 0;
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
        self.forget();
        self.pending[sequence] = false;
    }

    /// Called when all sequences have been emptied.
    pub(super) fn clear(&mut self) {
        self.forget();
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
        let mut rollbacks = Rollbacks::new(3, 2, true);
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
        assert!(!after(&mut rollbacks, &[0, 0, 1], 0, 1), "beside fewer tokens of another one");
        rollbacks.decoded(&batch(&[0; 9]));
        rollbacks.forget();
        assert!(!rollbacks.take_back(0, 1), "states may have moved");
        assert!(!after(&mut Rollbacks::new(0, 1, true), &[0; 9], 0, 1));
    }

    #[test]
    fn tokens_of_several_sequences_are_taken_back_if_they_were_computed_in_one_part() {
        let taken = |shares_cells: bool, sequences: &[usize]| {
            let mut rollbacks = Rollbacks::new(3, 4, shares_cells);
            rollbacks.decoded(&batch(sequences));
            [0, 1, 2, 3].map(|sequence| {
                let most =
                    [3, 2, 1].into_iter().find(|count| rollbacks.take_back(sequence, *count));
                assert!(!rollbacks.take_back(sequence, 1), "once");
                most.unwrap_or(0)
            })
        };
        assert_eq!(taken(true, &[0, 0, 3, 3]), [1, 0, 0, 1]);
        assert_eq!(taken(true, &[3, 3, 3, 3, 3, 0, 0, 0, 0, 0]), [3, 0, 0, 3]);
        assert_eq!(taken(true, &[0, 1, 0, 1]), [1, 1, 0, 0]);
        assert_eq!(taken(true, &[0, 0, 0, 1, 1]), [0; 4], "different numbers");
        assert_eq!(taken(false, &[1, 1, 2, 2, 3, 3]), [0, 1, 1, 1]);
        assert_eq!(taken(false, &[0, 0, 2, 2]), [0; 4], "another sequence is between them");
        assert_eq!(taken(false, &[1, 1, 0, 0]), [0; 4], "in another order");
    }

    #[test]
    fn a_state_is_pending_until_the_sequence_is_decoded() {
        let mut rollbacks = Rollbacks::new(3, 2, true);
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
