//! The C functions `llb_embed_*` and `llb_rank`: vectors of texts and scores of pairs.

use std::ffi::c_char;

use super::guard::ToJson;
use super::handle::{self, llb_embedder};
use super::{guard, string};
use crate::api::{self, EmbedOptions};
use crate::embed::{EmbedResponse, EmbeddingModel};
use crate::error::{Code, Result};

/// Opens a model that computes vectors or scores of texts, with options, a JSON object
/// (docs/embeddings.md).
///
/// Returns a handle to be destroyed with `llb_embed_destroy`. On failure returns NULL;
/// `llb_last_error` has the reason. Reads the weights before it returns. May be called from any
/// thread.
///
/// # Safety
/// `options_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_embed_create(options_json: *const c_char) -> *mut llb_embedder {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    let options = unsafe { string::borrow(options_json, "options_json") };
    let created = open(|| EmbedOptions::read(&api::parse(options?, "options_json")?));
    created.unwrap_or_else(|error| {
        guard::set_last_error(&error);
        std::ptr::null_mut()
    })
}

/// Computes vectors of texts: `{"type":"embeddings","object":"list","data",...}`
/// (docs/embeddings.md).
///
/// Never returns NULL: a failure is `{"type":"error",...}`. Free the result with
/// `llb_string_free`. May be called from any thread. Calls on one handle run one at a time, in
/// order of arrival. A NULL or destroyed `embedder` is `ENGINE_CLOSED`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_embed(
    embedder: *mut llb_embedder,
    request_json: *const c_char,
) -> *const c_char {
    reply(embedder, |model| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        model.embed(request)
    })
}

/// Scores documents for a query, the best first: `{"type":"ranking","results":[{"index",
/// "relevance_score"}],...}` (docs/embeddings.md). Needs a model made for ranking.
///
/// The rules of `llb_embed` apply.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_rank(
    embedder: *mut llb_embedder,
    request_json: *const c_char,
) -> *const c_char {
    reply(embedder, |model| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        model.rank(request)
    })
}

/// Cancels the running call on a handle and all waiting ones. Each returns `CANCELLED`.
///
/// Does not wait. May be called from any thread and from callbacks, but not from a signal
/// handler. A NULL or destroyed `embedder` is a no-op.
#[unsafe(no_mangle)]
pub extern "C" fn llb_embed_cancel(embedder: *mut llb_embedder) {
    guard::void(|| {
        if let Ok(model) = handle::get_embed(embedder) {
            model.cancel();
        }
    });
}

/// Destroys a handle: cancels its calls, waits until they end, and frees the model.
///
/// May be called from any thread. A NULL or destroyed `embedder` is a no-op.
#[unsafe(no_mangle)]
pub extern "C" fn llb_embed_destroy(embedder: *mut llb_embedder) {
    guard::void(|| {
        if let Some(model) = handle::remove_embed(embedder) {
            model.close();
        }
    });
}

impl ToJson for EmbedResponse {
    fn into_json(self) -> serde_json::Result<Vec<u8>> {
        Ok(EmbedResponse::into_json(self))
    }
}

/// Opens a model.
pub(super) fn open(options: impl FnOnce() -> Result<EmbedOptions>) -> Result<*mut llb_embedder> {
    let create = || Ok(handle::insert_embed(EmbeddingModel::open(&options()?)?));
    guard::catch(|| guard::with_engine(create))
}

/// Runs `body` on the model of a handle, and returns its value or its error as JSON.
fn reply<T: ToJson>(
    handle: *mut llb_embedder,
    body: impl FnOnce(&EmbeddingModel) -> Result<T>,
) -> *const c_char {
    guard::json(|| call(handle, body))
}

/// Runs `body` on the model of a handle. A panic in `body` closes the handle.
pub(super) fn call<T>(
    handle: *mut llb_embedder,
    body: impl FnOnce(&EmbeddingModel) -> Result<T>,
) -> Result<T> {
    let model = handle::get_embed(handle)?;
    let reply = guard::with_engine(|| guard::catch_panic(|| body(&model)));
    if reply.as_ref().is_err_and(|error| error.code() == Code::InternalBridgeError) {
        // The state of the model is unknown after a panic.
        if let Some(model) = handle::remove_embed(handle) {
            model.close();
        }
    }
    reply
}
