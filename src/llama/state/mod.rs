//! Sequences in files: the state file of a chat, and the folder of stored prefixes. Here: opens and
//! replaces these files safely, even if other users can write nearby.
//!
//! In: a path. Out: an open file of this user or of root, or a message that says why it must not be
//! read. A file is replaced completely or not at all. `state_file` defines its content.

mod prefix_folder;
pub(super) mod prefix_store;
pub(super) mod state_file;

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::regular_file;

/// The first bytes of a state file.
const MAGIC: &[u8; 8] = b"LLBSTATE";

/// Where a state file is stored. It is not always a path: a process without access to files gets
/// descriptors.
pub trait StateStore: Send + Sync {
    /// The file's name in messages.
    fn name(&self) -> String;

    /// Opens the file and returns it with its size; `None` if it does not exist. The error is a
    /// message that says why the file must not be read.
    fn open(&self) -> Result<Option<(File, u64)>, String>;

    /// Replaces the file with what `write` writes. After an error the old file is unchanged.
    fn replace(&self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()>;
}

/// A state file at a path. Only the user may read it.
pub struct StatePath(pub PathBuf);

impl StateStore for StatePath {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Option<(File, u64)>, String> {
        let (file, metadata) = match regular_file::open_no_link(&self.0) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        check_owner(&metadata)?;
        #[cfg(unix)]
        if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0 {
            let problem = "other users may write to it; remove that permission (chmod 600)";
            return Err(problem.to_owned());
        }
        Ok(Some((file, metadata.len())))
    }

    fn replace(&self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
        may_replace(&self.0)?;
        replace(&self.0, write)
    }
}

/// Replaces the file at a path with one that only the user may read. After an error the old file is
/// unchanged.
pub(crate) fn replace(
    path: &Path,
    write: &mut dyn FnMut(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?;
    // Random, because process ids repeat and a crashed process may have left a file with the same
    // name.
    let random = RandomState::new().build_hasher().finish();
    let mut temporary_name = name.to_owned();
    temporary_name.push(format!(".{random:016x}.tmp"));
    let temporary = path.with_file_name(temporary_name);
    let written = create_private(&temporary)
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // Read by a helper process, which cannot open the file again.
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Fails if the path has anything but a state file of this user or an empty file. A typo must not
/// overwrite a model, and a link would be replaced instead of its target.
fn may_replace(path: &Path) -> io::Result<()> {
    let refuse = |problem: String| {
        let message = format!("{problem}; it was not overwritten, choose another path");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
    };
    let (file, metadata) = match regular_file::open_no_link(path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return refuse(error.to_string());
        }
        Err(error) => return Err(error),
    };
    if let Err(problem) = check_owner(&metadata) {
        return refuse(problem);
    }
    let mut begin = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    if begin.is_empty() || begin == MAGIC {
        Ok(())
    } else {
        refuse("it is not a state file".to_owned())
    }
}

/// Accepts files of this user or of root. A file that another user wrote could contain anything.
#[cfg(unix)]
pub(crate) fn check_owner(metadata: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let owner = metadata.uid();
    // SAFETY: takes nothing and cannot fail.
    if owner == 0 || owner == unsafe { libc::geteuid() } {
        return Ok(());
    }
    Err(format!("it belongs to another user (uid {owner})"))
}

#[cfg(not(unix))]
pub(crate) fn check_owner(_: &fs::Metadata) -> Result<(), String> {
    Ok(())
}
