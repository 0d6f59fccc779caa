//! Checkpoints: states that a sequence had at earlier lengths.
//!
//! A model with recurrent layers keeps one state for all tokens of a sequence, so the end of a
//! sequence cannot be removed. A checkpoint is a copy of that state. A sequence can be cut only at
//! the length of a checkpoint.

use std::sync::Arc;

/// The maximum number of checkpoints per sequence, the same as in llama-server.
const MAX: usize = 32;
/// The maximum size of all checkpoints of a model, in bytes.
pub(crate) const MAX_BYTES: usize = 512 << 20;

/// The checkpoints of one sequence.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The checkpoints, by ascending length.
    kept: Vec<Checkpoint>,
}

#[derive(Debug, Clone)]
struct Checkpoint {
    /// The number of tokens in the sequence when the state was saved.
    length: usize,
    state: Arc<Vec<u8>>,
}

impl Checkpoints {
    /// Adds the state after `length` tokens. `length` is greater than that of any other checkpoint.
    pub(crate) fn push(&mut self, length: usize, state: Vec<u8>) {
        if self.kept.len() == MAX {
            self.remove_one();
        }
        self.kept.push(Checkpoint { length, state: Arc::new(state) });
    }

    /// The greatest length with a checkpoint that does not exceed `length`; 0 without such a
    /// checkpoint.
    pub(crate) fn longest_within(&self, length: usize) -> usize {
        self.kept.iter().map(|kept| kept.length).rfind(|kept| *kept <= length).unwrap_or(0)
    }

    /// The state after exactly `length` tokens.
    pub(crate) fn state(&self, length: usize) -> Option<Arc<Vec<u8>>> {
        let kept = self.kept.iter().find(|kept| kept.length == length)?;
        Some(Arc::clone(&kept.state))
    }

    /// Removes the checkpoints of more than `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.kept.retain(|kept| kept.length <= length);
    }

    /// Copies the checkpoints of another sequence up to `length`. The states are shared, not
    /// copied.
    pub(crate) fn copy(&mut self, from: &Checkpoints, length: usize) {
        self.kept = from.kept.iter().filter(|kept| kept.length <= length).cloned().collect();
    }

    /// Removes the second checkpoint, or the only one. The first is at the beginning that
    /// conversations share, and the last ones are where a conversation continues.
    pub(crate) fn remove_one(&mut self) {
        if !self.kept.is_empty() {
            self.kept.remove(usize::from(self.kept.len() > 1));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The size of the states in bytes. A shared state counts fully for each sequence.
    pub(crate) fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.state.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_keeps_its_beginning_and_its_latest_states() {
        let mut checkpoints = Checkpoints::default();
        for length in 1..=MAX + 8 {
            checkpoints.push(10 * length, vec![length as u8]);
        }
        assert_eq!(checkpoints.bytes(), MAX);
        assert_eq!(checkpoints.longest_within(9), 0);
        // The checkpoints from 20 to 90 were removed, because they follow the first one.
        assert_eq!([19, 99, 105].map(|length| checkpoints.longest_within(length)), [10, 10, 100]);
        assert_eq!(checkpoints.state(100).as_deref(), Some(&vec![10]));
        assert_eq!(checkpoints.state(99), None);
        let mut copy = Checkpoints::default();
        copy.copy(&checkpoints, 104);
        assert_eq!(copy.longest_within(1000), 100);
        copy.remove_one();
        copy.remove_one();
        assert!(copy.is_empty());
        checkpoints.truncate(9);
        assert!(checkpoints.is_empty());
    }
}
