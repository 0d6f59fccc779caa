//! `llb_template_*`: templates without a model.

use std::ffi::c_char;

use super::{guard, string};
use crate::compose_request;
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

/// Composes a chat template from building blocks: `components` (an object, or the name of a registered template), or
/// `derive_from` a Jinja template, or `list`. Answers `{"type":"template",...}` or `{"type":"templates",...}` (docs/compose.md).
///
/// Any thread. Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_compose(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        compose_request::compose(unsafe { string::borrow(request_json, "request_json") }?)
    })
}
