//! The files of a load: whether they are as they were, and the identity of their content, which a
//! copy of a file shares.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Code, Error, Result};
use crate::regular_file::{self, FileIdentity};

/// For [`ModelFiles::check_unchanged`]: since the files were checked for a load.
pub(crate) const SINCE_CHECKED: &str = "it was checked; open it again";

/// The number of blocks that are read to identify a model file, and their size.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 64 * 1024;

/// Identifies a file. `MODEL_NOT_FOUND` if it does not exist.
pub(crate) fn identify(path: &Path) -> Result<FileIdentity> {
    FileIdentity::of(path).map_err(|error| {
        Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error)
    })
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

/// Seconds and nanoseconds of a file's ctime: the last change of its content or attributes. No
/// program can set it.
pub(crate) type FileChange = (i64, i64);

/// The last change of a file. `None` where the system does not report it.
pub(crate) fn changed(path: &Path) -> Option<FileChange> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.ctime(), metadata.ctime_nsec()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

/// The hash of a model, which may be split into several files. Missing parts are skipped, because a
/// complete model may have the file name of a part.
pub(crate) fn content_of_all(parts: &[PathBuf]) -> io::Result<String> {
    let mut hashes = Vec::new();
    for part in parts {
        match content_of(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            hash => hashes.push(hash?),
        }
    }
    Ok(hashes.join(" "))
}

/// A hash of the file's size and of blocks spread over it. Files that differ only outside of these
/// blocks get the same hash, but fine-tuning changes every tensor.
pub(crate) fn content_of(path: &Path) -> io::Result<String> {
    let (mut file, metadata) = regular_file::open(path)?;
    let size = metadata.len();
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    let mut block = Vec::new();
    for sample in 0..SAMPLES {
        let last = size.saturating_sub(SAMPLE_BYTES);
        // Computed in 128 bits, because the product may overflow 64.
        let start = (u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)) as u64;
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(&mut file).take(SAMPLE_BYTES).read_to_end(&mut block)?;
        hash.update(&block);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_hash_depends_on_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            content_of(&folder.path().join(name)).unwrap()
        };
        let long = vec![7; 3_000_000];
        let mut changed = long.clone();
        changed[2_000_000] = 8;
        assert_eq!(of("a", &long), of("b", &long));
        assert_ne!(of("a", &long), of("b", &changed));
        assert_ne!(of("a", &[]), of("b", &[0]));
    }
}
