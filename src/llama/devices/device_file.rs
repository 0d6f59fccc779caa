//! Files with a backend of ggml for devices (`libllb-cuda.so`, `libllb-vulkan.so` and
//! `libllb-rpc.so`, written by scripts/devices.py): which of them there are, and the devices of those
//! that can be used. That of RPC has none until a server is connected ([`super::rpc`]).
//!
//! A file is opened when a model that may use devices is created, or when the devices are listed,
//! and only then: that starts a driver, with its threads. It is opened once in a process. The rules
//! for the file are those of kernels (docs/backends.md).
//!
//! The devices are not in ggml's registry, which other threads may read at that moment. llama.cpp
//! is given those that a model uses ([`super::DeviceSelection`]).

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;
use serde_json::{Value, json};

use crate::api::LogLevel;
use crate::llama::kernels::{Places, check_file, folders, owners, start_llama_cpp};
use crate::llama::raw::{LogQueue, shim, stack};
use crate::process::{self, Shared};

/// The backends that files may contain, the fastest first: of a GPU that several backends support,
/// the first one is used. A file is named after its backend.
const NAMES: [&str; 3] = ["cuda", "vulkan", RPC];
const RPC: &str = "rpc";

unsafe extern "C-unwind" {
    fn llb_device_load(path: *const c_char, problem: *mut c_char, size: usize) -> *mut c_void;
}

/// A file that was found.
#[derive(Debug)]
struct DeviceFile {
    name: &'static str,
    path: PathBuf,
    /// The backend, or why it is not used.
    backend: Result<DeviceBackend, String>,
}

/// A registration of ggml. It lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceBackend(NonNull<sys::ggml_backend_reg>);

// SAFETY: a registration does not change.
unsafe impl Send for DeviceBackend {}
// SAFETY: as above.
unsafe impl Sync for DeviceBackend {}

impl DeviceBackend {
    pub(super) fn new(registration: sys::ggml_backend_reg_t) -> Option<DeviceBackend> {
        NonNull::new(registration).map(DeviceBackend)
    }

    pub(super) fn as_ptr(self) -> sys::ggml_backend_reg_t {
        self.0.as_ptr()
    }

    pub(super) fn devices(&self) -> Vec<sys::ggml_backend_dev_t> {
        let registration = self.as_ptr();
        let count = shim::guard(|| {
            // SAFETY: a registration lives forever.
            unsafe { shim::calls::ggml_backend_reg_dev_count(registration) }
        });
        let get = |index| {
            shim::guard(|| {
                // SAFETY: as above; the index is below the count.
                unsafe { shim::calls::ggml_backend_reg_dev_get(registration, index) }
            })
            .ok()
        };
        (0..count.unwrap_or(0)).filter_map(get).collect()
    }
}

/// The files, as they were when the process first looked for them.
#[derive(Debug)]
struct DeviceFiles {
    /// The process that opened them. A driver does not work in a forked child.
    forks: usize,
    files: Vec<DeviceFile>,
}

static OPENED: Shared<Option<&'static DeviceFiles>> = Shared::new(None);

/// Opens the files, unless this process has done so.
pub(crate) fn open() {
    // Before the lock: the thread that loads a file must not wait for a fork.
    if start_llama_cpp().is_err() {
        return;
    }
    let mut opened = OPENED.lock();
    let files = match *opened {
        Some(opened) if opened.forks == process::forks() => return,
        Some(parent) => parent.files.iter().map(DeviceFile::inherited).collect(),
        None => find(&Places::now(), load),
    };
    *opened = Some(Box::leak(Box::new(DeviceFiles { forks: process::forks(), files })));
}

/// The files that this process has opened or refused.
fn opened() -> &'static [DeviceFile] {
    let opened = *OPENED.lock();
    match opened.filter(|opened| opened.forks == process::forks()) {
        Some(opened) => &opened.files,
        None => &[],
    }
}

/// The devices of the files that this process has opened. None once one was lost.
pub(crate) fn devices() -> Vec<sys::ggml_backend_dev_t> {
    if shim::lost_device().is_some() { Vec::new() } else { known_devices() }
}

/// The same, lost ones included.
pub(crate) fn known_devices() -> Vec<sys::ggml_backend_dev_t> {
    opened()
        .iter()
        .filter_map(|file| file.backend.as_ref().ok())
        .flat_map(DeviceBackend::devices)
        .collect()
}

/// The backend that connects to servers, which this process has opened. The error says why there is
/// none.
pub(super) fn rpc_backend() -> std::result::Result<DeviceBackend, String> {
    open();
    let files = opened().iter().filter(|file| file.name == RPC);
    // A file that was refused does not matter if another one was opened.
    let file = files.min_by_key(|file| file.backend.is_err()).ok_or_else(|| {
        "needs the file libllb-rpc.so beside the library (make backend-rpc)".to_owned()
    })?;
    let problem = |problem: &String| format!("{} {problem}", file.path.display());
    file.backend.as_ref().copied().map_err(problem)
}

/// Logs which files were not used.
pub(crate) fn log(log: &LogQueue) {
    for file in opened() {
        if let Some(problem) = file.problem() {
            let text = format!("devices: not used: {} {problem}", file.path.display());
            log.push(LogLevel::Warn, text);
        }
    }
}

