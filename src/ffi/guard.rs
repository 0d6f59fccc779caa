//! Wraps the body of every C function: catches panics, converts errors to JSON, and stores the
//! last error of the thread.

use std::cell::RefCell;
use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde_json::{Value, json};

#[cfg(unix)]
use super::fork;
use super::host::ThreadGuard;
use super::string;
use crate::error::{Code, Error, Result};
use crate::panic;
use crate::process;

thread_local! {
    static LAST_ERROR: RefCell<Option<Value>> = const { RefCell::new(None) };
    /// Replaces `LAST_ERROR` in destructors that run after it is destroyed. Never freed.
    static LATE_ERROR: RefCell<ManuallyDrop<Option<Value>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// The maximum stack size of a call, apart from recursion that reserves more itself. A thread with
/// less stack runs the call and its callbacks on a separate stack.
const ROOM: usize = 128 << 10;
const MORE_STACK: usize = 1 << 20;

/// Runs a body. A panic becomes `INTERNAL_BRIDGE_ERROR`, and an exception of a callback becomes
/// `CANCELLED`.
pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Must come before anything that a fork could interrupt.
    #[cfg(unix)]
    fork::watch();
    if process::has_endless_use() {
        let problem = "this process was forked while another thread loaded the first model of its \
                       parent; fork before or after that, or start the process with exec";
        return Err(Error::new(Code::EngineClosed, problem));
    }
    let _thread = ThreadGuard::enter();
    let _quiet = panic::Quiet::enter();
    catch_panic(|| stacker::maybe_grow(ROOM, MORE_STACK, body))
}

/// Like [`catch`], for use inside it.
pub(super) fn catch_panic<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        Err(panic::stopped(payload).unwrap_or_else(|payload| panic::error(&*payload)))
    })
}

/// Runs a body that uses an engine. `ENGINE_CLOSED` while the process exits: the exit stops all
/// engines and causes most of the errors after it has begun.
pub(super) fn with_engine<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    if process::is_exiting() {
        return Err(exiting());
    }
    body().map_err(|error| if process::is_exiting() { exiting() } else { error })
}

pub(super) fn exiting() -> Error {
    Error::new(Code::EngineClosed, "the process is exiting")
}

/// The capacity for a reply, which is large enough for most, including the terminating NUL.
const REPLY: usize = 1024;

/// A value that can be written as JSON text.
pub(super) trait ToJson {
    /// The JSON text. The value is consumed, so that one that is text already is not copied.
    fn into_json(self) -> serde_json::Result<Vec<u8>>;
}

impl<T: Serialize> ToJson for T {
    fn into_json(self) -> serde_json::Result<Vec<u8>> {
        let mut json = Vec::with_capacity(REPLY);
        serde_json::to_writer(&mut json, &self)?;
        Ok(json)
    }
}

/// Runs a body and returns its value, or its error, as JSON in an owned C string.
pub(super) fn json<T: ToJson>(body: impl FnOnce() -> Result<T>) -> *const c_char {
    json_or(body, Error::to_json)
}

/// Like [`json()`], with an error in another shape. The last error of the thread keeps its usual
/// shape.
pub(super) fn json_or<T: ToJson>(
    body: impl FnOnce() -> Result<T>,
    error_json: impl FnOnce(&Error) -> Value,
) -> *const c_char {
    let serialized = || {
        let json = body()?.into_json();
        json.map_err(|error| Error::new(Code::InternalBridgeError, error.to_string()))
    };
    string::into_raw(catch(serialized).unwrap_or_else(|error| {
        set_last_error(&error);
        error_json(&error).to_string().into_bytes()
    }))
}

/// Runs a body that reports no result to the caller.
pub(super) fn void(body: impl FnOnce()) {
    let _ = catch(|| {
        body();
        Ok(())
    });
}

/// Stores the last error of this thread.
pub(super) fn set_last_error(error: &Error) {
    let json = error.to_json();
    let set = LAST_ERROR.try_with(|last| *last.borrow_mut() = Some(json.clone()));
    if set.is_err() {
        LATE_ERROR.with(|last| **last.borrow_mut() = Some(json));
    }
}

/// Returns the last error of the calling thread as JSON:
/// `{"type":"error","error":{"code","message","details"?}}`, or `{"type":"error","error":null}`
/// if the thread has had none.
///
/// Every function that fails sets it. It is kept until the next failure, so a success does not
/// clear it. Free the result with `llb_string_free`.
#[unsafe(no_mangle)]
pub extern "C" fn llb_last_error() -> *const c_char {
    let _thread = ThreadGuard::enter();
    let last = LAST_ERROR
        .try_with(|last| last.borrow().clone())
        .unwrap_or_else(|_| LATE_ERROR.with(|last| (**last.borrow()).clone()));
    string::into_raw(last.unwrap_or_else(|| json!({ "type": "error", "error": null })).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let error = catch::<()>(|| panic!("on purpose {}", 7)).expect_err("caught");
        assert_eq!(error.code(), Code::InternalBridgeError);
        assert!(error.message().ends_with("on purpose 7"), "{}", error.message());
    }
}
