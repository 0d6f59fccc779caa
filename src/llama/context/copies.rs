//! Copies of sequences that llama.cpp has still to make.
//!
//! If each sequence has cells of its own, `llama_memory_seq_cp` only notes the copy. The next decode
//! makes it, before it computes. Until then the cells of the copy hold other data, data that is
//! restored into the copy is overwritten, and data that is restored into its source is copied.

/// The copies since the last decode.
pub(super) struct PendingCopies {
    /// Whether sequences have cells of their own.
    are_deferred: bool,
    /// The source and the target of each.
    pairs: Vec<(usize, usize)>,
}

impl PendingCopies {
    pub(super) fn new(are_deferred: bool) -> PendingCopies {
        PendingCopies { are_deferred, pairs: Vec::new() }
    }

    /// Notes a copy.
    pub(super) fn copied(&mut self, from: usize, to: usize) {
        if self.are_deferred {
            self.pairs.push((from, to));
        }
    }

    /// Notes a decode, which makes the copies.
    pub(super) fn decoded(&mut self) {
        self.pairs.clear();
    }

    /// Whether the cells of a sequence may hold other data than its own.
    pub(super) fn is_target(&self, sequence: usize) -> bool {
        self.pairs.iter().any(|(_, to)| *to == sequence)
    }

    /// Whether the next decode reads or writes all cells of a sequence.
    pub(super) fn concern(&self, sequence: usize) -> bool {
        self.pairs.iter().any(|(from, to)| [*from, *to].contains(&sequence))
    }
}
