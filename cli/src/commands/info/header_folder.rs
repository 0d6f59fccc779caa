//! A folder for the headers of a model on the hub, which is removed with its content.

use std::fs::{self, DirBuilder};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) struct HeaderFolder(PathBuf);

impl HeaderFolder {
    /// Makes a new folder that only this user can read; `None` if the system refuses it.
    pub(super) fn make() -> Option<HeaderFolder> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let path = std::env::temp_dir().join(format!("llb-info-{}-{now}", std::process::id()));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).ok()?;
        Some(HeaderFolder(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for HeaderFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
