//! Available memory. It is checked first, so that a model that cannot fit causes an error.
//!
//! llama.cpp clears the KV cache when it creates it. If the cache does not fit on a machine that
//! overcommits memory, the kernel's OOM killer ends the process.

use std::fs;

/// The bytes that can still be used: the system's available memory, within the limit of the control
/// group. `None` if the system does not report it.
pub(crate) fn available() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo_available(&text));
    match (system, group_available()) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

fn meminfo_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn group_available() -> Option<u64> {
    let read = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    // Without a limit `memory.max` reads "max", which does not parse.
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
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
        assert_eq!(meminfo_available(text), Some(70 * 1024));
        assert_eq!(meminfo_available("MemTotal: 1 kB\n"), None);
    }
}
