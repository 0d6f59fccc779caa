//! The C function `llb_memory`.

use std::ffi::c_char;

use super::{guard, string};
use crate::memory;

/// Reports how much memory a chat with these options would take, and the largest `n_ctx` that fits:
/// `{"type":"memory","weights","cache","compute","total","largest_n_ctx","devices"}`
/// (docs/memory.md).
///
/// Reads no weights, and takes milliseconds once the vocabulary has been read. Never returns NULL.
/// Free the result with `llb_string_free`. May be called from any thread.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_memory(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        guard::with_engine(|| memory::run(request))
    })
}
