//! `llb_model_info`.

use std::ffi::c_char;

use super::{guard, string};
use crate::verdict;

/// Says what a model file is and can do, from its header alone: one flat JSON object (docs/abi.md), in milliseconds.
///
/// Never NULL; on failure `error` is `null_path`, `model_not_found`, `load_model` or `chat_template`, and `message` says what
/// and where. Free the result with `llb_string_free`.
///
/// # Safety
/// `gguf_path` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_info(gguf_path: *const c_char) -> *const c_char {
    // SAFETY: passed on to the caller.
    let path = unsafe { string::borrow_nullable(gguf_path, "gguf_path") };
    let info = guard::catch(|| {
        Ok(match path {
            Ok(Some(path)) => verdict::model_info(path),
            Ok(None) => verdict::failed_info("null_path", "gguf_path: is NULL"),
            Err(error) => verdict::failed_info("model_not_found", error.message()),
        })
    });
    let info = info.unwrap_or_else(|error| verdict::failed_info("load_model", error.message()));
    string::give(&info.to_string())
}
