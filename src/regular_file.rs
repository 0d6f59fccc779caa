//! Opens regular files by paths of callers.
//!
//! In: a path. Out: an open regular file, or an error that says what the path is instead. A pipe
//! would block, and a device may never end, so neither is opened nor read.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    Follow,
    Refuse,
}

/// Opens a regular file for reading, and returns its metadata. A link is followed.
///
/// # Errors
/// `InvalidInput` that says what the path is, unless it is a regular file.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata)> {
    open_with(path, LastLink::Follow)
}

/// The same, with a choice for links.
pub(crate) fn open_with(path: &Path, link: LastLink) -> Result<(File, Metadata)> {
    // Checked by path first, because opening a device may have an effect.
    check(path, link)?;
    let mut options = OpenOptions::new();
    options.read(true);
    // The path may lead to something else by now: a pipe must not block here either.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let no_link = if link == LastLink::Refuse { libc::O_NOFOLLOW } else { 0 };
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | no_link);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    check_type(metadata.file_type())?;
    Ok((file, metadata))
}

/// The metadata of a regular file that is not opened.
pub(crate) fn check(path: &Path, link: LastLink) -> Result<Metadata> {
    let metadata = match link {
        LastLink::Follow => std::fs::metadata(path)?,
        LastLink::Refuse => std::fs::symlink_metadata(path)?,
    };
    check_type(metadata.file_type())?;
    Ok(metadata)
}

/// The bytes of a regular file. An error if there are more than `most`.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    // The size is not trusted: a file can grow, and those of /proc have none.
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

#[cfg(all(test, unix))]
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
        let problem = |name: &str, link| {
            open_with(&path(name), link).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (name, expected) in [
            ("file", ""),
            ("link", ""),
            ("pipe", "is a named pipe, not a regular file"),
            ("socket", "is a socket, not a regular file"),
            ("zero", "is a device, not a regular file"),
            (".", "is a directory, not a regular file"),
        ] {
            assert_eq!(problem(name, LastLink::Follow), expected, "{name}");
        }
        assert_eq!(problem("link", LastLink::Refuse), "is a symbolic link, not a regular file");
        assert_eq!(problem("file", LastLink::Refuse), "");
        assert_eq!(open(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(read(&path("link"), 5).unwrap(), b"12345");
        assert_eq!(read(&path("file"), 4).unwrap_err().to_string(), "is longer than 4 bytes");
    }
}
