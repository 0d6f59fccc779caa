//! The exit of the process while engines compute.
//!
//! `exit` destroys llama.cpp's static objects while other threads still use them, so a host that
//! exits during a reply would crash. A handler therefore runs before those destructors. It lets
//! chats save their state, and then ends all use of llama.cpp: it aborts running calls and refuses
//! later ones. From then on, no object of llama.cpp is freed.
//!
//! A forked child has no other threads, so it has nothing to wait for. On Windows a library is told
//! of the exit when the system has ended all other threads, so nothing is done there.

use std::cell::Cell;
#[cfg(unix)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(unix)]
use std::time::Duration;
use std::time::Instant;

#[cfg(unix)]
use crate::panic::Quiet;
use crate::process::{self, Shared};

/// How long the exit waits for calls into llama.cpp that cannot be aborted, and for each engine
/// that saves a state.
#[cfg(unix)]
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the exit checks whether all calls have ended.
#[cfg(unix)]
const POLL: Duration = Duration::from_millis(1);

/// The number of threads that are inside llama.cpp.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Set before the exit begins. Decodes then abort, so that the engines can answer.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Something to finish at exit, while the engines are still running.
pub trait BeforeExit: Send + Sync {
    /// Runs on the exiting thread, whose thread-locals may already be destroyed. Waits for the
    /// engine until `deadline`. Returns false if the engine did not answer.
    fn before_exit(&self, deadline: Instant) -> bool;
}

/// The registered values, each with the process that registered it.
static BEFORE_EXIT: Shared<Vec<(usize, Weak<dyn BeforeExit>)>> = Shared::new(Vec::new());

/// Calls `value` when this process exits, if it is still alive then.
pub fn call_before_exit(value: Weak<dyn BeforeExit>) {
    let mut values = BEFORE_EXIT.lock();
    values.retain(|(_, value)| value.strong_count() > 0);
    values.push((process::forks(), value));
    drop(values);
    register();
}

thread_local! {
    /// The number of this thread's guards. An exit from a signal handler must not wait for its own
    /// thread.
    static INSIDE_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Marks the current thread as being inside llama.cpp.
pub(crate) struct CallGuard(());

impl CallGuard {
    /// Returns `None` once the process is exiting. The call must then not be made, and its object
    /// is leaked.
    pub(crate) fn enter() -> Option<CallGuard> {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        INSIDE_HERE.set(INSIDE_HERE.get() + 1);
        let inside = CallGuard(());
        (!process::is_exiting()).then_some(inside)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        INSIDE_HERE.set(INSIDE_HERE.get() - 1);
    }
}

/// Called before a fork. Takes the lock that llama.cpp holds briefly in every decode.
#[cfg(unix)]
pub(crate) fn before_fork() {
    // SAFETY: takes nothing. `after_fork_in_parent` ends the section on the same thread.
    unsafe { ggml_critical_section_start() };
}

/// Called after a fork, in the parent.
#[cfg(unix)]
pub(crate) fn after_fork_in_parent() {
    // SAFETY: `before_fork` has started the section on this thread.
    unsafe { ggml_critical_section_end() };
}

/// Called after a fork, in the child. The threads that were inside llama.cpp do not exist here.
#[cfg(unix)]
pub(crate) fn after_fork_in_child() {
    after_fork_in_parent();
    INSIDE.store(INSIDE_HERE.get(), Ordering::SeqCst);
}

#[cfg(unix)]
unsafe extern "C" {
    // llama-cpp-sys-2 does not declare them.
    fn ggml_critical_section_start();
    fn ggml_critical_section_end();
}

/// Whether the process is about to exit. Loads and decodes then abort.
pub(crate) fn is_stopping() -> bool {
    STOPPING.load(Ordering::Relaxed)
}

/// Called before llama.cpp starts. From then on, exit.cpp registers the handler after each static
/// object of llama.cpp, if the linker redirects that.
pub(crate) fn install() {
    #[cfg(target_os = "linux")]
    // SAFETY: the handler takes and returns nothing, does not unwind, and lives forever.
    unsafe {
        llb_exit_set_handler(stop_all);
    };
    register();
}

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn llb_exit_set_handler(handler: extern "C" fn());
}

/// Registers the handler so that it runs before what was registered so far: handlers of drivers, and
/// destructors of llama.cpp's static objects where exit.cpp does not notice them. Both appear on
/// first use, so this is called after each load, which also tokenizes and decodes.
pub(crate) fn register() {
    #[cfg(unix)]
    {
        // A forked child could not exit if it inherited the lock of the list of handlers.
        let _during = process::Use::begin();
        // SAFETY: the handler takes and returns nothing, and does not unwind. A failed registration
        // changes nothing.
        let _ = unsafe { libc::atexit(stop_all) };
    }
}

/// The handler may be registered several times. Only its first run does anything.
#[cfg(unix)]
extern "C" fn stop_all() {
    let _ = catch_unwind(|| {
        let _quiet = Quiet::enter();
        if !STOPPING.swap(true, Ordering::SeqCst) {
            save_states();
        }
        process::begin_exit(Instant::now() + EXIT_TIMEOUT);
        let deadline = process::exit_deadline();
        while INSIDE.load(Ordering::SeqCst) > INSIDE_HERE.get()
            && deadline.is_some_and(|deadline| Instant::now() < deadline)
        {
            std::thread::sleep(POLL);
        }
    });
}

#[cfg(unix)]
fn save_states() {
    let values = std::mem::take(&mut *BEFORE_EXIT.lock());
    let here = values.iter().filter(|(forks, _)| *forks == process::forks());
    for value in here.filter_map(|(_, value)| value.upgrade()) {
        let saved =
            catch_unwind(AssertUnwindSafe(|| value.before_exit(Instant::now() + EXIT_TIMEOUT)));
        if matches!(saved, Ok(false)) {
            // The engine is inside a call that cannot be aborted. Other engines may be waiting for
            // the same call.
            return;
        }
    }
}
