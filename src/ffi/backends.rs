//! `llb_backends`.

use std::ffi::c_char;

use super::guard;
use crate::llama;

/// Describes the processor, and the kernels and devices that chats of this process compute with:
/// `{"type":"backends","processor","backend","backends","folders","devices"}` (docs/backends.md).
///
/// Chooses nothing: before the first create, `backend` is what it would choose. Never returns NULL.
/// Free the result with `llb_string_free`. May be called from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn llb_backends() -> *const c_char {
    guard::json(|| Ok(llama::kernels_report()))
}
