//! A chat used through the C ABI, and the processor time of calls.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::ffi::{CStr, CString, c_char};
use std::time::Instant;

use llb::ffi;
use serde_json::Value;

/// A function of the ABI that takes a chat and a request.
pub(crate) type Function = unsafe extern "C" fn(*mut ffi::llb_chat, *const c_char) -> *const c_char;

/// A handle that is destroyed when dropped.
pub(crate) struct Chat(*mut ffi::llb_chat);

impl Chat {
    pub(crate) fn open(options: &Value) -> Chat {
        let options = CString::new(options.to_string()).expect("JSON has no NUL");
        // SAFETY: the options are NUL-terminated, and there is no callback.
        let chat =
            unsafe { ffi::llb_chat_create_with(options.as_ptr(), None, std::ptr::null_mut()) };
        assert!(!chat.is_null(), "llb opens the model");
        Chat(chat)
    }

    /// Returns the parsed reply, which must not be an error.
    pub(crate) fn call(&self, function: Function, request: &str) -> Value {
        self.timed(function, request).1
    }

    /// Like `call`, but also returns the cost of the function.
    pub(crate) fn timed(&self, function: Function, request: &str) -> (Took, Value) {
        // SAFETY: the request is NUL-terminated; any handle is valid.
        self.call_with(request, |chat, request| unsafe { function(chat, request) })
    }

    /// Like `timed`, for a function with other parameters too.
    pub(crate) fn call_with(
        &self,
        request: &str,
        function: impl FnOnce(*mut ffi::llb_chat, *const c_char) -> *const c_char,
    ) -> (Took, Value) {
        let request = CString::new(request).expect("JSON has no NUL");
        let (start, thread) = (Instant::now(), thread_seconds());
        let reply = function(self.0, request.as_ptr());
        let took = Took { wall: start.elapsed().as_secs_f64(), thread: thread_seconds() - thread };
        // SAFETY: a reply is never NULL and NUL-terminated.
        let text = unsafe { CStr::from_ptr(reply) }.to_string_lossy().into_owned();
        // SAFETY: the reply is ours and freed once.
        unsafe { ffi::llb_string_free(reply) };
        let reply: Value = serde_json::from_str(&text).expect("a reply is JSON");
        assert_ne!(reply["type"], "error", "{text}");
        (took, reply)
    }
}

/// Wall time of the call in seconds.
pub(crate) struct Took {
    pub(crate) wall: f64,
    /// Processor time of the calling thread.
    pub(crate) thread: f64,
}

impl Drop for Chat {
    fn drop(&mut self) {
        ffi::llb_chat_destroy(self.0);
    }
}

/// Processor time of all threads of this process so far, in seconds. It hardly depends on other
/// processes.
pub(crate) fn cpu_seconds() -> f64 {
    seconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time of this thread so far, in seconds.
pub(crate) fn thread_seconds() -> f64 {
    seconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which leaves it unchanged on an error.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
