//! The cache on disk, in the layout of huggingface_hub (2.4, file_download.py), so that each finds
//! the other's files.
//!
//! `models--org--name/blobs/<etag>` has the bytes, `snapshots/<commit>/<file>` links to them,
//! `refs/<branch>` has a commit, `.locks/models--org--name/<etag>.lock` is locked by `flock` while
//! a blob is made. A blob under way is `<etag>.incomplete`: huggingface_hub puts letters of its own
//! in between, and never takes ours for its own. Nothing but bytes, names and commits is written.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::cancel::CancelToken;
use super::environment::read_short;
use super::name;
use crate::error::{Code, Error, Result};

/// Files of a snapshot that are looked at, and how deep.
const MOST_FILES: usize = 100_000;
const MOST_DEPTH: usize = 16;
/// Bytes of a file below `refs`.
const MOST_OF_REF: u64 = 1 << 10;
/// How often a lock is asked for: who lets one go tells nobody.
const LOOK: Duration = Duration::from_millis(20);
/// How often a lock's file may be gone again.
const MOST_GONE: usize = 100;

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This file is a cache directory tag (https://bford.info/cachedir/), so that backups can leave the folder out.\n";

/// A repository's folder.
pub(super) struct HubCache {
    root: PathBuf,
    folder: String,
}

impl HubCache {
    /// Nothing is made yet.
    pub(super) fn new(root: &Path, repository: &str) -> HubCache {
        HubCache {
            root: root.to_owned(),
            folder: format!("models--{}", repository.replace('/', "--")),
        }
    }

    fn repository(&self) -> PathBuf {
        self.root.join(&self.folder)
    }

    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.repository().join("blobs").join(etag)
    }

    pub(super) fn incomplete(&self, etag: &str) -> PathBuf {
        self.repository().join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The same for one call alone.
    pub(super) fn own_incomplete(&self, etag: &str) -> PathBuf {
        beside(&self.blob(etag), "incomplete")
    }

    /// Where a file of a commit is found.
    pub(super) fn pointer(&self, commit: &str, name: &str) -> PathBuf {
        self.repository().join("snapshots").join(commit).join(name)
    }

    /// The commit of a branch or tag, as it was when it was last asked for.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        if name::is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = read_short(&self.repository().join("refs").join(revision), MOST_OF_REF)?;
        Some(commit.trim().to_owned()).filter(|commit| name::is_commit(commit))
    }

    /// The files of a commit that are here.
    pub(super) fn files(&self, commit: &str) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.repository().join("snapshots").join(commit), "", MOST_DEPTH, &mut names);
        names.sort();
        names
    }

    /// A file that is here, whole as far as its size tells.
    pub(super) fn find(&self, commit: &str, name: &str, size: Option<u64>) -> Option<PathBuf> {
        let path = self.pointer(commit, name);
        is_whole(&path, size).then_some(path)
    }

    /// The sha256 of a file by the name of its blob, which was checked when that was made.
    pub(super) fn sha256(&self, path: &Path) -> Option<String> {
        let blob = fs::canonicalize(path).ok()?;
        let etag = blob.file_name()?.to_str()?;
        let in_blobs =
            blob.parent().and_then(Path::file_name).is_some_and(|folder| folder == "blobs");
        (in_blobs && name::is_sha256(etag)).then(|| etag.to_owned())
    }

    /// Makes the folders that a blob needs.
    pub(super) fn prepare(&self, etag: &str) -> Result<()> {
        make_parent(&self.blob(etag))?;
        // Only a convenience.
        let tag =
            OpenOptions::new().write(true).create_new(true).open(self.root.join("CACHEDIR.TAG"));
        let _ = tag.and_then(|mut tag| tag.write_all(TAG.as_bytes()));
        Ok(())
    }

    /// Waits until no other process and no other thread makes this blob.
    pub(super) fn lock(&self, etag: &str, cancel: &CancelToken) -> Result<BlobLock> {
        let path = self.root.join(".locks").join(&self.folder).join(format!("{etag}.lock"));
        make_parent(&path)?;
        let mut gone = 0;
        loop {
            cancel.check()?;
            let file = open_own(&path).map_err(|error| unwritable(&path, &error))?;
            match file.try_lock() {
                Ok(()) if is_same(&file, &path) => return Ok(BlobLock(Some(file))),
                // Somebody may have removed the file between the two calls: then it locks nothing.
                // Where that never ends, the file system has no lasting numbers for files, and
                // whose lock it is cannot be told.
                Ok(()) if gone >= MOST_GONE => return Ok(BlobLock(None)),
                Ok(()) => {
                    gone += 1;
                    cancel.wait(LOOK)?;
                }
                Err(TryLockError::WouldBlock) => cancel.wait(LOOK)?,
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(BlobLock(None)),
            }
        }
    }

    /// Lets a commit's file lead to a blob.
    pub(super) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<PathBuf> {
        let (blob, pointer) = (self.blob(etag), self.pointer(commit, name));
        make_parent(&pointer)?;
        let up = "../".repeat(2 + name.split('/').count() - 1);
        let target = format!("{up}blobs/{etag}");
        if fs::read_link(&pointer).is_ok_and(|old| old == Path::new(&target)) {
            return Ok(pointer);
        }
        // By a second name, so that no reader meets a moment without one.
        let new = beside(&pointer, "new");
        let _ = fs::remove_file(&new);
        let made = symlink(&target, &new)
            .or_else(|_| fs::hard_link(&blob, &new))
            .or_else(|_| copy(&blob, &new));
        made.and_then(|()| fs::rename(&new, &pointer)).map_err(|error| {
            let _ = fs::remove_file(&new);
            unwritable(&pointer, &error)
        })?;
        Ok(pointer)
    }

    /// Notes which commit a branch or tag is at. A cache that cannot be written is no reason to
    /// fail: the file is there.
    pub(super) fn note(&self, revision: &str, commit: &str) {
        if name::is_commit(revision) || self.commit(revision).is_some_and(|noted| noted == commit) {
            return;
        }
        let path = self.repository().join("refs").join(revision);
        let new = beside(&path, "tmp");
        let written = make_parent(&path).is_ok()
            && fs::write(&new, commit).and_then(|()| fs::rename(&new, &path)).is_ok();
        if !written {
            let _ = fs::remove_file(&new);
        }
    }

    /// Takes a file that may not be used out of the commit, and keeps it with a note of why. Gives
    /// where it is now.
    pub(super) fn quarantine(
        &self,
        etag: &str,
        commit: &str,
        name: &str,
        why: &Error,
    ) -> Option<PathBuf> {
        let folder = self.repository().join(".quarantine");
        fs::create_dir_all(&folder).ok()?;
        let _ = fs::remove_file(self.pointer(commit, name));
        let kept = folder.join(format!("{etag}.gguf"));
        fs::rename(self.blob(etag), &kept).ok()?;
        let note: Value = json!({
            "file": name,
            "revision": commit,
            "code": why.code().as_str(),
            "message": why.message(),
            "llb": env!("CARGO_PKG_VERSION"),
        });
        fs::write(folder.join(format!("{etag}.json")), format!("{note:#}\n")).ok()?;
        Some(kept)
    }

    /// Bytes that are free where the cache is; None where the system does not say.
    pub(super) fn room(&self) -> Option<u64> {
        // The folders may not be there yet, and those that are may be links to another disk.
        let blobs = self.repository().join("blobs");
        let there = blobs.ancestors().find(|folder| folder.exists())?;
        #[cfg(unix)]
        {
            let stat = rustix::fs::statvfs(there).ok()?;
            // Some file systems over the network have no size.
            (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
        }
        #[cfg(not(unix))]
        {
            let _ = there;
            None
        }
    }
}

