//! The memory that this process can have: that of the machine, within the limits of its control
//! groups and of its address space (`ulimit -v`). Known only on Linux.
//!
//! Available memory is checked first, so that a model or a picture that cannot fit causes an error.
//! On a machine that overcommits memory, the kernel's OOM killer would end the process later.

use std::fs;
use std::path::Path;

/// The bytes that can still be used. `None` if the system does not report it.
pub(crate) fn available_memory() -> Option<u64> {
    MachineMemory::read().available
}

/// The bytes of memory that the process could ever have, with the machine's swap. `None` if the
/// system does not report it.
pub(crate) fn installed_memory() -> Option<u64> {
    let swap = kibibytes(&meminfo(Path::new("/")), "SwapTotal:").unwrap_or(0);
    Some(MachineMemory::read().total?.saturating_add(swap))
}

/// Returns freed memory to the system. Without this, glibc keeps freed blocks of up to 32 MiB.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number; it locks what it changes.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Sizes in bytes; `None` if the system does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// What the process can have at most.
    pub total: Option<u64>,
    /// What can still be used without swapping.
    pub available: Option<u64>,
}

impl MachineMemory {
    /// Reads the current sizes.
    pub fn read() -> MachineMemory {
        MachineMemory::of(Path::new("/"))
    }

    /// Reads the files below `root` (proc(5), and the kernel's documentation of both versions of
    /// control groups).
    fn of(root: &Path) -> MachineMemory {
        let machine = meminfo(root);
        let total = kibibytes(&machine, "MemTotal:");
        let machine = MachineMemory { total, available: kibibytes(&machine, "MemAvailable:") };
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let path = |names: &str| {
            let mut lines =
                groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            lines.find_map(|(group, path)| (group == names).then_some(path)).unwrap_or_default()
        };
        let all = root.join("sys/fs/cgroup");
        machine
            .within(groups_within(&all, path(""), &VERSION_2))
            .within(groups_within(&all.join("memory"), path("memory"), &VERSION_1))
            .within(address_space(root))
    }

    /// The smaller values of both.
    fn within(self, other: MachineMemory) -> MachineMemory {
        let smaller = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
        MachineMemory {
            total: smaller(self.total, other.total),
            available: smaller(self.available, other.available),
        }
    }
}

fn meminfo(root: &Path) -> String {
    fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default()
}

/// The names of a group's files.
struct GroupFiles {
    /// Without a limit it has a word, or a number that no machine has.
    limit: &'static str,
    used: &'static str,
    /// The name in `memory.stat` of the cached pages of files. The kernel drops them when a program
    /// needs memory.
    cached: &'static str,
}

const VERSION_2: GroupFiles =
    GroupFiles { limit: "memory.max", used: "memory.current", cached: "inactive_file" };
const VERSION_1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};

/// The smallest limit of a group and those around it. In a container its own group is the first
/// folder, and `path` may lead nowhere.
fn groups_within(all: &Path, path: &str, files: &GroupFiles) -> MachineMemory {
    let own = all.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(all));
    let size = |group: &Path| {
        let text = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
        let Ok(limit) = text(files.limit).trim().parse::<u64>() else {
            return MachineMemory::default();
        };
        let used = text(files.used).trim().parse::<u64>().unwrap_or_default();
        let cached = number_after(&text("memory.stat"), files.cached).unwrap_or_default();
        let available = limit.saturating_sub(used.saturating_sub(cached));
        MachineMemory { total: Some(limit), available: Some(available) }
    };
    groups.map(size).fold(MachineMemory::default(), MachineMemory::within)
}

/// The limit of the address space.
fn address_space(root: &Path) -> MachineMemory {
    let text =
        |name: &str| fs::read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let limits = text("limits");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    // The soft limit, or "unlimited".
    let limit = limit.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let Some(limit) = limit else { return MachineMemory::default() };
    let used = kibibytes(&text("status"), "VmSize:").unwrap_or_default();
    MachineMemory { total: Some(limit), available: Some(limit.saturating_sub(used)) }
}

/// The bytes in a line of /proc/meminfo or /proc/self/status.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    number_after(text, name)?.checked_mul(1024)
}

/// The number after a name at the start of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut words = lines.find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_process_has_the_memory_of_its_smallest_limit() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        #[track_caller]
        fn check(root: &Path, total: u64, available: u64) {
            let expected = MachineMemory { total: Some(total), available: Some(available) };
            assert_eq!(MachineMemory::of(root), expected);
        }
        assert_eq!(MachineMemory::of(root.path()), MachineMemory::default());
        write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 500 kB\n");
        write("sys/fs/cgroup/memory.max", "max\n");
        write("proc/self/limits", "Max address space unlimited unlimited bytes\n");
        check(root.path(), 1_024_000, 512_000);
        // Of a container.
        write("sys/fs/cgroup/memory.max", "100000\n");
        write("sys/fs/cgroup/memory.current", "90000\n");
        write("sys/fs/cgroup/memory.stat", "anon 70000\ninactive_file 20000\n");
        check(root.path(), 100_000, 30_000);
        // Of a group around that of the process.
        write("proc/self/cgroup", "4:memory:/x/y\n0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "90000\n");
        write("sys/fs/cgroup/a/memory.current", "65000\n");
        check(root.path(), 90_000, 25_000);
        // Of the first version, without a limit and with one.
        write("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
        check(root.path(), 90_000, 25_000);
        write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "80000\n");
        write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "70000\n");
        write("sys/fs/cgroup/memory/x/memory.stat", "inactive_file 9\ntotal_inactive_file 10000\n");
        check(root.path(), 80_000, 20_000);
        // Of `ulimit -v`.
        write("proc/self/limits", "Max address space 70000 unlimited bytes\n");
        write("proc/self/status", "VmPeak:\t 90 kB\nVmSize:\t 60 kB\n");
        check(root.path(), 70_000, 70_000 - 61_440);
    }
}
