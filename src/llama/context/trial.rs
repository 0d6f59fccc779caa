//! The trial of a loaded model: its first decodes, on the calling thread alone.
//!
//! A file may pass all checks and still make llama.cpp fail an assertion or use a missing tensor.
//! On the calling thread, both only end the decode. Before other threads join, the model therefore
//! computes a short prompt, one token, and a batch without an output. A create that fails here is
//! `MODEL_INVALID`.
//!
//! The assertions depend on shapes and types, not on values. If an earlier multiplication had
//! weights of the same type and row length, a multiplication is skipped and its result is zero.
//! Most layers are alike, so a trial takes a fraction of a decode. It ends after a [`time_limit`],
//! between two operations, and a model without a failure until then passes. An operation that never
//! ends cannot be interrupted, so the header checks must refuse such a file.
//!
//! In one process, a model that passed is not tried again with the same file and options.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use llama_cpp_sys_2 as sys;

use crate::engine::{Backend, BatchEntry, Decoded, TokenId};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;
use crate::process::Shared;

/// The time for a model of any size.
const MIN_TIME: Duration = Duration::from_secs(5);
/// The bytes of weights for which a trial gets another second. That is enough to read and compute
/// all of them on a slow disk, so a bad layer cannot hide behind large ones.
const BYTES_PER_SECOND: u64 = 100_000_000;
/// No kernel processes more rows of a matrix in one step.
const MAX_ROWS_AT_ONCE: i64 = 64;
/// The maximum number of loads to remember as passed.
const MAX_VERDICTS: usize = 64;

/// Decodes one batch of each shape. The sequences are empty before and after it.
pub(crate) fn run(backend: &mut dyn Backend, n_vocab: i32, time_limit: Duration) -> Result<()> {
    let end = Instant::now() + time_limit;
    let batches = batches(n_vocab, backend.n_batch(), backend.n_ctx(), backend.n_sequences());
    let tried: Result<bool> = batches.into_iter().try_fold(true, |is_whole, batch| {
        let decoded = if is_whole {
            backend.decode(&batch, &|| Instant::now() >= end)?
        } else {
            Decoded::Aborted
        };
        Ok(decoded == Decoded::Done)
    });
    if matches!(tried, Ok(true)) {
        // Cheaper than clearing all memory.
        (0..backend.n_sequences().min(2)).for_each(|sequence| {
            backend.truncate(sequence, 0);
        });
    } else if !backend.is_broken() {
        backend.clear();
    }
    tried.map(drop).or_else(|error: Error| match error.code() {
        // The batch has too many tokens for this context, which is no fault of the model.
        Code::ContextOverflow => Ok(()),
        Code::OutOfMemory => Err(error),
        _ => {
            let message = format!("the model cannot be used: {}", error.message());
            Err(Error::new(Code::ModelInvalid, message).caused_by(error))
        }
    })
}

/// How long the trial of a model with weights of this size may take.
pub(crate) fn time_limit(weights: u64) -> Duration {
    MIN_TIME + Duration::from_secs(weights / BYTES_PER_SECOND)
}

/// The batches: a prompt with the first and the last token of the vocabulary, the next token, and a
/// batch without an output, as in the middle of a long prompt. That one has two sequences if it can.
/// Each is cut to the size of the context.
fn batches(n_vocab: i32, n_batch: usize, n_ctx: usize, n_sequences: usize) -> Vec<Vec<BatchEntry>> {
    // More rows than one tile of the kernels for several rows, so that a remainder is left.
    const PROMPT: usize = 5;
    let entry = |token: TokenId, position, sequence, logits| BatchEntry {
        token: token.min(n_vocab - 1).max(0),
        position,
        sequence,
        logits,
    };
    let length = PROMPT.min(n_batch).min(n_ctx.saturating_sub(1));
    let token = |index: usize| if index + 1 == length { n_vocab - 1 } else { index as TokenId };
    // The output is the largest multiplication. The one of the next token is a repetition.
    let prompt =
        (0..length).map(|index| entry(token(index), index, 0, index + 1 == length)).collect();
    let next = vec![entry(0, length, 0, true)];
    let mut batches = vec![prompt, next];
    if n_batch > 1 && n_ctx > length + 3 {
        let other = if n_sequences > 1 { (0, 1) } else { (length + 2, 0) };
        batches.push(vec![entry(0, length + 1, 0, false), entry(0, other.0, other.1, false)]);
    }
    batches.retain(|batch: &Vec<BatchEntry>| !batch.is_empty());
    batches
}

