//! The boundary to the host's code, with the help of `host.cpp`: callbacks that throw, cancellation
//! of threads, and floating-point traps.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

/// The saved state of the host's thread while it is inside the library. `host.cpp` checks the size.
#[repr(C, align(16))]
struct ThreadState([MaybeUninit<u8>; 64]);

pub(super) type CallbackFn = unsafe extern "C" fn(*const c_char, *mut c_void);

unsafe extern "C" {
    fn llb_host_enter(state: *mut ThreadState);
    fn llb_host_leave(state: *const ThreadState);
    fn llb_host_call(
        callback: CallbackFn,
        text: *const c_char,
        user_data: *mut c_void,
        on_thread_exit: extern "C" fn(),
        message: *mut c_char,
        size: usize,
    ) -> bool;
}

/// While a guard lives, its thread cannot be cancelled and computes in the default floating-point
/// environment. Nothing traps, as on the threads that the library starts.
pub(super) struct ThreadGuard(ThreadState);

impl ThreadGuard {
    pub(super) fn enter() -> ThreadGuard {
        let mut guard = ThreadGuard(ThreadState([MaybeUninit::uninit(); 64]));
        // SAFETY: the state has the room that the function needs.
        unsafe { llb_host_enter(&raw mut guard.0) };
        guard
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        // SAFETY: `enter` wrote the state, on this thread.
        unsafe { llb_host_leave(&raw const self.0) };
    }
}

/// Calls a callback. An error is the text of the exception that the callback threw. If the callback
/// ends its thread, this calls `on_thread_exit` and does not return.
///
/// # Safety
/// The caller must allow calls of the function with this text and this user data.
pub(super) unsafe fn call(
    function: CallbackFn,
    text: &CStr,
    user_data: *mut c_void,
    on_thread_exit: extern "C" fn(),
) -> Result<(), String> {
    let mut message = [MaybeUninit::<u8>::uninit(); 256];
    let (buffer, size) = (message.as_mut_ptr().cast::<c_char>(), message.len());
    // SAFETY: the caller allows the call, and the buffer is valid for its size.
    if unsafe { llb_host_call(function, text.as_ptr(), user_data, on_thread_exit, buffer, size) } {
        return Ok(());
    }
    // SAFETY: false means that the buffer has a NUL-terminated message.
    Err(unsafe { CStr::from_ptr(buffer) }.to_string_lossy().into_owned())
}
