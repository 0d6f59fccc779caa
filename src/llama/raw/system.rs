//! What the system gives this process: memory, processors, and the time that a thread waits for one.
//!
//! Available memory is checked first, so that a model that cannot fit causes an error. llama.cpp
//! clears the KV cache when it creates it. If the cache does not fit on a machine that overcommits
//! memory, the kernel's OOM killer ends the process.

use std::ffi::c_long;
use std::fs;
use std::time::Duration;

use crate::process::Use;

/// The bytes that can still be used: the system's available memory, within the limit of the control
/// group. `None` if the system does not report it.
pub(crate) fn available_memory() -> Option<u64> {
    let group =
        group("memory.max").and_then(|most| Some(most.saturating_sub(group("memory.current")?)));
    smaller(meminfo(&memory_of_system(), "MemAvailable:"), group)
}

/// The bytes of memory that a process could ever have: the system's memory, within the limit of the
/// control group, and its swap. `None` if the system does not report it.
#[cfg(llb_isolation)]
pub(crate) fn installed_memory() -> Option<u64> {
    let system = memory_of_system();
    let memory = smaller(meminfo(&system, "MemTotal:"), group("memory.max"))?;
    Some(memory.saturating_add(meminfo(&system, "SwapTotal:").unwrap_or(0)))
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn memory_of_system() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// The bytes in a line of /proc/meminfo.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

/// A number of the control group. Without a limit `memory.max` reads "max", which does not parse.
fn group(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
}

/// Returns freed memory to the system. Without this, glibc keeps freed blocks of up to 32 MiB.
pub(crate) fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number; it locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       100 kB\nMemFree:         1 kB\nMemAvailable:    70 kB\n";
        assert_eq!(meminfo(text, "MemAvailable:"), Some(70 * 1024));
        assert_eq!(meminfo(text, "MemTotal:"), Some(100 * 1024));
        assert_eq!(meminfo(text, "SwapTotal:"), None);
        assert_eq!((smaller(Some(2), Some(1)), smaller(None, Some(1))), (Some(1), Some(1)));
    }
}
