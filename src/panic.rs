//! Turns panics into errors, and prints nothing to stderr.
//!
//! The library catches every panic at its edges: `ffi::guard`, the engine thread and template
//! renders. The default panic hook would still print a message. [`Quiet`] silences the hook on
//! threads that are inside the library, and leaves it unchanged on all others.

use std::any::Any;
use std::cell::Cell;
use std::thread::JoinHandle;

use crate::error::{Code, Error, Result};
use crate::process::{Lazy, ThreadEnd};
#[cfg(unix)]
use crate::signals;

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

/// Starts a thread whose panics print nothing, which takes no signal of the host, and which does not
/// end during a fork. Fails with `OUT_OF_MEMORY` if the system cannot start it.
pub(crate) fn spawn_quiet<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    spawn(std::thread::Builder::new(), name, run)
}

/// Like [`spawn_quiet`], with a stack of this size.
#[cfg(feature = "engine")]
pub(crate) fn spawn_quiet_with_stack<T: Send + 'static>(
    name: &str,
    bytes: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    spawn(std::thread::Builder::new().stack_size(bytes), name, run)
}

fn spawn<T: Send + 'static>(
    thread: std::thread::Builder,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let run = move || {
        #[cfg(unix)]
        signals::unblock_faults();
        // Dropped last.
        let _end = ThreadEnd;
        let _quiet = Quiet::enter();
        run()
    };
    let start = || thread.name(name.into()).spawn(run);
    #[cfg(unix)]
    let started = signals::blocked(start);
    #[cfg(not(unix))]
    let started = start();
    started.map_err(|error| {
        Error::new(Code::OutOfMemory, format!("cannot start the thread {name}")).caused_by(error)
    })
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

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use nix::sys::signal::{SigSet, Signal};

    use super::*;
    use crate::process::{FORK_TIMEOUT, after_fork_in_parent, before_fork};

    #[test]
    fn a_fork_waits_for_ends_of_threads() {
        /// The result of a thread. The last of its function is the drop of this.
        struct Last(Sender<()>, Receiver<()>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.send(()).expect("the test waits");
                self.1.recv().expect("the test sends");
            }
        }
        let (ending, is_ending) = channel();
        let (end, is_ended) = channel();
        let (begin, may_begin) = channel();
        let run = move || may_begin.recv().map(|()| Last(ending, is_ended));
        // Without a handle, the thread itself drops its result.
        drop(spawn_quiet("ending", run).expect("a thread"));
        begin.send(()).expect("the thread waits");
        is_ending.recv().expect("the thread sends");
        let (forked, has_forked) = channel();
        let fork = std::thread::spawn(move || {
            before_fork();
            after_fork_in_parent();
            forked.send(()).expect("the test waits");
        });
        assert!(has_forked.recv_timeout(FORK_TIMEOUT / 10).is_err());
        end.send(()).expect("the thread waits");
        has_forked.recv().expect("the fork follows");
        fork.join().expect("no panic");
    }

    fn blocked_signals() -> BTreeSet<Signal> {
        SigSet::thread_get_mask().expect("a mask").iter().collect()
    }

    #[test]
    fn a_thread_and_its_threads_block_the_hosts_signals() {
        // Faults and the profiler's signal. The last two cannot be blocked.
        const OPEN: [&str; 10] = [
            "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT", "SIGPROF",
            "SIGKILL", "SIGSTOP",
        ];
        let expected: BTreeSet<&str> =
            Signal::iterator().map(Signal::as_str).filter(|name| !OPEN.contains(name)).collect();
        let before = blocked_signals();
        let run = || (blocked_signals(), std::thread::spawn(blocked_signals).join());
        let (own, of_its_thread) =
            spawn_quiet("test", run).expect("a thread").join().expect("no panic");
        for blocked in [own, of_its_thread.expect("no panic")] {
            assert_eq!(blocked.into_iter().map(Signal::as_str).collect::<BTreeSet<_>>(), expected);
        }
        assert_eq!(blocked_signals(), before, "the starting thread keeps its own");
    }

    #[test]
    fn a_thread_takes_faults_that_its_starter_blocks() {
        let starter = std::thread::spawn(|| {
            SigSet::all().thread_set_mask().expect("a valid mask");
            let before = blocked_signals();
            let thread = spawn_quiet("test", blocked_signals).expect("a thread");
            (before, thread.join().expect("no panic"), blocked_signals())
        });
        let (before, own, after) = starter.join().expect("no panic");
        for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE] {
            assert!(before.contains(&fault) && !own.contains(&fault), "{fault}");
        }
        assert_eq!(before, after);
    }
}
