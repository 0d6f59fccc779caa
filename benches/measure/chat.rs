//! A chat used through the C ABI, and the time that calls take.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Instant;

use llb::ffi;
use serde_json::Value;

/// A function of the ABI that takes a chat and a request.
pub(crate) type Function = unsafe extern "C" fn(*mut ffi::llb_chat, *const c_char) -> *const c_char;

/// A handle that is destroyed when dropped.
pub(crate) struct Chat(*mut ffi::llb_chat);

// SAFETY: a handle is a key, and every function may be called from any thread.
unsafe impl Send for Chat {}
// SAFETY: as above.
unsafe impl Sync for Chat {}

impl Chat {
    pub(crate) fn open(options: &Value) -> Chat {
        Chat::open_with(options, |_| {})
    }

    /// Like `open`; `on_event` gets the events of the create.
    pub(crate) fn open_with<F: FnMut(&str)>(options: &Value, mut on_event: F) -> Chat {
        unsafe extern "C" fn call<F: FnMut(&str)>(event: *const c_char, on_event: *mut c_void) {
            // SAFETY: the closure outlives the create.
            let on_event = unsafe { &mut *on_event.cast::<F>() };
            // SAFETY: an event is NUL-terminated.
            on_event(&unsafe { CStr::from_ptr(event) }.to_string_lossy());
        }
        let options = CString::new(options.to_string()).expect("JSON has no NUL");
        let data = (&raw mut on_event).cast();
        // SAFETY: the options are NUL-terminated. The events come during the call only: no chat
        // option asks for later ones.
        let chat = unsafe { ffi::llb_chat_create_with(options.as_ptr(), Some(call::<F>), data) };
        assert!(!chat.is_null(), "llb opens the model");
        Chat(chat)
    }

    /// Like `call` of `llb_chat_infer_stream`; `on_piece` gets each piece of the reply.
    pub(crate) fn stream<F: FnMut(&str)>(&self, request: &str, mut on_piece: F) -> Value {
        unsafe extern "C" fn call<F: FnMut(&str)>(piece: *const c_char, on_piece: *mut c_void) {
            // SAFETY: the closure outlives the call.
            let on_piece = unsafe { &mut *on_piece.cast::<F>() };
            // SAFETY: a piece is NUL-terminated.
            on_piece(&unsafe { CStr::from_ptr(piece) }.to_string_lossy());
        }
        let data = (&raw mut on_piece).cast();
        // SAFETY: the request is NUL-terminated; any handle is valid.
        let stream = |chat, request| unsafe {
            ffi::llb_chat_infer_stream(chat, request, Some(call::<F>), data)
        };
        self.call_with(request, stream).1
    }

    /// Cancels the running call.
    pub(crate) fn cancel(&self) {
        ffi::llb_chat_cancel(self.0);
    }

    /// Returns the parsed reply, which must not be an error.
    pub(crate) fn call(&self, function: Function, request: &str) -> Value {
        self.timed(function, request).1
    }

    /// Like `call`, but also returns the time of the function.
    pub(crate) fn timed(&self, function: Function, request: &str) -> (Took, Value) {
        // SAFETY: the request is NUL-terminated; any handle is valid.
        self.call_with(request, |chat, request| unsafe { function(chat, request) })
    }

    /// Like `timed`, for a function that may have other parameters.
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

/// The wall time of the call in seconds.
pub(crate) struct Took {
    pub(crate) wall: f64,
    /// The processor time of the calling thread in seconds.
    pub(crate) thread: f64,
}

impl Drop for Chat {
    fn drop(&mut self) {
        ffi::llb_chat_destroy(self.0);
    }
}

/// The processor time of all threads of this process so far, in seconds. It hardly depends on other
/// processes.
pub(crate) fn cpu_seconds() -> f64 {
    seconds(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The processor time of this thread so far, in seconds.
pub(crate) fn thread_seconds() -> f64 {
    seconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn seconds(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which leaves it unchanged on an error.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
