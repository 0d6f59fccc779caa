//! The cache on disk, in the layout of huggingface_hub (2.4, file_download.py). Each library finds
//! the files of the other.
//!
//! `models--org--name/blobs/<etag>` contains the bytes of a file, `snapshots/<commit>/<file>` is a
//! link to them, and `refs/<branch>` contains a commit. During a download,
//! `.locks/models--org--name/<etag>.lock` is locked by `flock`. An incomplete blob is
//! `<etag>.incomplete`. huggingface_hub inserts letters into that name, so the two libraries never
//! share an incomplete blob. Only bytes, names and commits are written.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::name;
use super::running::CancelToken;
use crate::error::{Code, Error, Result};
use crate::process;
use crate::regular_file;

/// The maximum number of files in a snapshot that are listed, and the maximum depth of its folders.
const MAX_FILES: usize = 100_000;
const MAX_DEPTH: usize = 16;
/// The maximum size of a file below `refs`, in bytes.
const MAX_REF_BYTES: u64 = 1 << 10;
/// The time between two attempts to lock, because releasing a lock notifies no waiter.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// How often a lock file may be replaced while it is being locked.
const MAX_REPLACED: usize = 100;

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This file is a cache directory tag (https://bford.info/cachedir/), so that backups can leave the folder out.\n";

/// The cache of one repository.
pub(super) struct HubCache {
    root: PathBuf,
    folder: String,
}

impl HubCache {
    /// Does not create any folder.
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

    /// Like the path of the incomplete blob, but with a name that only this call uses.
    pub(super) fn private_incomplete(&self, etag: &str) -> PathBuf {
        unique_sibling(&self.blob(etag), "incomplete")
    }

    /// The path of a file in a commit, which is a link to a blob.
    pub(super) fn pointer(&self, commit: &str, name: &str) -> PathBuf {
        self.repository().join("snapshots").join(commit).join(name)
    }

    /// The commit of a branch or tag at the last fetch.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        if name::is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = read_small(&self.repository().join("refs").join(revision), MAX_REF_BYTES)?;
        Some(commit.trim().to_owned()).filter(|commit| name::is_commit(commit))
    }

    /// The cached files of a commit.
    pub(super) fn files(&self, commit: &str) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.repository().join("snapshots").join(commit), "", MAX_DEPTH, &mut names);
        names.sort();
        names
    }

    /// The path of a cached file, if its size is right.
    pub(super) fn find(&self, commit: &str, name: &str, size: Option<u64>) -> Option<PathBuf> {
        let path = self.pointer(commit, name);
        is_complete(&path, size).then_some(path)
    }

    /// The sha256 of a file, taken from the name of its blob. The download has verified it.
    pub(super) fn sha256(&self, path: &Path) -> Option<String> {
        let blob = fs::canonicalize(path).ok()?;
        let etag = blob.file_name()?.to_str()?;
        let in_blobs =
            blob.parent().and_then(Path::file_name).is_some_and(|folder| folder == "blobs");
        (in_blobs && name::is_sha256(etag)).then(|| etag.to_owned())
    }

    /// Creates the folders that a blob needs.
    pub(super) fn prepare(&self, etag: &str) -> Result<()> {
        make_parent(&self.blob(etag))?;
        // A failure is ignored: the tag is optional.
        let tag =
            OpenOptions::new().write(true).create_new(true).open(self.root.join("CACHEDIR.TAG"));
        let _ = tag.and_then(|mut tag| tag.write_all(TAG.as_bytes()));
        Ok(())
    }

    /// Waits until no other process or thread downloads this blob.
    pub(super) fn lock(&self, etag: &str, cancel: &CancelToken) -> Result<BlobLock> {
        let path = self.root.join(".locks").join(&self.folder).join(format!("{etag}.lock"));
        make_parent(&path)?;
        let mut replaced = 0;
        loop {
            cancel.check()?;
            let file = open_private(&path).map_err(|error| unwritable(&path, &error))?;
            match file.try_lock() {
                Ok(()) if is_same(&file, &path) => return Ok(BlobLock::new(Some(file))),
                // The file was removed between the two calls, so the lock protects nothing. If that
                // happens every time, the file system has no stable inode numbers, and it cannot be
                // known who holds the lock.
                Ok(()) if replaced >= MAX_REPLACED => return Ok(BlobLock::new(None)),
                Ok(()) => {
                    replaced += 1;
                    cancel.wait(LOCK_INTERVAL)?;
                }
                Err(TryLockError::WouldBlock) => cancel.wait(LOCK_INTERVAL)?,
                // The file system does not support locks.
                Err(TryLockError::Error(_)) => return Ok(BlobLock::new(None)),
            }
        }
    }

    /// Links a commit's file to a blob.
    pub(super) fn link(&self, etag: &str, commit: &str, name: &str) -> Result<PathBuf> {
        let (blob, pointer) = (self.blob(etag), self.pointer(commit, name));
        make_parent(&pointer)?;
        let up = "../".repeat(2 + name.split('/').count() - 1);
        let target = format!("{up}blobs/{etag}");
        if fs::read_link(&pointer).is_ok_and(|old| old == Path::new(&target)) {
            return Ok(pointer);
        }
        // The link is created under a temporary name and then renamed, so the file is never absent.
        let new = unique_sibling(&pointer, "new");
        let _ = fs::remove_file(&new);
        let made = symlink(&target, &new)
            .or_else(|_| fs::hard_link(&blob, &new))
            .or_else(|_| copy(&blob, &new));
        let named = made.and_then(|()| fs::rename(&new, &pointer));
        // `rename` does nothing if both are names of one file (POSIX), so the new one may be left.
        let _ = fs::remove_file(&new);
        named.map_err(|error| unwritable(&pointer, &error))?;
        Ok(pointer)
    }

    /// Records the commit of a branch or tag. Failures are ignored, because the files are usable
    /// without it.
    pub(super) fn set_commit(&self, revision: &str, commit: &str) {
        if name::is_commit(revision) || self.commit(revision).is_some_and(|known| known == commit) {
            return;
        }
        let path = self.repository().join("refs").join(revision);
        let new = unique_sibling(&path, "tmp");
        let written = make_parent(&path).is_ok()
            && fs::write(&new, commit).and_then(|()| fs::rename(&new, &path)).is_ok();
        if !written {
            let _ = fs::remove_file(&new);
        }
    }

    /// Moves a refused file out of the commit, and writes the reason to a file next to it. Returns
    /// the new path.
    pub(super) fn quarantine(
        &self,
        etag: &str,
        commit: &str,
        name: &str,
        reason: &Error,
    ) -> Option<PathBuf> {
        let folder = self.repository().join(".quarantine");
        fs::create_dir_all(&folder).ok()?;
        let _ = fs::remove_file(self.pointer(commit, name));
        let moved = folder.join(format!("{etag}.gguf"));
        fs::rename(self.blob(etag), &moved).ok()?;
        let note: Value = json!({
            "file": name,
            "revision": commit,
            "code": reason.code().as_str(),
            "message": reason.message(),
            "llb": env!("CARGO_PKG_VERSION"),
        });
        // A temporary name is renamed to the path. Whatever is at the path is replaced, and neither
        // followed nor opened.
        let path = folder.join(format!("{etag}.json"));
        let new = unique_sibling(&path, "tmp");
        fs::write(&new, format!("{note:#}\n")).and_then(|()| fs::rename(&new, &path)).ok()?;
        Some(moved)
    }

    /// The number of free bytes on the disk of the cache; `None` if the system does not report it.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        // The folders may not exist yet. Existing ones may be links to another disk.
        let blobs = self.repository().join("blobs");
        let existing = blobs.ancestors().find(|folder| folder.exists())?;
        #[cfg(unix)]
        {
            let stat = rustix::fs::statvfs(existing).ok()?;
            // Some network file systems report no size.
            (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
        }
        #[cfg(windows)]
        {
            fs4::available_space(existing).ok()
        }
    }
}

