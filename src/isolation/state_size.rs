//! The size that the state file of an isolated chat may have.
//!
//! Only the helper knows the size of its model's state, and it is not trusted. A state was in the
//! memory of the helper before it is written, so the memory of the system bounds it.

use std::fs::{self, File};
use std::io;

/// The limit where the system does not report its memory.
const MOST_UNKNOWN: u64 = 1 << 40;

/// The maximum size of a state file in bytes.
pub(super) fn most_state_bytes() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok();
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    most_bytes(system.as_deref().unwrap_or_default(), group.as_deref().unwrap_or_default())
}

/// From the texts of /proc/meminfo and of the control group's `memory.max`, which may be "max".
fn most_bytes(system: &str, group: &str) -> u64 {
    let kib = |name: &str| {
        let line = system.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let memory = kib("MemTotal:").map_or(MOST_UNKNOWN, |kib| kib.saturating_mul(1024));
    let memory = group.trim().parse().map_or(memory, |group: u64| group.min(memory));
    memory.saturating_add(kib("SwapTotal:").unwrap_or(0).saturating_mul(1024))
}

/// Fails if a helper wrote more than `most` bytes to a state file.
pub(super) fn check_size(file: &File, most: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    if size > most {
        let problem = format!(
            "the helper process wrote {size} bytes, but a state has at most {most} on this system"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_system_is_the_limit() {
        let system = "MemTotal:       100 kB\nMemFree: 1 kB\nSwapTotal:       50 kB\n";
        for (system, group, expected) in [
            (system, "max\n", 150 << 10),
            (system, "", 150 << 10),
            (system, "2048\n", 52 << 10),
            ("MemTotal: 100 kB\n", "max\n", 100 << 10),
            ("", "", MOST_UNKNOWN),
        ] {
            assert_eq!(most_bytes(system, group), expected, "{system:?} {group:?}");
        }
        assert!(most_state_bytes() > 1 << 20);
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1001).expect("a size");
        assert!(check_size(&file, 1001).is_ok());
        let refused = check_size(&file, 1000).expect_err("too large");
        let expected =
            "the helper process wrote 1001 bytes, but a state has at most 1000 on this system";
        assert_eq!(refused.to_string(), expected);
    }
}
