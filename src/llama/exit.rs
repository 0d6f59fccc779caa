//! The exit of the process while engines compute.
//!
//! `exit` destroys llama.cpp's static objects while other threads still use them, so a host that
//! exits during a reply would crash. A handler that runs before those destructors stops every
//! thread at its next call into llama.cpp.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the exit waits for calls into llama.cpp that cannot be aborted.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

struct ExitState {
    /// Threads inside llama.cpp.
    inside: usize,
    exiting: bool,
}

static STATE: Mutex<ExitState> = Mutex::new(ExitState { inside: 0, exiting: false });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, ExitState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While one lives, its thread is inside llama.cpp.
pub(super) struct CallGuard(());

impl CallGuard {
    /// Does not return once the process is exiting.
    pub(super) fn enter() -> CallGuard {
        let mut state = lock();
        if state.exiting {
            drop(state);
            loop {
                std::thread::park();
            }
        }
        state.inside += 1;
        CallGuard(())
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        lock().inside -= 1;
        CHANGED.notify_all();
    }
}

/// Whether the process is exiting. Loads and decodes then abort.
pub(super) fn is_exiting() -> bool {
    lock().exiting
}

/// Registers the handler to run before the destructors of all static objects that llama.cpp has
/// created so far. It creates them on first use, so this is called after every load and after the
/// first decode.
pub(super) fn register() {
    #[cfg(unix)]
    // SAFETY: the handler takes and returns nothing, and does not unwind. A failed registration
    // changes nothing.
    let _ = unsafe { libc::atexit(stop_all) };
}

#[cfg(unix)]
extern "C" fn stop_all() {
    let mut state = lock();
    state.exiting = true;
    let others_are_inside = |state: &mut ExitState| state.inside > 0;
    drop(CHANGED.wait_timeout_while(state, EXIT_TIMEOUT, others_are_inside));
}
