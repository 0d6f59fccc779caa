//! The memory of this machine, or of the container or the limit of the process (`ulimit -v`) that
//! is smaller. Known only on Linux.
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

    /// Reads the files below `root` (proc(5), and the kernel's documentation of cgroup).
    fn of(root: &Path) -> MachineMemory {
        let machine = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let kilobytes = |name| number_after(&machine, name).map(|number| number * 1024);
        let memory =
            MachineMemory { total: kilobytes("MemTotal:"), available: kilobytes("MemAvailable:") };
        memory.within(container(root)).within(process(root))
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

/// The smallest limit of the groups of this process, of both versions of cgroup. In a container its
/// own group is the root, and the path may lead nowhere.
fn container(root: &Path) -> MachineMemory {
    const VERSION_1: [&str; 3] =
        ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
    const VERSION_2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];
    let lines = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = |all: &str, names: &str, files| {
        let fields = lines.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let path = fields.filter(|(group, _)| *group == names).map(|(_, path)| path).next();
        let all = root.join(all);
        let own = all.join(path.unwrap_or_default().trim_start_matches('/'));
        let groups = own.ancestors().take_while(|group| group.starts_with(&all));
        groups.map(|path| group(path, files)).fold(MachineMemory::default(), MachineMemory::within)
    };
    groups("sys/fs/cgroup", "", VERSION_2).within(groups(
        "sys/fs/cgroup/memory",
        "memory",
        VERSION_1,
    ))
}

/// The limit of one group. `files` are that of the limit, that of what is used, and the name in
/// `memory.stat` of the cached pages of files.
fn group(group: &Path, [limit, used, cached]: [&str; 3]) -> MachineMemory {
    let text = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    // Without a limit it is "max", or a number that no machine has.
    let Ok(limit) = text(limit).trim().parse::<u64>() else {
        return MachineMemory::default();
    };
    let used = text(used).trim().parse::<u64>().unwrap_or_default();
    // The kernel drops these when a program needs memory.
    let cached = number_after(&text("memory.stat"), cached).unwrap_or_default();
    let remaining = limit.saturating_sub(used.saturating_sub(cached));
    MachineMemory { total: Some(limit), available: Some(remaining) }
}

/// The limit of the address space of this process.
fn process(root: &Path) -> MachineMemory {
    let text =
        |name: &str| fs::read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let limits = text("limits");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    // The soft limit, or "unlimited".
    let limit = limit.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let Some(limit) = limit else { return MachineMemory::default() };
    let used = number_after(&text("status"), "VmSize:").unwrap_or_default() * 1024;
    MachineMemory { total: Some(limit), available: Some(limit.saturating_sub(used)) }
}

/// Makes the allocator of glibc share few arenas among the threads, and return large blocks to the
/// system when they are freed. Otherwise each arena keeps up to 64 MB of address space, and what
/// its largest request took.
pub(crate) fn share_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        unsafe extern "C" {
            /// mallopt(3)
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        const M_TRIM_THRESHOLD: c_int = -1;
        const M_MMAP_THRESHOLD: c_int = -3;
        const M_ARENA_MAX: c_int = -8;
        for (parameter, value) in
            [(M_ARENA_MAX, 2), (M_MMAP_THRESHOLD, 1 << 20), (M_TRIM_THRESHOLD, 4 << 20)]
        {
            // SAFETY: any thread may call it at any time.
            unsafe { mallopt(parameter, value) };
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
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "90000\n");
        write("sys/fs/cgroup/a/memory.current", "10000\n");
        assert_eq!(MachineMemory::of(root.path()), memory(90_000, 30_000));
        write("proc/self/cgroup", "0::/other\n");
        // The first version.
        write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "70000\n");
        write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "60000\n");
        write("sys/fs/cgroup/memory/x/memory.stat", "inactive_file 9\ntotal_inactive_file 10000\n");
        assert_eq!(MachineMemory::of(root.path()), memory(100_000, 30_000));
        write("proc/self/cgroup", "4:memory:/x/y\n0::/other\n");
        assert_eq!(MachineMemory::of(root.path()), memory(70_000, 20_000));
        write("proc/self/cgroup", "0::/other\n");
        // Copied from a process of Linux 6.1.
        let limits = |limit: &str| {
            let line = "Max open files            1024                 4096                 files";
            format!("{line}\nMax address space         {limit:21}unlimited            bytes\n")
        };
        write("proc/self/limits", &limits("unlimited"));
        write("proc/self/status", "VmPeak:\t     90 kB\nVmSize:\t      50 kB\n");
        assert_eq!(MachineMemory::of(root.path()), memory(100_000, 30_000));
        write("proc/self/limits", &limits("80000"));
        assert_eq!(MachineMemory::of(root.path()), memory(80_000, 28_800));
    }
}
