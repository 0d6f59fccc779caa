//! The process: its exit and its forks, for state that threads share; also its files and rights.
//!
//! While the process exits, nothing may wait without limit, because another thread may be in a
//! callback that never returns.
//!
//! A forked child has only one thread. A lock that another thread held at the fork stays locked in
//! the child. State in a static is therefore a [`Shared`] or a [`Lazy`]: a fork waits until no
//! thread uses one. Both are for short uses without callbacks. [`forks`] shows which state belongs
//! to threads of the parent.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
#[cfg(feature = "engine")]
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
#[cfg(unix)]
use std::time::Duration;
use std::time::Instant;

/// The deadline for all waits during the exit, once the exit has begun.
static EXIT_DEADLINE: OnceLock<Instant> = OnceLock::new();

/// Marks the process as exiting, so that llama.cpp is no longer called. Only the first deadline
/// counts.
#[cfg(unix)]
pub(crate) fn begin_exit(deadline: Instant) {
    let _ = EXIT_DEADLINE.set(deadline);
}

pub(crate) fn is_exiting() -> bool {
    exit_deadline().is_some()
}

/// When the exit stops waiting for other threads. `None` while the process is not exiting.
pub(crate) fn exit_deadline() -> Option<Instant> {
    EXIT_DEADLINE.get().copied()
}

/// The number of forks between the process that loaded the library and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// The number of threads that are about to fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// The number of current uses of shared state.
static USES: AtomicUsize = AtomicUsize::new(0);
/// Whether this process was forked during a use by another thread, which never ends here.
static HAS_ENDLESS_USE: AtomicBool = AtomicBool::new(false);
/// How long a fork waits for uses to end. A use takes microseconds, but the first use of a [`Lazy`]
/// takes longer, and the first load of a model may take seconds.
#[cfg(unix)]
pub(crate) const FORK_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    /// The use that lasts until the thread has ended.
    static LAST_USE: Cell<Option<Use>> = const { Cell::new(None) };
    /// The number of current uses on this thread.
    static USES_HERE: Cell<usize> = const { Cell::new(0) };
    /// Whether the fork of this thread waited in vain for uses of other threads.
    static WAITED_IN_VAIN: Cell<bool> = const { Cell::new(false) };
}

/// The number of forks between the process that loaded the library and this one. A child recognizes
/// by it what it has inherited.
pub(crate) fn forks() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Called before a fork. Waits until no other thread uses shared state.
#[cfg(unix)]
pub(crate) fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    let start = Instant::now();
    // Once all uses have ended, no other one begins before the fork.
    let is_used = loop {
        let is_used = USES.load(Ordering::SeqCst) > USES_HERE.get();
        if !is_used || start.elapsed() >= FORK_TIMEOUT {
            break is_used;
        }
        std::thread::yield_now();
    };
    WAITED_IN_VAIN.set(is_used);
}

/// Called after a fork, in the parent.
#[cfg(unix)]
pub(crate) fn after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Called after a fork, in the child. The other threads no longer exist.
#[cfg(unix)]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    // The number of uses says nothing here: a thread that gives way to the fork is counted at times.
    if WAITED_IN_VAIN.get() {
        HAS_ENDLESS_USE.store(true, Ordering::SeqCst);
    }
    FORKING.store(0, Ordering::SeqCst);
    USES.store(USES_HERE.get(), Ordering::SeqCst);
}

/// Whether shared state of this process may be locked for ever, because a fork has waited in vain.
pub(crate) fn has_endless_use() -> bool {
    HAS_ENDLESS_USE.load(Ordering::Relaxed)
}

/// A use of shared state. No fork happens while it lives, unless it takes longer than a fork waits.
pub(crate) struct Use(());

