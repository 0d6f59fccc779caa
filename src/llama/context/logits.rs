//! Skips the computation of logits where only vectors are read. llama.cpp computes logits anyway,
//! for every token. In a small decoder with a large vocabulary they take at least a fifth of the
//! time.

use std::ffi::CStr;

use llama_cpp_sys_2 as sys;

/// GGUF's names of the weights that compute logits. A file without the first tensor uses the second
/// one for both embedding and output.
const WEIGHTS: [&CStr; 2] = [c"output.weight", c"token_embd.weight"];

/// Called before an operation. If the operation computes logits, turns it into one that does
/// nothing, so its result is undefined.
pub(crate) fn leave_out(node: *mut sys::ggml_tensor) {
    // SAFETY: llama.cpp passes an operation of the graph that it computes.
    let tensor = unsafe { &mut *node };
    if tensor.op != sys::GGML_OP_MUL_MAT {
        return;
    }
    // SAFETY: NULL, or an input that lives as long as the graph.
    let Some(weights) = (unsafe { tensor.src[0].as_ref() }) else { return };
    // SAFETY: ggml ends each name with NUL.
    let name = unsafe { CStr::from_ptr(weights.name.as_ptr()) };
    if weights.op == sys::GGML_OP_NONE && WEIGHTS.contains(&name) {
        tensor.op = sys::GGML_OP_NONE;
    }
}
