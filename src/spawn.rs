//! Starts the library's own threads. Their panics print nothing, and they block the host's signals.
//!
//! A handler of the host that calls `exit` on one of them would wait for that thread itself, or for
//! a lock that the interrupted code holds. All threads of llb therefore block the host's signals
//! from their start, and so do the threads that they start.

use std::thread::{Builder, JoinHandle};

#[cfg(unix)]
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::error::{Code, Error, Result};
use crate::panic::Quiet;
use crate::process::ThreadEnd;

/// Faults that `faults.cpp` handles.
#[cfg(unix)]
const HANDLED: [Signal; 3] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE];
/// Other faults, and the signal of profilers.
#[cfg(unix)]
const UNCHANGED: [Signal; 5] =
    [Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS, Signal::SIGABRT, Signal::SIGPROF];

/// Starts a thread whose panics print nothing, which takes no signal of the host, and which does not
/// end during a fork. Fails with `OUT_OF_MEMORY` if the system cannot start it.
pub(crate) fn thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    spawn(Builder::new(), name, run)
}

/// Like [`thread`], with a stack of this size.
#[cfg(feature = "engine")]
pub(crate) fn thread_with_stack<T: Send + 'static>(
    name: &str,
    bytes: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    spawn(Builder::new().stack_size(bytes), name, run)
}

fn spawn<T: Send + 'static>(
    builder: Builder,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let run = move || {
        #[cfg(unix)]
        unblock_faults();
        // Dropped last.
        let _end = ThreadEnd;
        let _quiet = Quiet::enter();
        run()
    };
    let start = || builder.name(name.into()).spawn(run);
    #[cfg(unix)]
    let started = with_signals_blocked(start);
    #[cfg(not(unix))]
    let started = start();
    started.map_err(|error| {
        Error::new(Code::OutOfMemory, format!("cannot start the thread {name}")).caused_by(error)
    })
}

/// Blocks the host's signals on this thread while `start` runs, which must not panic. A thread that
/// it starts has them blocked from its first instruction.
#[cfg(unix)]
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut signals = SigSet::all();
    HANDLED.into_iter().chain(UNCHANGED).for_each(|signal| signals.remove(signal));
    // Fails only for an invalid argument.
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    let _ = before.and_then(|before| before.thread_set_mask());
    started
}

/// Unblocks the faults that llb handles on this thread. The host may have blocked them on the thread
/// that started this one, and a blocked fault ends the process.
#[cfg(unix)]
fn unblock_faults() {
    // Fails only for an invalid argument.
    let _ = SigSet::from_iter(HANDLED).thread_unblock();
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;

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
        drop(thread("ending", run).expect("a thread"));
        begin.send(()).expect("the thread waits");
        is_ending.recv().expect("the thread sends");
        let (forked, has_forked) = channel();
        let start = Instant::now();
        let fork = std::thread::spawn(move || {
            before_fork();
            after_fork_in_parent();
            forked.send(()).expect("the test waits");
        });
        let early = has_forked.recv_timeout(FORK_TIMEOUT / 10);
        // On a busy machine the fork may have waited for as long as it may.
        assert!(early.is_err() || start.elapsed() >= FORK_TIMEOUT);
        end.send(()).expect("the thread waits");
        early.or_else(|_| has_forked.recv()).expect("the fork follows");
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
        let (own, of_its_thread) = thread("test", run).expect("a thread").join().expect("no panic");
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
            let started = thread("test", blocked_signals).expect("a thread");
            (before, started.join().expect("no panic"), blocked_signals())
        });
        let (before, own, after) = starter.join().expect("no panic");
        for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE] {
            assert!(before.contains(&fault) && !own.contains(&fault), "{fault}");
        }
        assert_eq!(before, after);
    }
}
