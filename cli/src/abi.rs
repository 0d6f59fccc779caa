//! The C functions of include/llb.h, with JSON values and closures instead of C strings and
//! pointers. A request may also be the text of its JSON. The program uses one other function of the
//! library, [`serve_rpc`]: a host has no use for it.
#![allow(unsafe_code, reason = "calls the C ABI, as a host program does")]

use std::ffi::{CStr, CString, c_char, c_void};

use bytes::Bytes;
use llb::ffi;
pub(crate) use llb::llama::RpcService;
use llb::llama::{self, ShouldStop};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::raw_json::RawObject;

/// Receives events (`load_progress:0.50`) on the thread of the call.
pub(crate) type OnEvent = Box<dyn Fn(&str) + Send + Sync>;

/// An open chat. Calls on it run one after another; any thread may make them.
pub(crate) struct Chat {
    handle: *mut ffi::llb_chat,
    /// The callback's user data. It must outlive the handle.
    _on_event: Box<OnEvent>,
}

// SAFETY: every function of the ABI may be called from any thread, and the callback is Send and
// Sync.
unsafe impl Send for Chat {}
// SAFETY: as above.
unsafe impl Sync for Chat {}

impl Chat {
    /// Opens a chat with the options of `llb_chat_create_with`.
    pub(crate) fn open(options: &Value, on_event: OnEvent) -> Result<Chat> {
        let options = c_string(options.to_string())?;
        let on_event = Box::new(on_event);
        let user_data = (&raw const *on_event).cast_mut().cast::<c_void>();
        // SAFETY: the options are NUL-terminated, and `on_event` lives until after the destroy.
        let handle = unsafe { ffi::llb_chat_create_with(options.as_ptr(), Some(event), user_data) };
        if handle.is_null() {
            return Err(not_opened("chat"));
        }
        Ok(Chat { handle, _on_event: on_event })
    }

    /// Runs a request. `on_piece` receives text, or chunks with `"stream_format": "chunks"`.
    pub(crate) fn infer(
        &self,
        request: &(impl ToString + ?Sized),
        on_piece: impl FnMut(&str),
    ) -> Result<Value> {
        self.infer_raw(request, on_piece).map(|reply| reply.value_without(""))
    }

    /// Like [`infer`](Self::infer), with the reply as text.
    pub(crate) fn infer_raw(
        &self,
        request: &(impl ToString + ?Sized),
        mut on_piece: impl FnMut(&str),
    ) -> Result<RawObject> {
        let request = c_string(request.to_string())?;
        let mut on_piece: &mut dyn FnMut(&str) = &mut on_piece;
        let user_data = (&raw mut on_piece).cast::<c_void>();
        // SAFETY: the request is NUL-terminated; the closure outlives the call.
        take_raw(unsafe {
            ffi::llb_chat_infer_stream(self.handle, request.as_ptr(), Some(piece), user_data)
        })
    }

    /// Describes what a request would do.
    pub(crate) fn explain(&self, request: &(impl ToString + ?Sized)) -> Result<Value> {
        let request = c_string(request.to_string())?;
        // SAFETY: the request is NUL-terminated.
        take(unsafe { ffi::llb_chat_explain(self.handle, request.as_ptr()) })
    }

    /// Cancels the running request.
    pub(crate) fn cancel(&self) {
        ffi::llb_chat_cancel(self.handle);
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        ffi::llb_chat_destroy(self.handle);
    }
}

/// A handle of an embedding model. Calls on it run one after another; any thread may make them.
pub(crate) struct Embedder(*mut ffi::llb_embedder);

// SAFETY: every function of the ABI may be called from any thread.
unsafe impl Send for Embedder {}
// SAFETY: as above.
unsafe impl Sync for Embedder {}

impl Embedder {
    /// Opens a model with the options of `llb_embed_create`.
    pub(crate) fn open(options: &Value) -> Result<Embedder> {
        let options = c_string(options.to_string())?;
        // SAFETY: the options are NUL-terminated.
        let handle = unsafe { ffi::llb_embed_create(options.as_ptr()) };
        if handle.is_null() {
            return Err(not_opened("embedding model"));
        }
        Ok(Embedder(handle))
    }

