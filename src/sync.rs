//! The locks, channels and threads of the modules that tests/models checks. Here they are the
//! standard library's; there, a model checker's take their place.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
pub(crate) use std::thread::JoinHandle;
