//! The callbacks that llama.cpp calls during a decode.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use llama_cpp_sys_2 as sys;

use super::logits;
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
            logits::leave_out(node);
        }
        trial::on_operation(&decoding.repeats, node, is_before)
    })
}