/// Skips repeated multiplications in a decode. llama.cpp calls it before and after each operation.
#[derive(Default)]
pub(crate) struct Repeats {
    computed: HashSet<Multiplication>,
    /// The operation that is being skipped, and its original type.
    left_out: Option<(*mut sys::ggml_tensor, sys::ggml_op)>,
}

/// The properties that decide how a multiplication with weights is computed.
#[derive(PartialEq, Eq, Hash)]
struct Multiplication {
    operation: sys::ggml_op,
    params: [i32; 16],
    /// The layouts of the weights, the other factor and the expert indices.
    inputs: [Option<TensorLayout>; 3],
}

#[derive(PartialEq, Eq, Hash)]
struct TensorLayout {
    number: sys::ggml_type,
    extents: [i64; 4],
    row_strides: [usize; 2],
    /// Whether matrices follow each other without gaps.
    is_dense: bool,
    /// The offset from the alignment that most kernels expect.
    offset: usize,
    /// The type of buffer that holds the tensor. It decides which kernels are used.
    kind: sys::ggml_backend_buffer_type_t,
}

impl Repeats {
    /// Called before an operation. If the operation is to be skipped, turns it into one that does
    /// nothing and returns true.
    fn before(&mut self, node: *mut sys::ggml_tensor) -> bool {
        // SAFETY: llama.cpp passes an operation of the graph that it computes.
        let tensor = unsafe { &mut *node };
        let is_multiplication =
            tensor.op == sys::GGML_OP_MUL_MAT || tensor.op == sys::GGML_OP_MUL_MAT_ID;
        if !is_multiplication || !is_on_host(tensor) || !has_weights(tensor) {
            return false;
        }
        let mut inputs = [0, 1, 2].map(|index| layout(tensor.src[index]));
        if let Some(weights) = &mut inputs[0] {
            // Kernels treat all rows alike except for the remainder.
            weights.extents[1] %= MAX_ROWS_AT_ONCE;
        }
        let params = tensor.op_params;
        if self.computed.insert(Multiplication { operation: tensor.op, params, inputs }) {
            return false;
        }
        self.left_out = Some((node, tensor.op));
        tensor.op = sys::GGML_OP_NONE;
        true
    }

    /// Called after the operation that was skipped.
    fn after(&mut self) {
        let Some((node, operation)) = self.left_out.take() else { return };
        // SAFETY: as above; the graph is still alive.
        let tensor = unsafe { &mut *node };
        tensor.op = operation;
        // SAFETY: as above.
        let size = shim::guard(|| unsafe { shim::calls::ggml_nbytes(node) });
        if let (Ok(size), false) = (size, tensor.data.is_null()) {
            // SAFETY: the result is in main memory and has this size.
            unsafe { std::ptr::write_bytes(tensor.data.cast::<u8>(), 0, size) };
        }
    }

    /// Called after a decode, which may have ended before `after` was called.
    pub(crate) fn restore(&mut self) {
        if let Some((node, operation)) = self.left_out.take() {
            // SAFETY: the graph lives until the next decode.
            unsafe { (*node).op = operation };
        }
    }
}

/// The `ggml_backend_sched_eval_callback` for data of type [`RefCell<Option<Repeats>>`]. llama.cpp
/// first asks for each operation whether it is wanted, computes up to the first wanted one, and
/// then calls again after it.
pub(crate) fn on_operation(
    repeats: &RefCell<Option<Repeats>>,
    node: *mut sys::ggml_tensor,
    is_before: bool,
) -> bool {
    match &mut *repeats.borrow_mut() {
        None => false,
        Some(repeats) if is_before => repeats.before(node),
        Some(repeats) => {
            repeats.after();
            true
        }
    }
}

/// Whether the result is in main memory.
fn is_on_host(tensor: &sys::ggml_tensor) -> bool {
    let buffer = tensor.buffer;
    if buffer.is_null() {
        return false;
    }
    // SAFETY: the buffer of a tensor in a running graph is alive.
    let is_host = shim::guard(|| unsafe { shim::calls::ggml_backend_buffer_is_host(buffer) });
    matches!(is_host, Ok(true))
}

