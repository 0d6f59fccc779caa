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
    #[cfg(unix)]
    // SAFETY: the handlers take and return nothing, and do not unwind. A failed registration
    // changes nothing.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

#[cfg(unix)]
unsafe extern "C" fn before() {
    process::before_fork();
    llama::before_fork();
}

#[cfg(unix)]
unsafe extern "C" fn in_parent() {
    llama::after_fork_in_parent();
    process::after_fork_in_parent();
}

#[cfg(unix)]
unsafe extern "C" fn in_child() {
    llama::after_fork_in_child();
    process::after_fork_in_child();
}
