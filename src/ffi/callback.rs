//! Callbacks into the caller's code. Each is called on the thread of the function that it was
//! passed to.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;

use super::{handle, host, string};
use crate::error::{Code, Error};
use crate::panic;
use crate::process;

/// Receives an event of a chat or a fetch. `event` is valid only during the call.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_event_cb = Option<unsafe extern "C" fn(event: *const c_char, user_data: *mut c_void)>;

/// Receives a piece of a streamed reply. `piece` is valid only during the call.
#[allow(non_camel_case_types, reason = "the name in the C header")]
pub type llb_token_cb = Option<unsafe extern "C" fn(piece: *const c_char, user_data: *mut c_void)>;

/// A callback and its user data.
pub(super) struct Callback {
    function: Option<host::CallbackFn>,
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
    pub(super) unsafe fn new(function: Option<host::CallbackFn>, user_data: *mut c_void) -> Self {
        Callback { function, user_data }
    }

    /// Calls the function with `text`. Does nothing if the function is NULL.
    ///
    /// If the callback throws an exception, this unwinds to the C function, which returns the
    /// error. The same happens in a child that the callback has forked, because the engine threads
    /// are in the parent.
    pub(super) fn call(&self, text: &str) {
        let Some(function) = self.function else { return };
        let text = string::c_string(text.to_owned());
        let forks = process::forks();
        // SAFETY: the contract of `new` allows this call.
        let called = unsafe { host::call(function, &text, self.user_data, give_up_calls) };
        let problem = if forks != process::forks() {
            Error::new(Code::EngineClosed, "the callback has forked, and this is the child")
        } else if let Err(message) = called {
            Error::new(Code::Cancelled, format!("the callback threw an exception: {message}"))
        } else {
            return;
        };
        // If an event is emitted while the call unwinds, an exception from its callback is dropped.
        if !std::thread::panicking() {
            panic::stop(problem);
        }
    }
}

/// A call on a chat that runs on this thread.
#[derive(Clone, Copy)]
struct Running {
    key: usize,
    /// An address in the stack frame of the call.
    frame: usize,
    forks: usize,
}

thread_local! {
    /// The calls that run on this thread. Code that runs while a chat is listed may be inside a
    /// callback of that chat. A callback may exit, so the list stays usable after the destructors
    /// of thread-locals have run, and frees its memory itself.
    static RUNNING: RefCell<ManuallyDrop<Vec<Running>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Marks a chat as running a call on this thread until the value is dropped.
pub(super) struct RunningCall(());

impl RunningCall {
    pub(super) fn enter(key: usize) -> RunningCall {
        let running = Running { key, frame: frame(), forks: process::forks() };
        RUNNING.with(|list| list.borrow_mut().push(running));
        RunningCall(())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        RUNNING.with(|list| {
            let mut list = list.borrow_mut();
            list.pop();
            if list.is_empty() {
                drop(std::mem::take(&mut **list));
            }
        });
    }
}

/// Whether this thread already runs a call on the chat. The caller is then a callback of that chat.
pub(super) fn is_running_here(key: usize) -> bool {
    let is_it = |running: &Running| running.key == key && running.forks == process::forks();
    RUNNING.with(|list| list.borrow().iter().any(is_it))
}

/// Gives up a call of this thread on the chat that a callback has left by `longjmp`, so that its
/// frame is gone. A frame that may still exist counts as running.
pub(super) fn give_up_left_call(key: usize) {
    let here = frame();
    let is_left = |running: &Running| running.key == key && running.frame < here;
    let is_listed = RUNNING.with(|list| {
        let mut list = list.borrow_mut();
        let found = list.iter().position(is_left);
        // The calls inside the abandoned one are gone too.
        found.inspect(|index| list.truncate(*index)).is_some()
    });
    if is_listed {
        handle::give_up_call(key);
    }
}

/// Gives up the calls of a thread that a callback has ended.
extern "C" fn give_up_calls() {
    let calls = RUNNING.with(|list| std::mem::take(&mut **list.borrow_mut()));
    calls.into_iter().for_each(|running| handle::give_up_call(running.key));
}

/// An address in the current stack frame. Stacks grow down, so the frames of callers have greater
/// addresses.
#[inline(never)]
fn frame() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}
