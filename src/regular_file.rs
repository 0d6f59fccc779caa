//! Opens regular files by paths that callers provide, and tells them apart.
//!
//! In: a path. Out: an open regular file, or an error that says what kind of file it is. A pipe
//! would block, and a device may never end, so neither is opened or read. And the identity of a
//! file: it distinguishes the file from others, and from itself after a change.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// File time stamps are coarse. A file that was modified this shortly before it was read may have
/// been modified again since, with the same time stamp.
const SETTLED: Duration = Duration::from_secs(1);

/// A file as it was when it was identified.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    disk_and_number: (u64, u64),
    size: u64,
    modified: Option<SystemTime>,
}

impl FileIdentity {
    /// Identifies a file. Links are followed.
    pub(crate) fn of(path: &Path) -> Result<FileIdentity> {
        let metadata = std::fs::metadata(path)?;
        #[cfg(unix)]
        let disk_and_number = {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino())
        };
        #[cfg(all(windows, any(feature = "engine", feature = "hub")))]
        let disk_and_number = {
            let known = File::open(path).and_then(winapi_util::file::information)?;
            (known.volume_serial_number(), known.file_index())
        };
        #[cfg(all(windows, not(any(feature = "engine", feature = "hub"))))]
        let disk_and_number = (0, 0);
        let modified = metadata.modified().ok();
        Ok(FileIdentity { disk_and_number, size: metadata.len(), modified })
    }

    /// Whether every later change of the file gives it another identity, if this one is from before
    /// it was read at this time.
    pub(crate) fn is_settled(&self, read: SystemTime) -> bool {
        let age = self.modified.map(|modified| read.duration_since(modified));
        age.is_some_and(|age| age.is_ok_and(|age| age >= SETTLED))
    }
}

/// Opens a regular file for reading, and returns its metadata. Links are followed.
///
/// # Errors
/// Fails with `InvalidInput` and the kind of file, unless it is a regular file.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata)> {
    open_as(path, false, std::fs::metadata(path)?)
}

/// Like [`open`], but refuses a symbolic link at the end of the path.
#[cfg(feature = "engine")]
pub(crate) fn open_no_link(path: &Path) -> Result<(File, Metadata)> {
    open_as(path, true, std::fs::symlink_metadata(path)?)
}

fn open_as(path: &Path, no_link: bool, known: Metadata) -> Result<(File, Metadata)> {
    // The type is checked by path first, because opening a device may have an effect.
    check_type(known.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    // By now the path may lead to another file. A pipe must not block here either.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let no_link = if no_link { libc::O_NOFOLLOW } else { 0 };
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | no_link);
    }
    #[cfg(not(unix))]
    let _ = no_link;
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    check_type(metadata.file_type())?;
    Ok((file, metadata))
}

/// The metadata of a regular file, without opening it.
#[cfg(any(feature = "engine", feature = "hub", feature = "remote"))]
pub(crate) fn metadata(path: &Path) -> Result<Metadata> {
    let metadata = std::fs::metadata(path)?;
    check_type(metadata.file_type())?;
    Ok(metadata)
}

/// The content of a regular file. Fails if it has more than `most` bytes.
#[cfg(any(feature = "hub", feature = "tokenizer-json"))]
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    use std::io::Read;
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    // The size is not trusted: a file can grow, and files in /proc report none.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("is longer than {most} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

fn check_type(kind: FileType) -> Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let problem = format!("is {}, not a regular file", name(kind));
    Err(Error::new(ErrorKind::InvalidInput, problem))
}

fn name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () => "something else",
    }
}

#[cfg(all(test, unix, feature = "engine", feature = "hub"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), b"12345").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap();
        assert!(made.success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        let problem = |opened: Result<(File, Metadata)>| {
            opened.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (name, expected) in [
            ("file", ""),
            ("link", ""),
            ("pipe", "is a named pipe, not a regular file"),
            ("socket", "is a socket, not a regular file"),
            ("zero", "is a device, not a regular file"),
            (".", "is a directory, not a regular file"),
        ] {
            assert_eq!(problem(open(&path(name))), expected, "{name}");
        }
        assert_eq!(problem(open_no_link(&path("link"))), "is a symbolic link, not a regular file");
        assert_eq!(problem(open_no_link(&path("file"))), "");
        assert_eq!(open(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read(&path("link"), 5).unwrap(), b"12345");
        assert_eq!(read(&path("file"), 4).unwrap_err().to_string(), "is longer than 4 bytes");
    }
}
