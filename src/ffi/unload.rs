//! The C function `llb_model_unload`.

use std::ffi::c_char;
use std::path::Path;

use serde_json::{Value, json};

use super::{guard, string};
use crate::api::{self, Fields, MODEL_PATH};
use crate::error::{Error, Result};
use crate::gguf;
use crate::llama;
use crate::regular_file;

/// Unloads a model from memory: `{"type":"model_unloaded","chats"}` (docs/abi.md). Its chats and
/// embedding handles stay open, and their next request loads it again.
///
/// Waits until the memory is free. If a request runs on the model, the call fails with `BUSY` and
/// unloads nothing. Never returns NULL. Free the result with `llb_string_free`. May be called from
/// any thread.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_model_unload(request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        guard::with_engine(|| unload(request))
    })
}

fn unload(request: &str) -> Result<Value> {
    let request = api::parse(request, "request_json")?;
    let fields = &mut Fields::new("", &request)?;
    let path = api::model_path(fields)?;
    let chats = llama::unload(path)? + isolated(path)?;
    if chats == 0 {
        let path = Path::new(path);
        regular_file::metadata(path).map_err(|error| no_model(gguf::unusable(path, error)))?;
    }
    let mut reply = json!({ "type": "model_unloaded", "chats": chats });
    let ignored_keys = fields.ignored();
    if !ignored_keys.is_empty() {
        reply["ignored_keys"] = json!(ignored_keys);
    }
    Ok(reply)
}

fn no_model(error: Error) -> Error {
    let message = format!("{MODEL_PATH}: {}; pass the path of a model's file", error.message());
    error.with_message(message)
}

#[cfg(llb_isolation)]
fn isolated(path: &str) -> Result<usize> {
    crate::isolation::unload(path)
}

#[cfg(not(llb_isolation))]
fn isolated(_: &str) -> Result<usize> {
    Ok(0)
}
