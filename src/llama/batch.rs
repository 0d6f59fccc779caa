//! The arrays of a `llama_batch`, filled from batch entries.

use llama_cpp_sys_2 as sys;

use crate::engine::BatchEntry;

/// The arrays of a `llama_batch`. They are reused for every decode.
pub(super) struct Batch {
    tokens: Vec<sys::llama_token>,
    positions: Vec<sys::llama_pos>,
    n_sequences: Vec<i32>,
    sequences: Vec<sys::llama_seq_id>,
    sequence_pointers: Vec<*mut sys::llama_seq_id>,
    logits: Vec<i8>,
}

impl Batch {
    /// Allocates room for `n_batch` entries.
    pub(super) fn new(n_batch: usize) -> Self {
        let mut sequences = vec![0; n_batch];
        let sequence_pointers = sequences.iter_mut().map(|sequence| &raw mut *sequence).collect();
        Batch {
            tokens: vec![0; n_batch],
            positions: vec![0; n_batch],
            n_sequences: vec![1; n_batch],
            sequences,
            sequence_pointers,
            logits: vec![0; n_batch],
        }
    }

    /// Fills the arrays. There must be no more entries than `new` allocated.
    pub(super) fn fill(&mut self, entries: &[BatchEntry]) -> sys::llama_batch {
        for (index, entry) in entries.iter().enumerate() {
            self.tokens[index] = entry.token;
            self.positions[index] = entry.position as sys::llama_pos;
            self.sequences[index] = entry.sequence as sys::llama_seq_id;
            self.sequence_pointers[index] = &raw mut self.sequences[index];
            self.logits[index] = i8::from(entry.logits);
        }
        sys::llama_batch {
            n_tokens: entries.len() as i32,
            token: self.tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: self.positions.as_mut_ptr(),
            n_seq_id: self.n_sequences.as_mut_ptr(),
            seq_id: self.sequence_pointers.as_mut_ptr(),
            logits: self.logits.as_mut_ptr(),
        }
    }
}
