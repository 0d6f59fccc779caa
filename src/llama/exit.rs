//! The end of the process, while engines compute.
//!
//! `exit` destroys llama.cpp's static objects while other threads still use them: a host that ends
//! in the middle of a reply would end with a fault. A handler that runs before those destructors
//! stops every thread at the edge of llama.cpp.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the end of the process waits for a call into llama.cpp that cannot be aborted.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// Whether the process is exiting: loads and decodes end themselves then.
pub(super) fn is_exiting() -> bool {
    lock().exiting
}

/// Puts the handler in front of the destructors of all that llama.cpp has made so far. Called after
/// every load and after the first decode, since it makes its static objects when they are first
/// used.
pub(super) fn register() {
    #[cfg(unix)]
    // SAFETY: the handler takes and returns nothing, and does not unwind. One that cannot be
    // registered changes nothing.
    let _ = unsafe { libc::atexit(stop_all) };
}

#[cfg(unix)]
extern "C" fn stop_all() {
    let mut state = lock();
    state.exiting = true;
    let others_are_inside = |state: &mut ExitState| state.inside > 0;
    drop(CHANGED.wait_timeout_while(state, PATIENCE, others_are_inside));
}
