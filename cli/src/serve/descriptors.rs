//! How many connections the process has file descriptors for. Known only on Linux.

use std::fs;
use std::path::Path;

/// Descriptors that are kept for other uses: files of models, devices, and traces.
const KEPT: usize = 64;
/// The descriptors of a connection: one to use, and one to notice that its client leaves.
const OF_CONNECTION: usize = 2;

/// The number of connections that can be open at the same time, at most `wanted`.
pub(super) fn max_connections(wanted: usize) -> usize {
    available(Path::new("/proc/self")).map_or(wanted, |available| wanted.min(available))
}

/// The number of connections that there are descriptors for, at least 1. `process` is a folder of proc(5).
fn available(process: &Path) -> Option<usize> {
    let limits = fs::read_to_string(process.join("limits")).ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The soft limit, or "unlimited".
    let limit: usize = limit.split_whitespace().next()?.parse().ok()?;
    let open = fs::read_dir(process.join("fd")).ok()?.count();
    Some((limit.saturating_sub(open + KEPT) / OF_CONNECTION).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_descriptors_are_counted() {
        let process = tempfile::tempdir().unwrap();
        assert_eq!(available(process.path()), None);
        let limits = |limit: &str| {
            // Copied from a process of Linux 6.1.
            let before = "Max processes             15486                15486        processes";
            let text = format!("{before}\nMax open files            {limit:21}4096   files\n");
            fs::write(process.path().join("limits"), text).unwrap();
        };
        limits("1024");
        let open = process.path().join("fd");
        fs::create_dir(&open).unwrap();
        for name in 0..10 {
            fs::write(open.join(name.to_string()), "").unwrap();
        }
        assert_eq!(available(process.path()), Some(475));
        limits("20");
        assert_eq!(available(process.path()), Some(1));
        limits("unlimited");
        assert_eq!(available(process.path()), None);
    }
}
