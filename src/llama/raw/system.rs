//! The processors that the system gives this process, and the time that a thread waits for one.

use std::ffi::c_long;
use std::fs;
use std::time::Duration;

use crate::process::Use;

/// The number of processors that the process may use, within its own limits and those of its
/// container.
pub(crate) fn usable_processors() -> u32 {
    // num_cpus reads the limits once, while holding its own lock.
    let _during = Use::begin();
    num_cpus::get().max(1) as u32
}

/// Measures how long a thread has been ready to run without having a processor.
#[cfg(unix)]
pub(crate) struct WaitClock(fs::File);

#[cfg(unix)]
impl WaitClock {
    /// `task` is the thread's number on Linux, or 0 for the calling thread. `None` if the system
    /// does not count this time, or does not let this process read it.
    pub(crate) fn open(task: c_long) -> Option<WaitClock> {
        let path = match task {
            0 => "/proc/thread-self/schedstat".to_owned(),
            task => format!("/proc/self/task/{task}/schedstat"),
        };
        let clock = WaitClock(fs::File::open(path).ok()?);
        clock.read().map(|_| clock)
    }

    /// The second number of `schedstat` (Linux's `Documentation/scheduler/sched-stats.rst`):
    /// nanoseconds of running, nanoseconds of waiting on a run queue, the number of times that it
    /// was given a processor.
    pub(crate) fn read(&self) -> Option<Duration> {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        let mut fields = std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace();
        let _running: u64 = fields.next()?.parse().ok()?;
        fields.next()?.parse().ok().map(Duration::from_nanos)
    }
}

/// Windows does not report it.
#[cfg(not(unix))]
pub(crate) enum WaitClock {}

#[cfg(not(unix))]
impl WaitClock {
    pub(crate) fn open(_task: c_long) -> Option<WaitClock> {
        None
    }

    pub(crate) fn read(&self) -> Option<Duration> {
        match *self {}
    }
}
