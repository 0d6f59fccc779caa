//! Callbacks of the caller. Each is called on the thread of the function it was passed to.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};

use super::string;

/// Receives an event of a chat or a fetch. `event` is valid only during the call.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_event_cb = Option<unsafe extern "C" fn(event: *const c_char, user_data: *mut c_void)>;

/// Receives a piece of a streamed reply. `piece` is valid only during the call.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_token_cb = Option<unsafe extern "C" fn(piece: *const c_char, user_data: *mut c_void)>;

/// A callback and its user data.
pub(super) struct Callback {
    function: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
    user_data: *mut c_void,
}

// SAFETY: this type only passes the user data back to the caller's function. By contract, events
// arrive on any thread that calls the chat, so the caller has made both safe to use there.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    /// # Safety
    /// `function` may be called with `user_data` until the returned value is dropped.
    pub(super) unsafe fn new(
        function: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
        user_data: *mut c_void,
    ) -> Self {
        Callback { function, user_data }
    }

    /// Calls the function with `text`. Does nothing if the function is NULL.
    pub(super) fn call(&self, text: &str) {
        let Some(function) = self.function else { return };
        let text = string::c_string(text.to_owned());
        // SAFETY: the contract of `new` allows this call, and `text` outlives it.
        unsafe { function(text.as_ptr(), self.user_data) };
    }
}

thread_local! {
    /// The keys of the chats that run a call on this thread. Code that runs while a key is listed
    /// may be inside a callback of that chat.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Marks a chat as running a call on this thread until the value is dropped.
pub(super) struct RunningCall(());

impl RunningCall {
    pub(super) fn enter(key: usize) -> RunningCall {
        RUNNING.with(|running| running.borrow_mut().push(key));
        RunningCall(())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        RUNNING.with(|running| running.borrow_mut().pop());
    }
}

/// Whether this thread already runs a call on the chat, so that the caller is one of its
/// callbacks.
pub(super) fn is_running_here(key: usize) -> bool {
    RUNNING.with(|running| running.borrow().contains(&key))
}