/// Held until it is dropped; the file stays, since others may wait on it.
#[derive(Debug)]
pub(super) struct BlobLock(Option<File>);

impl BlobLock {
    /// False on a file system that has no locks.
    pub(super) fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

/// A regular file, of this size if that is known.
pub(super) fn is_whole(path: &Path, size: Option<u64>) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && size.is_none_or(|size| size == metadata.len()))
}

/// `INVALID_REQUEST` about the folder of the cache, or `OUT_OF_MEMORY` where the disk is full.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    if matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    ) {
        let message = format!(
            "{}: no room on the disk: {error}; what is there stays, and is gone on with",
            path.display()
        );
        return Error::new(Code::OutOfMemory, message).with("resource", "disk");
    }
    let problem = format!(
        "{}: {error}; give a folder that can be written, or set HF_HOME to one",
        path.display()
    );
    Error::invalid("cache_dir", problem)
}

/// Opens a file to read and to write, and makes it if it is not there. A link that lies in its
/// place, which would lead to a file of somebody else, or a pipe, which would never end, is
/// removed.
pub(super) fn open_own(path: &Path) -> std::io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        fs::remove_file(path)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // As huggingface_hub's locks: users who share a cache may wait for each other.
        options.mode(0o664).custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path)
}

fn make_parent(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))
}

