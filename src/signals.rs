//! The signals of llb's own threads.
//!
//! A handler of the host that calls `exit` on one of them would wait for that thread itself, or for
//! a lock that the interrupted code holds. All threads of llb therefore block the host's signals
//! from their start, and so do the threads that they start.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Faults that `faults.cpp` handles.
const HANDLED: [Signal; 3] = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE];
/// Other faults, and the signal of profilers.
const UNCHANGED: [Signal; 5] =
    [Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS, Signal::SIGABRT, Signal::SIGPROF];

/// Blocks the host's signals on this thread while `start` runs, which must not panic. A thread that
/// it starts has them blocked from its first instruction.
pub(crate) fn blocked<T>(start: impl FnOnce() -> T) -> T {
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
pub(crate) fn unblock_faults() {
    // Fails only for an invalid argument.
    let _ = SigSet::from_iter(HANDLED).thread_unblock();
}
