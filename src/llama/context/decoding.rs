//! What llama.cpp gets for a decode: the batch, and the callbacks that it calls.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::model::Model;
use super::positions::Positions;
use super::threads::Threads;
use super::trial::{self, Repeats};
use crate::engine::{BatchEntry, EmbeddingBatch};
use crate::llama::raw::{exit, shim};

/// Returns whether a computation should stop. llama.cpp calls it during the computation.
pub(crate) type AbortCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// The data of the callbacks.
pub(crate) struct Decoding {
    pub(crate) threads: Threads,
    /// The model that computes. Its file may become unreadable during the decode.
    pub(crate) model: Arc<Model>,
    /// The check of the running decode, if that may be aborted.
    pub(crate) check: Option<AbortCheck<'static>>,
    /// Whether the caller reads logits.
    pub(crate) makes_logits: bool,
    /// Set during the trial: the multiplications to leave out.
    pub(crate) repeats: RefCell<Option<Repeats>>,
}

/// llama.cpp's abort callback. `data` is a [`Decoding`].
pub(crate) unsafe extern "C" fn should_abort(data: *mut c_void) -> bool {
    // SAFETY: `data` is the context's box, which outlives the context and does not change during a
    // decode.
    let decoding = unsafe { &*data.cast::<Decoding>() };
    shim::callback(true, || {
        exit::is_stopping()
            || decoding.threads.has_failure()
            || decoding.model.is_lost()
            || decoding.check.is_some_and(|check| check())
    })
}

/// llama.cpp's evaluation callback. `data` is a [`Decoding`].
pub(crate) unsafe extern "C" fn on_operation(
    node: *mut sys::ggml_tensor,
    is_before: bool,
    data: *mut c_void,
) -> bool {
    // SAFETY: as above. llama.cpp calls this on the thread that decodes.
    let decoding = unsafe { &*data.cast::<Decoding>() };
    shim::callback(false, || {
        if is_before && !decoding.makes_logits {
            leave_out_logits(node);
        }
        trial::on_operation(&decoding.repeats, node, is_before)
    })
}

/// GGUF's names of the weights that compute logits. A file without the first tensor uses the second
/// one for both embedding and output.
const LOGIT_WEIGHTS: [&CStr; 2] = [c"output.weight", c"token_embd.weight"];

/// Called before an operation. If the operation computes logits, turns it into one that does
/// nothing, so its result is undefined. llama.cpp computes logits for every token, even where only
/// vectors are read. In a small decoder with a large vocabulary they take at least a fifth of the
/// time.
fn leave_out_logits(node: *mut sys::ggml_tensor) {
    // SAFETY: llama.cpp passes an operation of the graph that it computes.
    let tensor = unsafe { &mut *node };
    if tensor.op != sys::GGML_OP_MUL_MAT {
        return;
    }
    // SAFETY: NULL, or an input that lives as long as the graph.
    let Some(weights) = (unsafe { tensor.src[0].as_ref() }) else { return };
    // SAFETY: ggml ends each name with NUL.
    let name = unsafe { CStr::from_ptr(weights.name.as_ptr()) };
    if weights.op == sys::GGML_OP_NONE && LOGIT_WEIGHTS.contains(&name) {
        tensor.op = sys::GGML_OP_NONE;
    }
}

/// Architectures whose graph writes into the logits (`ggml_set_1d`), which fails an assertion if a
/// batch has none. llama.cpp itself cannot compute a prompt that is longer than a batch for them.
const WITH_LOGITS_IN_EACH_BATCH: [&str; 1] = ["chameleon"];

/// The arrays of a `llama_batch`. They are reused for every decode.
pub(crate) struct Batch {
    tokens: Vec<sys::llama_token>,
    /// For each token one, for each embedding one in each dimension.
    positions: Vec<sys::llama_pos>,
    /// The dimensions of positions.
    dimensions: usize,
    n_sequences: Vec<i32>,
    sequences: Vec<sys::llama_seq_id>,
    sequence_pointers: Vec<*mut sys::llama_seq_id>,
    logits: Vec<i8>,
    needs_logits: bool,
}

impl Batch {
    /// Allocates room for `n_batch` entries of a model of this architecture, whose positions have so
    /// many dimensions.
    pub(crate) fn new(n_batch: usize, architecture: Option<&str>, dimensions: usize) -> Self {
        let mut sequences = vec![0; n_batch];
        let sequence_pointers = sequences.iter_mut().map(|sequence| &raw mut *sequence).collect();
        Batch {
            tokens: vec![0; n_batch],
            positions: vec![0; n_batch * dimensions],
            dimensions,
            n_sequences: vec![1; n_batch],
            sequences,
            sequence_pointers,
            logits: vec![0; n_batch],
            needs_logits: architecture.is_some_and(|it| WITH_LOGITS_IN_EACH_BATCH.contains(&it)),
        }
    }

    /// Fills the arrays, with the positions of each sequence. There must be no more entries than
    /// `new` allocated.
    pub(crate) fn fill(
        &mut self,
        entries: &[BatchEntry],
        positions: &[Positions],
    ) -> sys::llama_batch {
        for (index, entry) in entries.iter().enumerate() {
            self.tokens[index] = entry.token;
            self.positions[index] = positions[entry.sequence].of(entry.position);
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
        let (token, embd) = (self.tokens.as_mut_ptr(), std::ptr::null_mut());
        self.raw(entries.len(), token, embd)
    }

    /// Fills the arrays for embeddings, of which there must be no more than `new` allocated.
    /// llama.cpp only reads them, while the batch is decoded.
    pub(crate) fn fill_embeddings(
        &mut self,
        batch: &EmbeddingBatch,
        positions: &Positions,
    ) -> sys::llama_batch {
        for (index, position) in positions.of_batch(batch).into_iter().enumerate() {
            for (dimension, position) in position.into_iter().take(self.dimensions).enumerate() {
                self.positions[dimension * batch.count + index] = position;
            }
            self.sequences[index] = batch.sequence as sys::llama_seq_id;
            self.sequence_pointers[index] = &raw mut self.sequences[index];
            self.logits[index] = i8::from(self.needs_logits && index + 1 == batch.count);
        }
        self.raw(batch.count, std::ptr::null_mut(), batch.rows.as_ptr().cast_mut())
    }

    fn raw(
        &mut self,
        count: usize,
        token: *mut sys::llama_token,
        embd: *mut f32,
    ) -> sys::llama_batch {
        sys::llama_batch {
            n_tokens: count as i32,
            token,
            embd,
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
            let mut batch = Batch::new(3, Some(architecture), 1);
            let positions = [Positions::default()];
            batch.fill(&[entry(0, true), entry(1, true), entry(2, true)], &positions);
            batch.fill(entries, &positions);
            batch.logits[..entries.len()].to_vec()
        };
        let middle = [entry(0, false), entry(1, false)];
        assert_eq!(marked("llama", &middle), [0, 0]);
        assert_eq!(marked("chameleon", &middle), [0, 1]);
        assert_eq!(marked("chameleon", &[entry(0, true), entry(1, false)]), [1, 0]);
    }
}
