//! Callbacks of the caller: always called on the thread of the call they belong to.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};

use super::string;

/// Receives an event of a chat or a fetch. `event` is valid during the call only.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_event_cb = Option<unsafe extern "C" fn(event: *const c_char, user_data: *mut c_void)>;

/// Receives a piece of a streamed reply. `piece` is valid during the call only.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_token_cb = Option<unsafe extern "C" fn(piece: *const c_char, user_data: *mut c_void)>;

/// A callback with its user data.
pub(super) struct Callback {
    function: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
    user_data: *mut c_void,
}

// SAFETY: the user data is only handed back to the caller's function; the contract says that events come on whatever
// thread makes the call, so the caller has made both fit for that.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    /// # Safety
    /// `function` may be called with `user_data` for as long as this lives.
    pub(super) unsafe fn new(
        function: Option<unsafe extern "C" fn(*const c_char, *mut c_void)>,
        user_data: *mut c_void,
    ) -> Self {
        Callback { function, user_data }
    }

    /// Calls it; without a function nothing happens.
    pub(super) fn call(&self, text: &str) {
        let Some(function) = self.function else { return };
        let text = string::owned(text.to_owned());
        // SAFETY: promised at `new`; the text lives during the call.
        unsafe { function(text.as_ptr(), self.user_data) };
    }
}

thread_local! {
    /// The chats whose calls are running on this thread, by key: this code may be inside one of their callbacks.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While one lives, a call on the chat is running on this thread.
pub(super) struct Running(());

impl Running {
    pub(super) fn enter(key: usize) -> Running {
        RUNNING.with(|running| running.borrow_mut().push(key));
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with(|running| running.borrow_mut().pop());
    }
}

/// Whether a call on the chat is running on this very thread, so that this is one of its callbacks.
pub(super) fn is_running_here(key: usize) -> bool {
    RUNNING.with(|running| running.borrow().contains(&key))
}
