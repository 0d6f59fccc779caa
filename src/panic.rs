//! Turns panics into errors, and prints nothing to stderr.
//!
//! The library catches every panic at its edges: `ffi::guard`, the engine thread and template
//! renders. The default panic hook would still print a message. [`Quiet`] silences the hook on
//! threads that are inside the library, and leaves it unchanged on all others.

use std::any::Any;
use std::cell::Cell;
#[cfg(feature = "engine")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Error};
use crate::process::Lazy;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// While a value of this type lives, panics of its thread print nothing.
pub(crate) struct Quiet(());

impl Quiet {
    pub(crate) fn enter() -> Quiet {
        static HOOK: Lazy<()> = Lazy::new(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if DEPTH.with(Cell::get) == 0 {
                    previous(info);
                }
            }));
        });
        *HOOK;
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Quiet(())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

/// Runs code of the caller. Its panics print as usual, and do not unwind into the library.
#[cfg(feature = "engine")]
pub(crate) fn of_caller<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    let depth = DEPTH.replace(0);
    let result = catch_unwind(AssertUnwindSafe(run));
    DEPTH.set(depth);
    result
}

/// Ends the call with an error by unwinding. Used where a callback has no way to return an error.
#[cfg(feature = "engine")]
pub(crate) fn stop(error: Error) -> ! {
    // Does not run the panic hook.
    std::panic::resume_unwind(Box::new(Stopped(error)))
}

/// The payload of [`stop`].
#[cfg(feature = "engine")]
struct Stopped(Error);

/// The error that was passed to [`stop`], or else the payload of a panic.
#[cfg(feature = "engine")]
pub(crate) fn stopped(payload: Box<dyn Any + Send>) -> Result<Error, Box<dyn Any + Send>> {
    payload.downcast::<Stopped>().map(|stopped| stopped.0)
}

/// An `INTERNAL_BRIDGE_ERROR` with the panic's message.
pub(crate) fn error(payload: &(dyn Any + Send)) -> Error {
    Error::new(Code::InternalBridgeError, format!("a fault inside llb: {}", message(payload)))
}

pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("panic without a message").to_owned()
}