/// A lock that is released when it is dropped. The lock file stays, because others may be waiting
/// for it.
#[derive(Debug)]
pub(super) struct BlobLock {
    file: Option<File>,
    forks: usize,
}

impl BlobLock {
    fn new(file: Option<File>) -> BlobLock {
        BlobLock { file, forks: process::forks() }
    }

    /// Whether the lock is held. False on a file system without locks.
    pub(super) fn is_held(&self) -> bool {
        self.file.is_some()
    }
}

impl Drop for BlobLock {
    fn drop(&mut self) {
        // A forked child has the file open too. Closing it in the parent would not unlock it, and
        // the child must not unlock it.
        if let Some(file) = self.file.as_ref().filter(|_| self.forks == process::forks()) {
            let _ = file.unlock();
        }
    }
}

/// Whether the path is a regular file, and has this size if the size is known.
pub(super) fn is_complete(path: &Path, size: Option<u64>) -> bool {
    fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && size.is_none_or(|size| size == metadata.len()))
}

/// The text of a small regular file.
pub(super) fn read_small(path: &Path, most: u64) -> Option<String> {
    String::from_utf8(regular_file::read(path, most).ok()?).ok()
}

/// The error `INVALID_REQUEST` about the cache folder, or `OUT_OF_MEMORY` if the disk is full.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    if matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    ) {
        let message = format!(
            "{}: no room on the disk: {error}; free some space and fetch it again to resume",
            path.display()
        );
        return Error::new(Code::OutOfMemory, message).with("resource", "disk");
    }
    let problem =
        format!("{}: {error}; name a writable folder, or set HF_HOME to one", path.display());
    Error::invalid("cache_dir", problem)
}