    /// Computes vectors of texts.
    pub(crate) fn embed(&self, request: &(impl ToString + ?Sized)) -> Result<RawObject> {
        let request = c_string(request.to_string())?;
        // SAFETY: the request is NUL-terminated.
        take_raw(unsafe { ffi::llb_embed(self.0, request.as_ptr()) })
    }

    /// Scores documents for a query.
    pub(crate) fn rank(&self, request: &(impl ToString + ?Sized)) -> Result<RawObject> {
        let request = c_string(request.to_string())?;
        // SAFETY: the request is NUL-terminated.
        take_raw(unsafe { ffi::llb_rank(self.0, request.as_ptr()) })
    }

    /// Cancels the running call and all waiting ones.
    pub(crate) fn cancel(&self) {
        ffi::llb_embed_cancel(self.0);
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        ffi::llb_embed_destroy(self.0);
    }
}

/// `llb <version> (llama.cpp b<build>)`.
pub(crate) fn version() -> String {
    // SAFETY: returns a static string.
    unsafe { CStr::from_ptr(ffi::llb_version()) }.to_string_lossy().into_owned()
}

/// Describes a model file. If that fails, the failure has the message of the reply.
pub(crate) fn model_info(path: &str) -> Result<Value> {
    let info = call(ffi::llb_model_info, path)?;
    match info["error"].as_str() {
        None => Ok(info),
        Some(kind) => {
            let code = match kind {
                "model_not_found" => "MODEL_NOT_FOUND",
                "chat_template" => "TEMPLATE_ERROR",
                _ => "MODEL_INVALID",
            };
            let message = info["message"].as_str().unwrap_or(kind);
            Err(Failure::of_library(&json!({ "code": code, "message": message })))
        }
    }
}

/// The memory that a chat would take.
pub(crate) fn memory(request: &Value) -> Result<Value> {
    call(ffi::llb_memory, request)
}

/// The kernels and devices that were found.
pub(crate) fn backends() -> Result<Value> {
    take(ffi::llb_backends())
}

/// Serves devices of this machine, by their names, until `should_stop`. `on_line` gets what the
/// server says.
pub(crate) fn serve_rpc(
    service: &RpcService<'_>,
    devices: &[String],
    should_stop: ShouldStop,
    on_line: &mut dyn FnMut(&str),
) -> Result<()> {
    let served = llama::serve_rpc(service, devices, should_stop, on_line);
    served.map_err(|error| {
        Failure::of_library(&json!({ "code": error.code().as_str(), "message": error.message() }))
    })
}

/// Describes a chat template.
pub(crate) fn template_info(request: &Value) -> Result<Value> {
    call(ffi::llb_template_info, request)
}

/// Renders messages to a prompt.
pub(crate) fn template_render(request: &Value) -> Result<Value> {
    call(ffi::llb_template_render, request)
}

/// Parses the output of a model.
pub(crate) fn template_parse(request: &Value) -> Result<Value> {
    call(ffi::llb_template_parse, request)
}

/// Composes or derives a chat template.
pub(crate) fn template_compose(request: &Value) -> Result<Value> {
    call(ffi::llb_template_compose, request)
}

/// Converts text to tokens.
pub(crate) fn tokenize(request: &(impl ToString + ?Sized)) -> Result<RawObject> {
    call_raw(ffi::llb_tokenize, request)
}

/// Converts tokens to text.
pub(crate) fn detokenize(request: &(impl ToString + ?Sized)) -> Result<RawObject> {
    call_raw(ffi::llb_detokenize, request)
}

/// The number of tokens of the prompt of a chat request.
pub(crate) fn count(request: &(impl ToString + ?Sized)) -> Result<Value> {
    call(ffi::llb_count, request)
}

