//! The processor time of an operation, which other load on the machine hardly changes.

use std::time::Duration;

use super::conformance::thread_time;

/// The processor time that `run` takes on this thread.
pub(crate) fn cpu_time(run: impl FnOnce()) -> Duration {
    let started = thread_time();
    run();
    thread_time().saturating_sub(started)
}
