//! `llb_chat_*`.

use std::ffi::{c_char, c_void};

use super::callback::{self, Callback, Running, llb_event_cb, llb_token_cb};
use super::handle::{self, llb_chat};
use super::{guard, string};
use crate::api::{self, CreateOptions};
use crate::chat::{Chat, CreateFailure, PieceSink};
use crate::error::{Code, Error, Result};

/// Opens a chat on a model file; the same as `llb_chat_create_with` with `{"model": gguf_path}`.
///
/// # Safety
/// `gguf_path` is NULL or NUL-terminated. `on_event`, if not NULL, may be called with `user_data` until the chat is
/// destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_create(
    gguf_path: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *mut llb_chat {
    // SAFETY: passed on to the caller.
    let path = unsafe { string::borrow_nullable(gguf_path, "gguf_path") };
    // SAFETY: passed on to the caller.
    let events = unsafe { Callback::new(on_event, user_data) };
    create(path.map(CreateOptions::for_model), events)
}

/// Opens a chat with options (docs/abi.md lists them).
///
/// Returns a handle, or NULL after one `create_failure:*` event; then `llb_last_error` says why. Whether the model can call
/// tools is decided from the file's header, before any weight is read. Events come on the calling thread, here and in later
/// calls on the chat.
///
/// # Safety
/// `options_json` is NULL or NUL-terminated. `on_event`, if not NULL, may be called with `user_data` until the chat is
/// destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_create_with(
    options_json: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *mut llb_chat {
    // SAFETY: passed on to the caller.
    let options = unsafe { string::borrow(options_json, "options_json") };
    // SAFETY: passed on to the caller.
    let events = unsafe { Callback::new(on_event, user_data) };
    create(options.and_then(|options| CreateOptions::read(&api::parse(options, "options_json")?)), events)
}

/// Stands for "a chat is being created" among the keys of running calls; no chat has it.
const CREATING: usize = usize::MAX;

fn create(options: Result<CreateOptions>, events: Callback) -> *mut llb_chat {
    // The outer create may hold what the inner one would wait for.
    let nested = callback::is_running_here(CREATING);
    let busy = || Err(Error::new(Code::Busy, "llb_chat_create: called from a callback of llb_chat_create"));
    let options = if nested { busy() } else { options };
    let _running = Running::enter(CREATING);
    let created = guard::catch(|| match Chat::create(options, Box::new(move |event| events.call(event))) {
        Ok(chat) => Ok(handle::insert(chat)),
        Err(CreateFailure { error, .. }) => Err(error),
    });
    created.unwrap_or_else(|error| {
        guard::remember(&error);
        std::ptr::null_mut()
    })
}

/// Runs one chat request and returns the reply as JSON.
///
/// Never NULL: failures come back as `{"type":"error",...}`. Free the result with `llb_string_free`. Any thread; calls on one
/// chat run one after another, in order of arrival. A NULL or destroyed `chat` is `ENGINE_CLOSED`; a call from a callback of
/// the same chat is `BUSY`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_infer(chat: *mut llb_chat, request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        let request = unsafe { string::borrow(request_json, "request_json") };
        call(chat, |chat| chat.infer(request?, None))
    })
}

/// Runs one chat request, streams its reply to `on_token`, and returns the same reply as `llb_chat_infer`.
///
/// `on_token` gets pieces of visible content, cut on UTF-8 boundaries, that concatenate to the reply's `text`; with
/// `"stream_format":"chunks"` it gets `chat.completion.chunk` objects. It is called on the calling thread.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated; `on_token`, if not NULL, may be called with `user_data` until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_infer_stream(
    chat: *mut llb_chat,
    request_json: *const c_char,
    on_token: llb_token_cb,
    user_data: *mut c_void,
) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        let request = unsafe { string::borrow(request_json, "request_json") };
        // SAFETY: passed on to the caller.
        let pieces = unsafe { Callback::new(on_token, user_data) };
        let sink: PieceSink = &mut |piece| pieces.call(piece);
        call(chat, |chat| chat.infer(request?, Some(sink)))
    })
}

/// Says what a request would do without generating a token: prompt, token count, grammar, capabilities used.
///
/// Free the result with `llb_string_free`.
///
/// # Safety
/// `request_json` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_explain(chat: *mut llb_chat, request_json: *const c_char) -> *const c_char {
    guard::json(|| {
        // SAFETY: passed on to the caller.
        let request = unsafe { string::borrow(request_json, "request_json") };
        call(chat, |chat| chat.explain(request?))
    })
}

/// Cancels the request that runs on a chat and those that wait; each returns what it has, with `finish_reason`
/// `cancelled`.
///
/// Any thread, also from callbacks. A NULL or destroyed `chat` is fine.
#[unsafe(no_mangle)]
pub extern "C" fn llb_chat_cancel(chat: *mut llb_chat) {
    guard::quietly(|| {
        if let Ok(chat) = handle::get(chat) {
            chat.cancel();
        }
    });
}

/// Destroys a chat: cancels what runs on it, waits for that, frees.
///
/// A NULL or destroyed `chat` is fine. From a callback of the same chat it returns at once, and the chat is freed when the
/// call that runs returns.
#[unsafe(no_mangle)]
pub extern "C" fn llb_chat_destroy(chat: *mut llb_chat) {
    guard::quietly(|| {
        let Some(removed) = handle::remove(chat) else { return };
        if callback::is_running_here(handle::key(chat)) {
            removed.close_from_callback();
        } else {
            removed.close();
        }
    });
}

/// Runs `body` on the chat of a handle. A panic in it closes the handle.
fn call<T>(handle: *mut llb_chat, body: impl FnOnce(&Chat) -> Result<T>) -> Result<T> {
    let key = handle::key(handle);
    let chat = handle::get(handle)?;
    if callback::is_running_here(key) {
        return Err(Error::new(Code::Busy, "chat: called from a callback of the same chat"));
    }
    let running = Running::enter(key);
    let reply = guard::catch(|| body(&chat));
    drop(running);
    if reply.as_ref().is_err_and(|error| error.code() == Code::InternalBridgeError) {
        // Whatever broke, this handle is not used again.
        if let Some(chat) = handle::remove(handle) {
            chat.close();
        }
    }
    reply
}