/// Downloads or describes a model on the hub.
pub(crate) fn model_fetch(request: &Value, on_event: OnEvent) -> Result<Value> {
    let request = c_string(request.to_string())?;
    let user_data = (&raw const on_event).cast_mut().cast::<c_void>();
    // SAFETY: the request is NUL-terminated; the callback outlives the call.
    take(unsafe { ffi::llb_model_fetch(request.as_ptr(), Some(event), user_data) })
}

/// Cancels the fetches of an id.
pub(crate) fn model_fetch_cancel(id: &str) {
    if let Ok(id) = CString::new(id) {
        // SAFETY: the id is NUL-terminated.
        unsafe { ffi::llb_model_fetch_cancel(id.as_ptr()) };
    }
}

unsafe extern "C" fn event(event: *const c_char, user_data: *mut c_void) {
    // SAFETY: the callers of this module pass a pointer to their callback, which outlives the call.
    let on_event = unsafe { &*user_data.cast_const().cast::<OnEvent>() };
    // SAFETY: the library passes a string that is valid during the call.
    let event = unsafe { CStr::from_ptr(event) };
    on_event(&event.to_string_lossy());
}

unsafe extern "C" fn piece(piece: *const c_char, user_data: *mut c_void) {
    // SAFETY: `infer` passes a pointer to its closure, which is valid until the call returns.
    let on_piece = unsafe { &mut *user_data.cast::<&mut dyn FnMut(&str)>() };
    // SAFETY: the library passes a string that is valid during the call.
    let piece = unsafe { CStr::from_ptr(piece) };
    on_piece(&piece.to_string_lossy());
}

/// Calls a function of the ABI that takes a request or a path, and returns a string to free.
fn call(
    function: unsafe extern "C" fn(*const c_char) -> *const c_char,
    request: &(impl ToString + ?Sized),
) -> Result<Value> {
    call_raw(function, request).map(|reply| reply.value_without(""))
}

/// Like [`call`], with the reply as text.
fn call_raw(
    function: unsafe extern "C" fn(*const c_char) -> *const c_char,
    request: &(impl ToString + ?Sized),
) -> Result<RawObject> {
    let request = c_string(request.to_string())?;
    // SAFETY: the request is NUL-terminated, which is all that these functions require.
    take_raw(unsafe { function(request.as_ptr()) })
}

/// The failure of a create, which returned no handle.
fn not_opened(what: &str) -> Failure {
    let failure = take(ffi::llb_last_error()).err();
    failure.unwrap_or_else(|| Failure::new(format!("the {what} could not be opened")))
}

/// Reads and frees a returned string. An error reply becomes a failure.
fn take(reply: *const c_char) -> Result<Value> {
    take_raw(reply).map(|reply| reply.value_without(""))
}

/// Takes a returned string, which is freed with the reply. An error reply becomes a failure.
fn take_raw(reply: *const c_char) -> Result<RawObject> {
    // SAFETY: the library returned a NUL-terminated string, never NULL.
    let length = unsafe { CStr::from_ptr(reply) }.count_bytes();
    let reply = RawObject::parse(Bytes::from_owner(ReplyString { text: reply, length }));
    let is_error = reply.text("type").is_some_and(|kind| kind == "\"error\"");
    if is_error { Err(Failure::of_library(&reply.value("error"))) } else { Ok(reply) }
}

/// A string that the library returned.
struct ReplyString {
    text: *const c_char,
    length: usize,
}

// SAFETY: the string is not changed, and any thread may free it.
unsafe impl Send for ReplyString {}

impl AsRef<[u8]> for ReplyString {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the string has this length, and lives until it is dropped.
        unsafe { std::slice::from_raw_parts(self.text.cast(), self.length) }
    }
}

impl Drop for ReplyString {
    fn drop(&mut self) {
        // SAFETY: the string came from the library, and this is its only owner.
        unsafe { ffi::llb_string_free(self.text) };
    }
}

fn c_string(text: String) -> Result<CString> {
    CString::new(text).map_err(|_| Failure::new("a path or a request has a NUL character"))
}