/// Opens a file for reading and writing, and creates it if it is absent. Anything but a regular
/// file is removed first: a link could lead to a file elsewhere, and opening a pipe could block
/// forever.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        fs::remove_file(path)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // The mode of huggingface_hub's locks. It lets users of a shared cache wait for each other.
        options.mode(0o664).custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path)
}

fn make_parent(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))
}

/// A unique path in the same folder. It is random, because processes in two containers may have the
/// same process id.
fn unique_sibling(path: &Path, extension: &str) -> PathBuf {
    let random = RandomState::new().build_hasher().finish();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{random:016x}.{extension}"));
    path.with_file_name(name)
}

fn collect(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str() else { continue };
        let (name, path) = (format!("{prefix}{file_name}"), entry.path());
        if names.len() >= MAX_FILES {
            return;
        }
        // The layout has no links to folders. Such a link could form a cycle.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                collect(&path, &format!("{name}/"), depth - 1, names);
            }
        } else if name::check_file(&name).is_ok() && path.is_file() {
            names.push(name);
        }
    }
}

/// Copies a file and syncs it. The caller then gives it its name.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    OpenOptions::new().write(true).open(to)?.sync_all()
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
}

#[cfg(windows)]
fn is_same(file: &File, path: &Path) -> bool {
    use winapi_util::file::{Information, information};
    let identity = |known: Information| (known.volume_serial_number(), known.file_index());
    match (information(file), File::open(path).and_then(information)) {
        (Ok(file), Ok(path)) => identity(file) == identity(path),
        _ => false,
    }
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
        #[cfg(unix)]
        assert_eq!(fs::read_link(&path).unwrap(), Path::new(&format!("../../../blobs/{etag}")));
        assert_eq!(fs::read(cache.link(&etag, commit, "q/m.gguf").unwrap()).unwrap(), b"12345");
        // Where links need a permission, the file does not tell its blob.
        assert_eq!(cache.sha256(&path), cfg!(unix).then(|| etag.clone()));
        assert_eq!(cache.files(commit), ["q/m.gguf"]);
        assert_eq!(cache.find(commit, "q/m.gguf", Some(5)), Some(path.clone()));
        assert_eq!(cache.find(commit, "q/m.gguf", Some(6)), None);
        for revision in ["main", "refs/pr/1"] {
            cache.set_commit(revision, commit);
            assert_eq!(cache.commit(revision).as_deref(), Some(commit));
        }
        for bad in ["../../x".to_owned(), " ".repeat(2000) + commit] {
            fs::write(folder.path().join("models--o--n/refs/bad"), bad).unwrap();
            assert_eq!(cache.commit("bad"), None);
        }
        let reason = Error::new(Code::ModelInvalid, "no model");
        let kept = cache.quarantine(&etag, commit, "q/m.gguf", &reason).unwrap();
        assert_eq!((fs::read(&kept).unwrap(), path.exists()), (b"12345".to_vec(), false));
        let note: Value =
            serde_json::from_slice(&fs::read(kept.with_extension("json")).unwrap()).unwrap();
        assert_eq!(
            (&note["code"], &note["message"]),
            (&json!("MODEL_INVALID"), &json!("no model"))
        );
        assert!(cache.free_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[cfg(unix)]
    #[test]
    fn links_in_place_of_a_file_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, others) = (folder.path().join("x.incomplete"), folder.path().join("others"));
        fs::write(&others, b"theirs").unwrap();
        for target in [&*others, Path::new("/dev/zero"), Path::new("nowhere")] {
            std::os::unix::fs::symlink(target, &mine).unwrap();
            open_private(&mine).unwrap().write_all(b"mine").unwrap();
            assert_eq!(
                (fs::read(&mine).unwrap(), fs::read(&others).unwrap()),
                (b"mine".to_vec(), b"theirs".to_vec())
            );
            fs::remove_file(&mine).unwrap();
        }
        fs::write(&mine, b"before").unwrap();
        assert_eq!(open_private(&mine).unwrap().metadata().unwrap().len(), 6);
        fs::remove_file(&mine).unwrap();
        fs::create_dir(&mine).unwrap();
        assert!(open_private(&mine).is_err());
    }

    #[test]
    fn a_lock_excludes_others() {
        let folder = tempfile::tempdir().unwrap();
        let cache = HubCache::new(folder.path(), "o/n");
        let cancel = CancelToken::register("o/lock");
        let first = cache.lock("e", &cancel).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| cache.lock("e", &cancel).map(drop));
            assert!(cache.lock("other", &cancel).is_ok());
            super::super::cancel("o/lock");
            assert_eq!(second.join().unwrap().unwrap_err().code(), Code::Cancelled);
        });
        drop(first);
        assert!(cache.lock("e", &CancelToken::register("o/lock")).is_ok());
    }
}
