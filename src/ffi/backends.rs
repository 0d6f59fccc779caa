//! The C function `llb_backends`.

use std::ffi::c_char;

use super::guard;
use crate::llama;

/// Describes the processor of this machine, and the kernels and devices that chats of this process
/// use: `{"type":"backends","processor","backend","backends","folders","devices","device_files"}`
/// (docs/backends.md).
///
/// The call does not choose kernels: before the first chat is created, `backend` is the variant
/// that would be chosen. Never returns NULL. Free the result with `llb_string_free`. May be called
/// from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn llb_backends() -> *const c_char {
    guard::json(|| Ok(llama::kernels_report()))
}
