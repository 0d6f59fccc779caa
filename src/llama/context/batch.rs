//! The arrays of a `llama_batch`, filled from batch entries.

use llama_cpp_sys_2 as sys;

use crate::engine::BatchEntry;

/// Architectures whose graph writes into the logits (`ggml_set_1d`), which fails an assertion if a
/// batch has none. llama.cpp itself cannot compute a prompt that is longer than a batch for them.
const WITH_LOGITS_IN_EACH_BATCH: [&str; 1] = ["chameleon"];

/// The arrays of a `llama_batch`. They are reused for every decode.
pub(crate) struct Batch {
    tokens: Vec<sys::llama_token>,
    positions: Vec<sys::llama_pos>,
    n_sequences: Vec<i32>,
    sequences: Vec<sys::llama_seq_id>,
    sequence_pointers: Vec<*mut sys::llama_seq_id>,
    logits: Vec<i8>,
    needs_logits: bool,
}

impl Batch {
    /// Allocates room for `n_batch` entries of a model of this architecture.
    pub(crate) fn new(n_batch: usize, architecture: Option<&str>) -> Self {
        let mut sequences = vec![0; n_batch];
        let sequence_pointers = sequences.iter_mut().map(|sequence| &raw mut *sequence).collect();
        Batch {
            tokens: vec![0; n_batch],
            positions: vec![0; n_batch],
            n_sequences: vec![1; n_batch],
            sequences,
            sequence_pointers,
            logits: vec![0; n_batch],
            needs_logits: architecture.is_some_and(|it| WITH_LOGITS_IN_EACH_BATCH.contains(&it)),
        }
    }

    /// Fills the arrays. There must be no more entries than `new` allocated.
    pub(crate) fn fill(&mut self, entries: &[BatchEntry]) -> sys::llama_batch {
        for (index, entry) in entries.iter().enumerate() {
            self.tokens[index] = entry.token;
            self.positions[index] = entry.position as sys::llama_pos;
            self.sequences[index] = entry.sequence as sys::llama_seq_id;
            self.sequence_pointers[index] = &raw mut self.sequences[index];
            self.logits[index] = i8::from(entry.logits);
        }
        if self.needs_logits
            && let Some(last) = entries.len().checked_sub(1)
            && !entries.iter().any(|entry| entry.logits)
        {
            self.logits[last] = 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_logits_where_the_graph_needs_them() {
        let entry = |position, logits| BatchEntry { token: 0, position, sequence: 0, logits };
        let marked = |architecture, entries: &[BatchEntry]| {
            let mut batch = Batch::new(3, Some(architecture));
            batch.fill(&[entry(0, true), entry(1, true), entry(2, true)]);
            batch.fill(entries);
            batch.logits[..entries.len()].to_vec()
        };
        let middle = [entry(0, false), entry(1, false)];
        assert_eq!(marked("llama", &middle), [0, 0]);
        assert_eq!(marked("chameleon", &middle), [0, 1]);
        assert_eq!(marked("chameleon", &[entry(0, true), entry(1, false)]), [1, 0]);
    }
}
