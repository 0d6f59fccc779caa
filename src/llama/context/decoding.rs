//! The callbacks that llama.cpp calls during a decode.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::model::Model;
use super::threads::Threads;
use super::trial::{self, Repeats};
use crate::llama::raw::{exit, shim};

/// Returns whether the decode should stop. llama.cpp calls it during the decode.
pub(crate) type AbortCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// The data of the callbacks.
pub(crate) struct Decoding {
    pub(crate) threads: Threads,
    /// The model that computes. Its file may become unreadable during the decode.
    pub(crate) model: Arc<Model>,
    /// The check of the running decode.
    pub(crate) check: Option<AbortCheck<'static>>,
    /// Whether the next decode shifts keys. Aborting it would not undo that.
    pub(crate) moves_keys: bool,
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
            || !decoding.moves_keys && decoding.check.is_some_and(|check| check())
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
