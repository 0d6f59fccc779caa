//! The faults of llama.cpp that `faults.cpp` handles: signal handlers turn them into failed calls.
//!
//! Reading a model file that was truncated while it was mapped, or whose disk fails, raises SIGBUS.
//! The handler maps zeros there and marks the range. llama.cpp does not say where it maps a file, so
//! the ranges are read from `/proc/self/maps`. Linux only; elsewhere nothing is watched.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::gguf;
use crate::process::{Shared, Use};

/// The `llb_range` of `faults.cpp`.
#[repr(C)]
struct WatchedRange {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn llb_range_add(start: usize, end: usize) -> *mut WatchedRange;
    fn llb_range_remove(range: *mut WatchedRange);
    fn llb_range_is_lost(range: *const WatchedRange) -> bool;
    fn llb_faults_install();
    fn llb_faults_remove();
    fn llb_faults_add_code(address: usize);
}

/// The number of live [`FaultHandlers`].
static USERS: Shared<usize> = Shared::new(0);

/// Keeps the handlers installed until the last one is dropped.
pub(crate) struct FaultHandlers(());

/// Treats faults in the image that has code at this address as faults of llama.cpp.
pub(crate) fn add_code(address: usize) {
    // SAFETY: only reads the list of images.
    unsafe { llb_faults_add_code(address) };
}

impl FaultHandlers {
    /// Installs the handlers. Any thread may call this, before the calls that may fault.
    pub(crate) fn install() -> FaultHandlers {
        let mut users = USERS.lock();
        if *users == 0 {
            // SAFETY: takes nothing; the lock keeps other threads out.
            unsafe { llb_faults_install() };
        }
        *users += 1;
        FaultHandlers(())
    }
}

impl Drop for FaultHandlers {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        *users -= 1;
        if *users == 0 {
            // SAFETY: as above.
            unsafe { llb_faults_remove() };
        }
    }
}

/// Watches the mapped parts of a model. Must be dropped before the model is freed.
pub(crate) struct Mappings {
    /// The names of the model's files in `/proc/self/maps`.
    names: Vec<String>,
    watched: Vec<NonNull<WatchedRange>>,
}

// SAFETY: a watched range lives for ever, and its functions may be called on any thread.
unsafe impl Send for Mappings {}
// SAFETY: as above.
unsafe impl Sync for Mappings {}

impl Mappings {
    /// Prepares the watch. Nothing is watched before [`Mappings::refresh`].
    pub(crate) fn of(model: &Path) -> Mappings {
        let name = |part: PathBuf| {
            let path = std::fs::canonicalize(&part).unwrap_or(part);
            path.to_str().map(|path| path.replace('\n', "\\012"))
        };
        let names = gguf::part_paths(model).into_iter().filter_map(name).collect();
        Mappings { names, watched: Vec::new() }
    }

    /// Watches what is mapped now. If other models have mapped the same files, their mappings are
    /// watched too.
    pub(crate) fn refresh(&mut self) {
        self.forget();
        let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
        let maps = String::from_utf8_lossy(&maps);
        let _during = Use::begin();
        for range in maps.lines().filter_map(|line| mapped_range(line, &self.names)) {
            // SAFETY: takes plain numbers.
            let watched = unsafe { llb_range_add(range.start, range.end) };
            self.watched.extend(NonNull::new(watched));
        }
    }

    /// Whether a part could not be read. The model then contains zeros there.
    pub(crate) fn are_lost(&self) -> bool {
        // SAFETY: the range lives for ever.
        self.watched.iter().any(|range| unsafe { llb_range_is_lost(range.as_ptr()) })
    }

    fn forget(&mut self) {
        let _during = Use::begin();
        for range in self.watched.drain(..) {
            // SAFETY: added by `refresh`, removed once.
            unsafe { llb_range_remove(range.as_ptr()) };
        }
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        self.forget();
    }
}

/// The address range of a line in `/proc/self/maps`, if it is a shared, read-only mapping of one of
/// these files: `7f01-7f02 r--s 00000000 08:01 1234  /path` (proc_pid_maps(5)).
fn mapped_range(line: &str, names: &[String]) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_shared = words.next()? == "r--s";
    let name = &line[line.find('/')?..];
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let number = |text| usize::from_str_radix(text, 16).ok();
    let is_named = names.iter().any(|other| other == name);
    (is_shared && is_named).then_some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_parts_of_a_model_are_found() {
        let names = ["/models/a b.gguf".to_owned(), "/models/line\\012.gguf".to_owned()];
        let check = |line: &str, range: Option<Range<usize>>| {
            assert_eq!(mapped_range(line, &names), range, "{line}");
        };
        let rest = "00000000 08:01 1234   /models/a b.gguf";
        check(&format!("7f10-7f20 r--s {rest}"), Some(0x7f10..0x7f20));
        check(&format!("7f10-7f20 r--s {rest} (deleted)"), Some(0x7f10..0x7f20));
        check("7f10-7f20 r--s 0 08:01 5 /models/line\\012.gguf", Some(0x7f10..0x7f20));
        check(&format!("7f10-7f20 r--p {rest}"), None);
        check(&format!("7f10-7f20 rw-s {rest}"), None);
        check(&format!("7f10-7f20 r--s {rest}.other"), None);
        check("7f10-7f20 r--s 00000000 00:00 0", None);
        check("7f10-7f20 r--s", None);
        check("", None);
    }
}
