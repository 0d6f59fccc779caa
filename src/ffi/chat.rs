//! The C functions `llb_chat_*`.

use std::cell::Cell;
use std::ffi::{c_char, c_void};

use serde_json::Value;

use super::callback::{self, Callback, RunningCall, llb_event_cb, llb_token_cb};
use super::guard::ToJson;
use super::handle::{self, llb_chat};
use super::open_chat::OpenChat;
use super::{guard, string};
use crate::api::{self, CreateOptions, ReplyShape};
use crate::chat::{CreateFailure, EventSink};
use crate::error::{Code, Error, Result};
use crate::process;

/// Opens a chat on a model file. Same as `llb_chat_create_with` with `{"model": gguf_path}`, except
/// for the shape of the replies: `usage` has exactly `prompt_tokens`, `completion_tokens` and
/// `total_tokens`, and `error` exactly `code` and `message`. Their details are `usage_details` and
/// `error_details` at the top level (docs/abi.md).
///
/// # Safety
/// `gguf_path` must be NULL or NUL-terminated. `on_event` may be NULL; otherwise it may be called
/// with `user_data` until the chat is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_create(
    gguf_path: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *mut llb_chat {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    let path = unsafe { string::borrow_nullable(gguf_path, "gguf_path") };
    // SAFETY: the caller allows calls of `on_event` until the chat is destroyed.
    let events = unsafe { Callback::new(on_event, user_data) };
    create(|| Ok((CreateOptions::for_model(path?), Value::Null)), events)
}

/// Opens a chat with options, a JSON object (docs/abi.md).
///
/// Returns a handle to be destroyed with `llb_chat_destroy`. On failure emits one
/// `create_failure:*` event and returns NULL; `llb_last_error` has the reason. The
/// tool-capability check reads only the header of the file and runs before any weight is read.
/// Events are emitted on the calling thread, both here and in later calls on the chat.
///
/// # Safety
/// `options_json` must be NULL or NUL-terminated. `on_event` may be NULL; otherwise it may be
/// called with `user_data` until the chat is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_create_with(
    options_json: *const c_char,
    on_event: llb_event_cb,
    user_data: *mut c_void,
) -> *mut llb_chat {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    let options = unsafe { string::borrow(options_json, "options_json") };
    // SAFETY: the caller allows calls of `on_event` until the chat is destroyed.
    let events = unsafe { Callback::new(on_event, user_data) };
    let read = || {
        let json = api::parse(options?, "options_json")?;
        Ok((CreateOptions::read(&json)?, json))
    };
    create(read, events)
}

/// The key that marks a running create. No chat has this key.
const CREATING: usize = usize::MAX;

/// Opens a chat for a C function.
fn create(
    options: impl FnOnce() -> Result<(CreateOptions, Value)>,
    events: Callback,
) -> *mut llb_chat {
    let created = open(options, Box::new(move |event| events.call(event)));
    created.unwrap_or_else(|error| {
        guard::set_last_error(&error);
        std::ptr::null_mut()
    })
}

/// `options` returns the options and the JSON that they were read from.
pub(super) fn open(
    options: impl FnOnce() -> Result<(CreateOptions, Value)>,
    events: EventSink,
) -> Result<*mut llb_chat> {
    guard::catch(|| {
        // A nested create could deadlock: the outer one may hold a lock that the inner one needs.
        let nested = callback::is_running_here(CREATING);
        let busy = "llb_chat_create: called from a callback of llb_chat_create";
        let options = match (nested, process::is_exiting()) {
            (true, _) => Err(Error::new(Code::Busy, busy)),
            (_, true) => Err(guard::exiting()),
            _ => options(),
        };
        let _running = RunningCall::enter(CREATING);
        match OpenChat::create(options, events) {
            Ok(chat) => Ok(handle::insert(chat)),
            // Most errors after the start of the exit are caused by it.
            Err(_) if process::is_exiting() => Err(guard::exiting()),
            Err(CreateFailure { error, .. }) => Err(error),
        }
    })
}

/// Runs one chat request and returns the reply as JSON.
///
/// Never returns NULL: a failure is `{"type":"error",...}`. Free the result with
/// `llb_string_free`. May be called from any thread. Calls on one chat run one at a time, in
/// order of arrival. A NULL or destroyed `chat` is `ENGINE_CLOSED`. A call from a callback of the
/// same chat is `BUSY`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_infer(
    chat: *mut llb_chat,
    request_json: *const c_char,
) -> *const c_char {
    reply(chat, |chat| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        chat.infer(request, None)
    })
}

