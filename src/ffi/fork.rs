//! Prepares for forks of the host. A forked child has only the thread that forked.
//!
//! A fork waits until no other thread uses shared state, so the child finds no lock held. Chats
//! belong to the process that opened them: in the child they are closed, and new ones can be
//! opened. A fork by a direct system call, without the C library, is not noticed.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::llama;
use crate::process;

/// Registers the fork handlers, once per process.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.load(Ordering::Relaxed) || WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the handlers take and return nothing, and do not unwind. A failed registration
    // changes nothing.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    process::before_fork();
    llama::before_fork();
}

unsafe extern "C" fn in_parent() {
    llama::after_fork_in_parent();
    process::after_fork_in_parent();
}

unsafe extern "C" fn in_child() {
    llama::after_fork_in_child();
    process::after_fork_in_child();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;
    use crate::error::Code;
    use crate::ffi::guard;
    use crate::process::Shared;

    /// A fork waits for a limited time. The child must not wait for a lock that stays held there.
    #[test]
    fn a_child_of_a_fork_during_a_long_use_gets_errors() {
        const RIGHT: i32 = 7;
        static STATE: Shared<u32> = Shared::new(0);
        watch();
        let (begun, is_begun) = channel();
        let (end, is_ended) = channel::<()>();
        let status = std::thread::scope(|scope| {
            scope.spawn(move || {
                let _state = STATE.lock();
                begun.send(()).expect("the test waits");
                is_ended.recv().expect("the test sends");
            });
            is_begun.recv().expect("the thread sends");
            // SAFETY: the child calls the library, and then ends without running destructors.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: takes a number.
                unsafe { libc::alarm(20) };
                let used = guard::catch(|| Ok(*STATE.lock()));
                let is_refused = used.is_err_and(|error| error.code() == Code::EngineClosed);
                // SAFETY: takes a number.
                unsafe { libc::_exit(if is_refused { RIGHT } else { 1 }) };
            }
            end.send(()).expect("the thread waits");
            let mut status = 0;
            // SAFETY: the pointer is valid.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        });
        assert!(libc::WIFEXITED(status), "{status}");
        assert_eq!(libc::WEXITSTATUS(status), RIGHT);
        assert_eq!(guard::catch(|| Ok(*STATE.lock())).expect("the parent goes on"), 0);
    }

    /// Threads that begin to use state give way to a fork. They do not count as uses.
    #[test]
    fn a_child_of_a_busy_process_can_use_its_state() {
        const RIGHT: i32 = 7;
        static STATE: Shared<u32> = Shared::new(0);
        static ENDED: AtomicBool = AtomicBool::new(false);
        watch();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ENDED.load(Ordering::Relaxed) {
                        drop(STATE.lock());
                    }
                });
            }
            let statuses: Vec<i32> = (0..300)
                .map(|_| {
                    let start = Instant::now();
                    // SAFETY: the child calls the library, and then ends without running
                    // destructors.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        // Other tests may use state for longer than a fork waits.
                        let is_late = start.elapsed() >= process::FORK_TIMEOUT;
                        let is_right = guard::catch(|| Ok(*STATE.lock())).is_ok() || is_late;
                        // SAFETY: takes a number.
                        unsafe { libc::_exit(if is_right { RIGHT } else { 1 }) };
                    }
                    let mut status = 0;
                    // SAFETY: the pointer is valid.
                    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                    status
                })
                .collect();
            ENDED.store(true, Ordering::Relaxed);
            let right =
                |status: &&i32| libc::WIFEXITED(**status) && libc::WEXITSTATUS(**status) == RIGHT;
            assert_eq!(statuses.iter().filter(right).count(), statuses.len());
        });
    }
}