/// A name beside a path that nobody else has: processes in two containers may have one number.
fn beside(path: &Path, what: &str) -> PathBuf {
    let chance = RandomState::new().build_hasher().finish();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{chance:016x}.{what}"));
    path.with_file_name(name)
}

fn collect(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str() else { continue };
        let (name, path) = (format!("{prefix}{file_name}"), entry.path());
        if names.len() >= MOST_FILES {
            return;
        }
        // Folders that are links are not of this layout, and may lead in circles.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                collect(&path, &format!("{name}/"), depth - 1, names);
            }
        } else if name::check_file(&name).is_ok() && path.is_file() {
            names.push(name);
        }
    }
}

/// On the disk before it gets its name.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    OpenOptions::new().write(true).open(to)?.sync_all()
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let here = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => here(file) == here(path),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}

#[cfg(unix)]
fn symlink(target: &str, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &str, _: &Path) -> std::io::Result<()> {
    Err(std::io::Error::from(ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn the_layout() {
        let folder = tempfile::tempdir().unwrap();
        let cache = HubCache::new(folder.path(), "o/n");
        let (etag, commit) = ("ab".repeat(32), "0123456789abcdef0123456789abcdef01234567");
        assert_eq!((cache.commit("main"), cache.files(commit)), (None, vec![]));
        cache.prepare(&etag).unwrap();
        fs::write(cache.blob(&etag), b"12345").unwrap();
        let path = cache.link(&etag, commit, "q/m.gguf").unwrap();
        assert_eq!(path, folder.path().join(format!("models--o--n/snapshots/{commit}/q/m.gguf")));
        assert_eq!(fs::read_link(&path).unwrap(), Path::new(&format!("../../../blobs/{etag}")));
        assert_eq!(fs::read(cache.link(&etag, commit, "q/m.gguf").unwrap()).unwrap(), b"12345");
        assert_eq!(cache.sha256(&path), Some(etag.clone()));
        assert_eq!(cache.files(commit), ["q/m.gguf"]);
        assert_eq!(cache.find(commit, "q/m.gguf", Some(5)), Some(path.clone()));
        assert_eq!(cache.find(commit, "q/m.gguf", Some(6)), None);
        for revision in ["main", "refs/pr/1"] {
            cache.note(revision, commit);
            assert_eq!(cache.commit(revision).as_deref(), Some(commit));
        }
        for bad in ["../../x".to_owned(), " ".repeat(2000) + commit] {
            fs::write(folder.path().join("models--o--n/refs/bad"), bad).unwrap();
            assert_eq!(cache.commit("bad"), None);
        }
        let why = Error::new(Code::ModelInvalid, "no model");
        let kept = cache.quarantine(&etag, commit, "q/m.gguf", &why).unwrap();
        assert_eq!((fs::read(&kept).unwrap(), path.exists()), (b"12345".to_vec(), false));
        let note: Value =
            serde_json::from_slice(&fs::read(kept.with_extension("json")).unwrap()).unwrap();
        assert_eq!(
            (&note["code"], &note["message"]),
            (&json!("MODEL_INVALID"), &json!("no model"))
        );
        assert!(cache.room().is_some_and(|bytes| bytes > 0));
    }

    #[cfg(unix)]
    #[test]
    fn what_lies_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, others) = (folder.path().join("x.incomplete"), folder.path().join("others"));
        fs::write(&others, b"theirs").unwrap();
        for target in [&*others, Path::new("/dev/zero"), Path::new("nowhere")] {
            std::os::unix::fs::symlink(target, &mine).unwrap();
            open_own(&mine).unwrap().write_all(b"mine").unwrap();
            assert_eq!(
                (fs::read(&mine).unwrap(), fs::read(&others).unwrap()),
                (b"mine".to_vec(), b"theirs".to_vec())
            );
            fs::remove_file(&mine).unwrap();
        }
        fs::write(&mine, b"before").unwrap();
        assert_eq!(open_own(&mine).unwrap().metadata().unwrap().len(), 6);
        fs::remove_file(&mine).unwrap();
        fs::create_dir(&mine).unwrap();
        assert!(open_own(&mine).is_err());
    }

    #[test]
    fn a_lock_is_had_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let cache = HubCache::new(folder.path(), "o/n");
        let cancel = CancelToken::enter("o/lock");
        let first = cache.lock("e", &cancel).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| cache.lock("e", &cancel).map(drop));
            assert!(cache.lock("other", &cancel).is_ok());
            super::super::cancel::cancel("o/lock");
            assert_eq!(second.join().unwrap().unwrap_err().code(), Code::Cancelled);
        });
        drop(first);
        assert!(cache.lock("e", &CancelToken::enter("o/lock")).is_ok());
    }
}