/// Runs one chat request, streams the reply to `on_token`, and returns the same JSON as
/// `llb_chat_infer`, under the same rules.
///
/// `on_token` receives pieces of the visible content, each a whole number of UTF-8 characters.
/// Together they are the reply's `text`. With `"stream_format":"chunks"` it receives
/// `chat.completion.chunk` objects instead. It is called on the calling thread.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated. `on_token` may be NULL; otherwise it may be
/// called with `user_data` until this function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_infer_stream(
    chat: *mut llb_chat,
    request_json: *const c_char,
    on_token: llb_token_cb,
    user_data: *mut c_void,
) -> *const c_char {
    reply(chat, |chat| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        // SAFETY: the caller allows calls of `on_token` until this function returns.
        let pieces = unsafe { Callback::new(on_token, user_data) };
        chat.infer(request, Some(&mut |piece| pieces.call(piece)))
    })
}

/// Describes what a request would do, without generating a token. Returns its prompt, token count,
/// grammar and the capabilities that it uses, as JSON (docs/abi.md).
///
/// Never returns NULL. Free the result with `llb_string_free`. May be called from any thread; it
/// does not wait for a running request of the chat. A NULL or destroyed `chat` is
/// `ENGINE_CLOSED`. A call from a callback of the same chat is `BUSY`.
///
/// # Safety
/// `request_json` must be NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llb_chat_explain(
    chat: *mut llb_chat,
    request_json: *const c_char,
) -> *const c_char {
    reply(chat, |chat| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let request = unsafe { string::borrow(request_json, "request_json") }?;
        chat.explain(request)
    })
}

/// Cancels the running request of a chat and all waiting ones. Each returns the output it has so
/// far, with `finish_reason` `cancelled`.
///
/// Does not wait. May be called from any thread and from callbacks, but not from a signal
/// handler. A NULL or destroyed `chat` is a no-op.
#[unsafe(no_mangle)]
pub extern "C" fn llb_chat_cancel(chat: *mut llb_chat) {
    guard::void(|| {
        if let Ok(chat) = handle::get(chat) {
            chat.cancel();
        }
    });
}

/// Ends the block of reasoning that the running reply of a chat is in. The next text is the
/// request's `reasoning_budget_message` and the model's closing tag, and the answer follows. The
/// reply has the diagnostic `reasoning_ended`.
///
/// Does not wait. May be called from any thread and from callbacks, but not from a signal handler.
/// A no-op if no request runs, if the reply is not in reasoning, if the tags of the model's
/// reasoning are unknown, or if `chat` is NULL or destroyed. Waiting requests and later blocks of
/// reasoning are not affected.
#[unsafe(no_mangle)]
pub extern "C" fn llb_chat_end_reasoning(chat: *mut llb_chat) {
    guard::void(|| {
        if let Ok(chat) = handle::get(chat) {
            chat.end_reasoning();
        }
    });
}

/// Destroys a chat: cancels its requests, waits until they end, and frees it.
///
/// May be called from any thread. A NULL or destroyed `chat` is a no-op. From a callback of the
/// same chat the function returns at once, and the chat is freed when the running call returns.
#[unsafe(no_mangle)]
pub extern "C" fn llb_chat_destroy(chat: *mut llb_chat) {
    guard::void(|| {
        callback::give_up_left_call(handle::key(chat));
        let Some(removed) = handle::remove(chat) else { return };
        if callback::is_running_here(handle::key(chat)) {
            removed.close_from_callback();
        } else {
            removed.close();
        }
    });
}

/// Runs `body` on the chat of a handle, and returns its value or its error as JSON, in the shape of
/// the function that opened the chat.
fn reply<T: ToJson>(
    handle: *mut llb_chat,
    body: impl FnOnce(&OpenChat) -> Result<T>,
) -> *const c_char {
    // An error before `body` runs has no details, so it is the same in both shapes.
    let reply_shape = Cell::new(ReplyShape::Current);
    let body = |chat: &OpenChat| {
        reply_shape.set(chat.reply_shape());
        body(chat)
    };
    guard::json_or(
        || call(handle, body),
        |error| match reply_shape.get() {
            ReplyShape::Classic => error.to_classic_json(),
            ReplyShape::Current => error.to_json(),
        },
    )
}

/// Runs `body` on the chat of a handle. A panic in `body` closes the handle.
pub(super) fn call<T>(
    handle: *mut llb_chat,
    body: impl FnOnce(&OpenChat) -> Result<T>,
) -> Result<T> {
    let key = handle::key(handle);
    let chat = handle::get(handle)?;
    callback::give_up_left_call(key);
    if callback::is_running_here(key) {
        return Err(Error::new(Code::Busy, "chat: called from a callback of the same chat"));
    }
    let reply = guard::with_engine(|| {
        let _running = RunningCall::enter(key);
        guard::catch_panic(|| body(&chat)).inspect_err(|_| {
            // A callback may have destroyed the chat and then thrown an exception.
            let _ = guard::catch_panic(|| {
                chat.finish_destroy();
                Ok(())
            });
        })
    });
    if reply.as_ref().is_err_and(|error| error.code() == Code::InternalBridgeError) {
        // The state of the chat is unknown after a panic.
        if let Some(chat) = handle::remove(handle) {
            chat.close();
        }
    }
    reply
}
