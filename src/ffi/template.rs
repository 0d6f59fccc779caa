//! The C functions `llb_template_*`: chat templates without a model.

use std::ffi::c_char;

use super::{guard, string};
use crate::template_requests;

/// Describes the capabilities of a chat template: `{"type":"template_info",...}` with the
/// template members of `llb_model_info` (docs/abi.md).
///
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread and
/// from callbacks.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_info(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        template_requests::info(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Renders messages to a prompt: `{"type":"rendered","prompt","polyfills_applied"}`.
///
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread and
/// from callbacks.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_render(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        template_requests::render(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Parses the output of a model into a message:
/// `{"type":"message","message","complete","diagnostics"}`.
///
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread and
/// from callbacks.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_parse(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        template_requests::parse(unsafe { string::borrow(request_json, "request_json") }?)
    })
}

/// Composes a chat template from `components` (an object, or the name of a registered template),
/// derives components from the Jinja template in `derive_from`, or lists the registered templates
/// with `list`. Returns `{"type":"template",...}` or `{"type":"templates",...}`
/// (docs/compose.md).
///
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread and
/// from callbacks.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_template_compose(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        template_requests::compose(unsafe { string::borrow(request_json, "request_json") }?)
    })
}
