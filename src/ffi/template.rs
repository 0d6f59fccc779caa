//! `llb_template_*`: templates without a model.

use std::ffi::c_char;

use super::{guard, string};
use crate::error::{Code, Error};
use crate::template_request as requests;

/// Says what a chat template can do: `{"type":"template_info", ...}` with the members of `llb_model_info` that concern it.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_info(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        requests::info(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Renders messages to a prompt: `{"type":"rendered","prompt","polyfills_applied"}`.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_render(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        requests::render(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Parses a model's text into a message: `{"type":"message","message","complete","diagnostics"}`.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_parse(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        requests::parse(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Will compose a chat template from building blocks. Not in this version: answers `INVALID_REQUEST`.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_compose(request_json: *const c_char) -> *const c_char {
    let _ = request_json;
    guard::json(|| Err(Error::new(Code::InvalidRequest, "llb_template_compose: not supported by this version of llb")))
}