/// The files for `llb_backends`.
pub(crate) fn report() -> Vec<Value> {
    let entry = |file: &DeviceFile| {
        json!({
            "name": file.name,
            "file": file.path.display().to_string(),
            "usable": file.problem().is_none(),
            "reason": file.problem(),
        })
    };
    opened().iter().map(entry).collect()
}

impl DeviceFile {
    /// Why its devices are not used.
    fn problem(&self) -> Option<String> {
        match &self.backend {
            Err(problem) => Some(problem.clone()),
            Ok(_) if self.name == RPC => None,
            Ok(_) => shim::lost_device().map(|error| {
                format!("has lost a device ({error}); a new process can try it again")
            }),
        }
    }

    /// The same file in a forked child.
    fn inherited(&self) -> DeviceFile {
        let backend = match &self.backend {
            Err(problem) => Err(problem.clone()),
            Ok(_) => Err("was opened before the process was forked, and drivers of devices do \
                          not work after that"
                .to_owned()),
        };
        DeviceFile { name: self.name, path: self.path.clone(), backend }
    }
}

/// Finds the files in the folders, and loads those that pass the checks by `load`. Of two files of
/// one backend, the first that passes them is loaded.
fn find(places: &Places, load: fn(&Path) -> Result<DeviceBackend, String>) -> Vec<DeviceFile> {
    let owners = owners(places.library.as_deref());
    let usable = folders(places, &owners).into_iter().filter(|folder| folder.problem.is_none());
    let mut files: Vec<DeviceFile> = Vec::new();
    let mut loaded: Vec<(&str, PathBuf)> = Vec::new();
    for (folder, name) in usable.flat_map(|folder| NAMES.map(|name| (folder.path.clone(), name))) {
        let path = folder.join(format!("libllb-{name}.so"));
        if path.symlink_metadata().is_err() {
            continue;
        }
        let checked = check_file(&path, &owners).and_then(|content| match content == name {
            true => Ok(()),
            false => Err(format!("has other content, {content:?}")),
        });
        let first = loaded.iter().find(|(other, _)| *other == name).map(|(_, path)| path);
        let backend = match (checked, first) {
            (Err(problem), _) => Err(problem),
            (Ok(()), Some(first)) => Err(format!("is the same as {}", first.display())),
            (Ok(()), None) => {
                loaded.push((name, path.clone()));
                load(&path).and_then(|backend| {
                    let has_any = name == RPC || !backend.devices().is_empty();
                    has_any.then_some(backend).ok_or("found no device that it can use".to_owned())
                })
            }
        };
        files.push(DeviceFile { name, path, backend });
    }
    files
}

/// Loads a checked file and starts its driver, on a thread of its own: the driver's threads then
/// have the host's signals blocked, like llb's.
fn load(file: &Path) -> Result<DeviceBackend, String> {
    let path = file.to_str().and_then(|path| CString::new(path).ok());
    let path = path.ok_or("has a path that is not valid UTF-8")?;
    // Drivers register handlers of the exit. Ours is then registered again, to run before them.
    let loaded = stack::load_on_thread("llb-devices", move || Ok(start(&path)));
    loaded.unwrap_or_else(|error| Err(format!("cannot be loaded: {}", error.message())))
}

fn start(path: &CStr) -> Result<DeviceBackend, String> {
    let mut problem = [0_u8; 512];
    let (text, size) = (problem.as_mut_ptr().cast::<c_char>(), problem.len());
    // SAFETY: the path is NUL-terminated, and the reason is written during the call. Constructors
    // of the file and of its driver run: it is of this build, and only trusted users can write it.
    let loaded = shim::guard(|| unsafe { llb_device_load(path.as_ptr(), text, size) });
    let loaded = loaded.map_err(|failed| format!("cannot be started: {}", failed.text()))?;
    DeviceBackend::new(loaded.cast()).ok_or_else(|| {
        let problem = CStr::from_bytes_until_nul(&problem).unwrap_or_default();
        format!("cannot be started: {}", problem.to_string_lossy())
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::llama::kernels::{IDENTITY, written};

    #[test]
    fn files_are_checked_before_they_are_loaded() {
        let folder = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("libllb-vulkan.so"), written(text)).unwrap();
            folder
        };
        let valid = format!("vulkan {IDENTITY}");
        let (first, second) = (folder(&valid), folder(&valid));
        let places = |named: &tempfile::TempDir, beside: &tempfile::TempDir| Places {
            named: Some(named.path().to_owned()),
            library: Some(beside.path().join("libllb.so")),
        };
        let problems = |places: &Places| -> Vec<String> {
            let files = find(places, |_| Err("was loaded".to_owned()));
            files.into_iter().filter_map(|file| file.backend.err()).collect()
        };
        let path = first.path().join("libllb-vulkan.so");
        let same = format!("is the same as {}", path.display());
        assert_eq!(problems(&places(&first, &second)), ["was loaded", &same]);
        let other = folder("vulkan llb 0.0.9, llama-cpp-sys-2 0.1.1, 0");
        let found = problems(&places(&other, &second));
        assert!(found[0].starts_with("is from another build"), "{found:?}");
        assert_eq!(found[1], "was loaded");
        let kernels = folder(&format!("zen4 {IDENTITY}"));
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(problems(&places(&kernels, &empty)), ["has other content, \"zen4\""]);
        assert_eq!(problems(&places(&empty, &empty)), [""; 0]);
    }
}
