//! Memory that can be had, so that what cannot fit is an error before it is the end of the process.
//!
//! llama.cpp clears the KV cache when it makes it; on a machine that overcommits, one that does not
//! fit brings the kernel's OOM killer instead of an error.

use std::fs;

/// Bytes that can still be used here: what the system has left, within the limit of the control
/// group. None where the system does not say.
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
    // `memory.max` reads "max" where there is no limit, which is no number.
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
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
