//! The locks, channels and threads of the modules that tests/models checks. Here they are the
//! standard library's; there, a model checker's take their place.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
pub(crate) use std::thread::JoinHandle;

/// Locks a mutex. If another thread has panicked while it held the lock, that is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
