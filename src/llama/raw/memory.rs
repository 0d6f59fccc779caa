//! Available memory. It is checked first, so that a model that cannot fit causes an error.
//!
//! llama.cpp clears the KV cache when it creates it. If the cache does not fit on a machine that
//! overcommits memory, the kernel's OOM killer ends the process.

use std::fs;

/// The bytes that can still be used: the system's available memory, within the limit of the control
/// group. `None` if the system does not report it.
pub(crate) fn available() -> Option<u64> {
    let group =
        group("memory.max").and_then(|most| Some(most.saturating_sub(group("memory.current")?)));
    smaller(meminfo(&system(), "MemAvailable:"), group)
}

/// The bytes of memory that a process could ever have: the system's memory, within the limit of the
/// control group, and its swap. `None` if the system does not report it.
#[cfg(llb_isolation)]
pub(crate) fn installed() -> Option<u64> {
    let system = system();
    let memory = smaller(meminfo(&system, "MemTotal:"), group("memory.max"))?;
    Some(memory.saturating_add(meminfo(&system, "SwapTotal:").unwrap_or(0)))
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

fn system() -> String {
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
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number; it locks what it changes.
    unsafe {
        libc::malloc_trim(0);
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
