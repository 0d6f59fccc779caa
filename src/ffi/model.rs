//! `llb_model_info`.

use std::ffi::c_char;

use serde_json::Value;

use super::{guard, string};
use crate::error::{Code, Error};
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
        let info = match path {
            Ok(Some(path)) => verdict::model_info(path),
            Ok(None) => Err(("null_path", Error::new(Code::InvalidRequest, "gguf_path: is NULL"))),
            Err(error) => Err(("model_not_found", error)),
        };
        Ok(info.unwrap_or_else(|(kind, error)| failed(kind, &error)))
    });
    string::give(info.unwrap_or_else(|error| failed("load_model", &error)).to_string())
}

fn failed(kind: &str, error: &Error) -> Value {
    guard::remember(error);
    verdict::failed_info(kind, error.message())
}
