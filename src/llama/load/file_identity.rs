//! The identity of a file: it distinguishes the file from others, and from itself after a change.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Code, Error, Result};

/// For [`ModelFiles::check_unchanged`]: since the files were checked for a load.
pub(crate) const SINCE_CHECKED: &str = "it was checked; open it again";

/// A file as it was when it was identified.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    disk_and_number: (u64, u64),
    size: u64,
    pub(crate) modified: Option<SystemTime>,
}

/// Identifies a file. `MODEL_NOT_FOUND` if it does not exist.
pub(crate) fn identify(path: &Path) -> Result<FileIdentity> {
    let not_found = |error: std::io::Error| {
        Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error)
    };
    let metadata = std::fs::metadata(path).map_err(not_found)?;
    #[cfg(unix)]
    let disk_and_number = {
        use std::os::unix::fs::MetadataExt;
        (metadata.dev(), metadata.ino())
    };
    #[cfg(windows)]
    let disk_and_number = {
        let known = std::fs::File::open(path).and_then(winapi_util::file::information);
        let known = known.map_err(not_found)?;
        (known.volume_serial_number(), known.file_index())
    };
    Ok(FileIdentity { disk_and_number, size: metadata.len(), modified: metadata.modified().ok() })
}

/// The files of a load, as they were before it read any of them.
pub struct ModelFiles {
    /// The absolute path of the model.
    path: String,
    /// `None` for a file that did not exist.
    files: Vec<(PathBuf, Option<FileIdentity>)>,
}

impl ModelFiles {
    /// Identifies the files of a load of this model, which may not exist.
    pub(crate) fn identify(path: &str, files: Vec<PathBuf>) -> ModelFiles {
        let known = |file: PathBuf| {
            let identity = identify(&file).ok();
            (file, identity)
        };
        ModelFiles { path: path.to_owned(), files: files.into_iter().map(known).collect() }
    }

    /// The absolute path of the model.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// `MODEL_INVALID` if a file has changed since, `MODEL_NOT_FOUND` if it is gone. `when` ends
    /// the message: since when, and what to do.
    pub(crate) fn check_unchanged(&self, when: &str) -> Result<()> {
        for (path, before) in &self.files {
            let now = identify(path)?;
            if before.as_ref() != Some(&now) {
                let problem = format!("the file has changed since {when}");
                return Err(Error::new(Code::ModelInvalid, problem).about(path.display()));
            }
        }
        Ok(())
    }

    /// Whether the model is the one at this path, which has this identity now.
    pub(crate) fn is_of(&self, path: &str, identity: Option<&FileIdentity>) -> bool {
        let first = self.files.first().and_then(|(_, identity)| identity.as_ref());
        self.path == path || identity.is_some() && first == identity
    }
}

/// The absolute path, or the path itself if the system cannot make it absolute.
pub(crate) fn absolute(path: &str) -> String {
    let absolute =
        std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_owned())
}
