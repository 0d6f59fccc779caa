//! A folder for the models that the tests of a process share.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::scripted::random::{Memory, random};

/// The folder, and the process that removes it. A static is not dropped.
static FOLDER: OnceLock<(tempfile::TempDir, u32)> = OnceLock::new();

/// The path of the folder. It is removed when the process exits.
pub fn run_folder() -> &'static Path {
    let (folder, _) = FOLDER.get_or_init(|| {
        #[cfg(unix)]
        // SAFETY: the handler is a plain function.
        unsafe {
            libc::atexit(remove);
        }
        (tempfile::tempdir().unwrap(), std::process::id())
    });
    folder.path()
}

/// Removes the folder. A forked child leaves it to its parent.
#[cfg(unix)]
extern "C" fn remove() {
    if let Some((folder, _)) = FOLDER.get().filter(|(_, process)| *process == std::process::id()) {
        let _ = std::fs::remove_dir_all(folder.path());
    }
}

/// The path of a model with random weights. Each user has its own, because chats with the same
/// model and options share a cache.
pub fn random_model(user: &str, memory: Memory) -> String {
    static WRITING: Mutex<()> = Mutex::new(());
    let path = run_folder().join(format!("{user}-{memory:?}.gguf"));
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if !path.exists() {
        std::fs::write(&path, random(memory)).unwrap();
    }
    path.to_str().unwrap().to_owned()
}