impl Use {
    pub(crate) fn begin() -> Use {
        // A nested use must not wait for a fork, because the fork waits for the outer use.
        let nested = USES_HERE.get() > 0;
        loop {
            USES.fetch_add(1, Ordering::SeqCst);
            if nested || FORKING.load(Ordering::SeqCst) == 0 {
                break;
            }
            USES.fetch_sub(1, Ordering::SeqCst);
            std::thread::yield_now();
        }
        USES_HERE.set(USES_HERE.get() + 1);
        Use(())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        USES_HERE.set(USES_HERE.get() - 1);
        USES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Begins a [`Use`] when it is dropped, which lasts until the thread has ended. A function that
/// `std::thread` runs drops it last.
///
/// A thread of `std::thread` that ends holds a lock of the standard library for a moment
/// (`delete_current_info` in library/std/src/sys/pal/unix/stack_overflow/thread_info.rs, Rust 1.95).
/// In a child forked at that moment, no such thread could end. Thread-local values are dropped after
/// that moment, so one of them holds the use.
pub(crate) struct ThreadEnd;

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        LAST_USE.set(Some(Use::begin()));
    }
}

/// The file that is mapped at an address. `None` if there is none, or if it was deleted.
#[cfg(feature = "engine")]
pub(crate) fn mapped_file(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let path = maps.split(|byte| *byte == b'\n').find_map(|line| {
        let range = str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        if !(number(start)?..number(end)?).contains(&address) {
            return None;
        }
        let path = &line[line.iter().position(|byte| *byte == b'/')?..];
        (!path.ends_with(b" (deleted)")).then(|| path.to_vec())
    })?;
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStringExt;
        Some(std::ffi::OsString::from_vec(path).into())
    }
    #[cfg(not(unix))]
    {
        String::from_utf8(path).ok().map(PathBuf::from)
    }
}

/// Whether the program has more rights than its caller, for example by the set-user-ID bit.
#[cfg(feature = "engine")]
pub(crate) fn has_more_rights() -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{getegid, geteuid, getgid, getuid};
        getuid() != geteuid() || getgid() != getegid()
    }
    #[cfg(not(unix))]
    false
}

/// A mutex for a static. No thread holds it during a fork of the process.
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(crate) const fn new(value: T) -> Self {
        Shared(Mutex::new(value))
    }

    /// Locks the mutex. If another thread has panicked while it held the lock, that is ignored.
    pub(crate) fn lock(&self) -> SharedGuard<'_, T> {
        let during = Use::begin();
        SharedGuard {
            value: self.0.lock().unwrap_or_else(PoisonError::into_inner),
            _during: during,
        }
    }
}

/// Gives access to the value of a [`Shared`].
pub(crate) struct SharedGuard<'a, T> {
    // Dropped before the other fields.
    value: MutexGuard<'a, T>,
    _during: Use,
}

impl<T> Deref for SharedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for SharedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A static value that is created on first use. The process does not fork in the meantime.
pub(crate) struct Lazy<T> {
    value: OnceLock<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Lazy { value: OnceLock::new(), make }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get().unwrap_or_else(|| {
            let _during = Use::begin();
            self.value.get_or_init(self.make)
        })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_fork_waits_for_uses_and_holds_new_ones() {
        static STATE: Shared<u32> = Shared::new(0);
        let (begun, is_begun) = channel();
        let (end, is_ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut state = STATE.lock();
                begun.send(()).expect("the test waits");
                is_ended.recv().expect("the test sends");
                // Nested uses must not wait for the fork.
                static LAZY: Lazy<u32> = Lazy::new(|| 1);
                *state = *LAZY;
            });
            is_begun.recv().expect("the thread sends");
            let before = STATE.0.try_lock().is_err();
            end.send(()).expect("the thread waits");
            before_fork();
            // On a busy machine the thread may need longer than a fork waits.
            let no_use_is_left = STATE.0.try_lock().is_ok();
            assert!(before && (no_use_is_left || WAITED_IN_VAIN.get()));
            let later = scope.spawn(|| *STATE.lock() += 1);
            assert!(!later.is_finished());
            after_fork_in_parent();
            later.join().expect("it goes on");
        });
        assert_eq!(*STATE.lock(), 2);
    }
}
