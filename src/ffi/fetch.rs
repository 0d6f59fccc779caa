//! `llb_model_fetch*`: the names are part of the ABI; the download itself is not in this version.

use std::ffi::{c_char, c_void};

use super::callback::llb_event_cb;
use super::guard;
use crate::error::{Code, Error};

/// Will fetch a model from Hugging Face by id. Not in this version: answers `INVALID_REQUEST`.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch(
    request_json: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *const c_char {
    let _ = (request_json, on_event, user_data);
    guard::json(|| {
        Err(Error::new(
            Code::InvalidRequest,
            "llb_model_fetch: not supported by this version of llb; pass the path of a local file",
        ))
    })
}

/// Will cancel a fetch by its model id. There is none in this version: does nothing.
///
/// # Safety
/// `id` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_fetch_cancel(id: *const c_char) {
    let _ = id;
}