/// Whether the first input is stored weights, not a computed value.
fn has_weights(tensor: &sys::ggml_tensor) -> bool {
    // SAFETY: NULL, or an input that lives as long as the graph.
    unsafe { tensor.src[0].as_ref() }
        .is_some_and(|weights| weights.op == sys::GGML_OP_NONE && weights.view_src.is_null())
}

fn layout(tensor: *mut sys::ggml_tensor) -> Option<TensorLayout> {
    // SAFETY: as above.
    let tensor = unsafe { tensor.as_ref() }?;
    let kind = if tensor.buffer.is_null() {
        std::ptr::null_mut()
    } else {
        // SAFETY: the buffer of a tensor in a running graph is alive.
        shim::guard(|| unsafe { shim::calls::ggml_backend_buffer_get_type(tensor.buffer) }).ok()?
    };
    let follows = |dimension: usize| {
        let count = tensor.ne[dimension - 1] as usize;
        tensor.nb[dimension] == tensor.nb[dimension - 1].wrapping_mul(count)
    };
    Some(TensorLayout {
        number: tensor.type_,
        extents: tensor.ne,
        row_strides: [tensor.nb[0], tensor.nb[1]],
        is_dense: follows(2) && follows(3),
        offset: tensor.data as usize % 64,
        kind,
    })
}

/// The loads that passed in this process, the latest last.
pub(crate) struct Verdicts<K>(Shared<VecDeque<K>>);

impl<K: PartialEq> Verdicts<K> {
    pub(crate) const fn new() -> Self {
        Verdicts(Shared::new(VecDeque::new()))
    }

    pub(crate) fn has_passed(&self, key: &K) -> bool {
        self.0.lock().contains(key)
    }

    pub(crate) fn pass(&self, key: K) {
        let mut passed = self.0.lock();
        if !passed.contains(&key) {
            passed.push_back(key);
        }
        if passed.len() > MAX_VERDICTS {
            passed.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fit_the_context() {
        let check = |n_vocab, [n_batch, n_ctx, n_sequences]: [usize; 3], tokens: &[&[i32]]| {
            let batches = batches(n_vocab, n_batch, n_ctx, n_sequences);
            let found: Vec<Vec<i32>> = batches
                .iter()
                .map(|batch| batch.iter().map(|entry| entry.token).collect())
                .collect();
            assert_eq!(found, tokens, "{n_vocab} {n_batch} {n_ctx} {n_sequences}");
            let mut lengths = [0, 0];
            for entry in batches.iter().flatten() {
                assert_eq!(entry.position, lengths[entry.sequence]);
                lengths[entry.sequence] += 1;
            }
            assert!(lengths.iter().sum::<usize>() <= n_ctx);
            // The prompt and the next token have an output, the last of their batches.
            for (number, batch) in batches.iter().enumerate() {
                assert_eq!(batch.last().map(|entry| entry.logits), Some(number < 2));
                assert!(batch.iter().rev().skip(1).all(|entry| !entry.logits));
            }
        };
        check(100, [512, 4096, 4], &[&[0, 1, 2, 3, 99], &[0], &[0, 0]]);
        check(100, [512, 4096, 1], &[&[0, 1, 2, 3, 99], &[0], &[0, 0]]);
        check(2, [3, 4096, 2], &[&[0, 1, 1], &[0], &[0, 0]]);
        check(100, [1, 4096, 2], &[&[99], &[0]]);
        check(100, [512, 1, 2], &[&[0]]);
        check(100, [512, 6, 2], &[&[0, 1, 2, 3, 99], &[0]]);
    }

    #[test]
    fn large_models_have_more_time() {
        assert_eq!([0, 99_999_999].map(time_limit), [MIN_TIME; 2]);
        assert_eq!(time_limit(40_000_000_000), MIN_TIME + Duration::from_secs(400));
    }

    #[test]
    fn the_latest_verdicts_are_kept() {
        let verdicts = Verdicts::new();
        (0..=MAX_VERDICTS).for_each(|key| verdicts.pass(key));
        verdicts.pass(MAX_VERDICTS);
        assert!(!verdicts.has_passed(&0) && verdicts.has_passed(&1));
        assert!(verdicts.has_passed(&MAX_VERDICTS));
    }
}
