//! The C function `llb_model_info`.

use std::ffi::c_char;

use serde_json::Value;

use super::{guard, string};
use crate::error::{Code, Error};
use crate::profile;

/// Describes a model file and its capabilities: one flat JSON object (docs/abi.md).
///
/// Reads only the header of the file, which takes milliseconds. Never returns NULL. On failure
/// `error` is `null_path`, `model_not_found`, `load_model` or `chat_template`, and `message` says
/// what is wrong and where. Free the result with `llb_string_free`. May be called from any
/// thread.
///
/// # Safety
/// `gguf_path` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_info(gguf_path: *const c_char) -> *const c_char {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    let path = unsafe { string::borrow_nullable(gguf_path, "gguf_path") };
    let info = guard::catch(|| {
        let info = match path {
            Ok(Some(path)) => profile::model_info(path),
            Ok(None) => Err(("null_path", Error::new(Code::InvalidRequest, "gguf_path: is NULL"))),
            Err(error) => Err(("model_not_found", error)),
        };
        Ok(info.unwrap_or_else(|(kind, error)| failure(kind, &error)))
    });
    string::into_raw(info.unwrap_or_else(|error| failure("load_model", &error)).to_string())
}

fn failure(kind: &str, error: &Error) -> Value {
    guard::set_last_error(error);
    profile::failed_info(kind, error.message())
}
