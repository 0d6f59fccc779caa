//! The memory of this machine, or of the container that limits it. Known only on Linux.
#![allow(unsafe_code, reason = "calls a function of glibc that no crate of the program wraps")]

use std::fs;
use std::path::Path;

/// Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    pub(crate) total: Option<u64>,
    /// The memory that programs can get without swapping.
    pub(crate) available: Option<u64>,
}

impl MachineMemory {
    /// Reads the current values.
    pub(crate) fn read() -> MachineMemory {
        MachineMemory::of(Path::new("/"))
    }

    /// Reads the files below `root` (proc(5), and the kernel's documentation of cgroup v2).
    fn of(root: &Path) -> MachineMemory {
        let machine = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let kilobytes = |name| number_after(&machine, name).map(|number| number * 1024);
        let memory =
            MachineMemory { total: kilobytes("MemTotal:"), available: kilobytes("MemAvailable:") };
        let group = root.join("sys/fs/cgroup");
        let text = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
        // "max" means no limit.
        let Ok(limit) = text("memory.max").trim().parse::<u64>() else { return memory };
        let used = text("memory.current").trim().parse::<u64>().unwrap_or_default();
        // Cached pages of files. The kernel drops them when a program needs memory.
        let cached = number_after(&text("memory.stat"), "inactive_file").unwrap_or_default();
        let remaining = limit.saturating_sub(used.saturating_sub(cached));
        MachineMemory {
            total: Some(memory.total.map_or(limit, |total| total.min(limit))),
            available: Some(
                memory.available.map_or(remaining, |available| available.min(remaining)),
            ),
        }
    }
}

/// Returns freed memory to the system. glibc keeps it for each thread, which amounts to hundreds of
/// megabytes after several loads and unloads of models.
pub(crate) fn return_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            /// malloc_trim(3)
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: any thread may call it at any time.
        unsafe { malloc_trim(0) };
    }
}

/// The number after a name at the start of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let mut words =
        text.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_the_memory_of_its_limit() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(MachineMemory::of(root.path()), MachineMemory::default());
        write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 500 kB\n");
        write("sys/fs/cgroup/memory.max", "max\n");
        let memory = |total: u64, available: u64| MachineMemory {
            total: Some(total),
            available: Some(available),
        };
        assert_eq!(MachineMemory::of(root.path()), memory(1_024_000, 512_000));
        write("sys/fs/cgroup/memory.max", "100000\n");
        write("sys/fs/cgroup/memory.current", "90000\n");
        write("sys/fs/cgroup/memory.stat", "anon 70000\ninactive_file 20000\n");
        assert_eq!(MachineMemory::of(root.path()), memory(100_000, 30_000));
    }
}
