//! Files that a request names: only regular files inside folders that the host chose.
//!
//! In: the folders, and a path. Out: the bytes of the file. A path that leads out of the folders gives
//! the same error as a file that does not exist.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use super::too_long;
use crate::error::{Error, Result};

const NO_FOLDER: &str = "files are read only from the folders of the create option `media_folders`; name them, or send a data URL: data:image/png;base64,...";
const NOT_INSIDE: &str = "is not a file that can be read in a folder of the create option `media_folders`; pass the absolute path of one, without `..`";
const NOT_REGULAR: &str = "is not a regular file";

/// The folders whose files a request may name.
pub(super) struct MediaFolders(Vec<MediaFolder>);

struct MediaFolder {
    /// The absolute path, as the option has it.
    named: PathBuf,
    /// The same without links.
    real: PathBuf,
    #[cfg(unix)]
    descriptor: std::os::fd::OwnedFd,
}

impl MediaFolders {
    /// Opens the folders of the option `media_folders`.
    ///
    /// # Errors
    /// `INVALID_REQUEST` with the path of the element that is not a folder.
    pub(super) fn open(paths: &[String]) -> Result<MediaFolders> {
        let open = |(index, path): (usize, &String)| {
            MediaFolder::open(path).map_err(|error| {
                Error::invalid(format!("media_folders[{index}]"), format!("{path}: {error}"))
            })
        };
        paths.iter().enumerate().map(open).collect::<Result<_>>().map(MediaFolders)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of a file, at most `most`.
    ///
    /// # Errors
    /// A message.
    pub(super) fn read(&self, path: &str, most: usize) -> Result<Vec<u8>, String> {
        if self.is_empty() {
            return Err(NO_FOLDER.to_owned());
        }
        let file = self.find(Path::new(path)).ok_or(NOT_INSIDE)?;
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => NOT_REGULAR,
            _ => NOT_INSIDE,
        })?;
        let most_bytes = most as u64;
        if file.metadata().is_ok_and(|known| known.len() > most_bytes) {
            return Err(too_long(most));
        }
        let mut bytes = Vec::new();
        // The size is not trusted: a file can grow.
        let read = file.take(most_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() > most { Err(too_long(most)) } else { Ok(bytes) }
    }

    /// Opens a file. `None` if its path leads out of all folders.
    fn find(&self, path: &Path) -> Option<io::Result<File>> {
        // By its text first: nothing is asked about files that are not below a folder.
        let is_plain =
            path.is_absolute() && !path.components().any(|it| it == Component::ParentDir);
        let is_below = |folder: &MediaFolder| {
            path.starts_with(&folder.named) || path.starts_with(&folder.real)
        };
        if !is_plain || !self.0.iter().any(is_below) {
            return None;
        }
        // A link may lead out of the folder, or into another one.
        let real = path.canonicalize().ok()?;
        self.0.iter().find_map(|folder| {
            let relative = real.strip_prefix(&folder.real).ok()?;
            Some(folder.open_file(relative))
        })
    }
}

impl MediaFolder {
    fn open(path: &str) -> io::Result<MediaFolder> {
        let named = std::path::absolute(path)?;
        let real = named.canonicalize()?;
        if !real.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(MediaFolder {
            #[cfg(unix)]
            descriptor: walk::open_folder(rustix::fs::CWD, &real)?,
            named,
            real,
        })
    }

    /// Opens a file by its path in the folder, which has no links. `InvalidInput` unless it is a
    /// regular file.
    #[cfg(unix)]
    fn open_file(&self, relative: &Path) -> io::Result<File> {
        walk::open_file(&self.descriptor, relative)
    }

    #[cfg(not(unix))]
    fn open_file(&self, relative: &Path) -> io::Result<File> {
        let real = self.real.join(relative);
        let (file, _) = crate::regular_file::open(&real)?;
        // While a file is open, Windows renames no folder above it.
        if real.canonicalize()? != real {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(file)
    }
}

/// Opens files folder by folder without following links, so a link that is put in place of a folder
/// meanwhile leads nowhere.
#[cfg(unix)]
mod walk {
    use std::fs::File;
    use std::io::{self, ErrorKind};
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

    /// On Linux a folder that may not be listed can be opened as well.
    #[cfg(target_os = "linux")]
    const ACCESS: OFlags = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    const ACCESS: OFlags = OFlags::RDONLY;

    pub(super) fn open_folder(parent: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
        let flags = ACCESS | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(parent, name, flags, Mode::empty())?)
    }

    pub(super) fn open_file(folder: &OwnedFd, relative: &Path) -> io::Result<File> {
        let name = relative.file_name().ok_or(ErrorKind::NotFound)?;
        let mut folder = folder.try_clone()?;
        for part in relative.parent().into_iter().flat_map(Path::components) {
            folder = open_folder(&folder, part.as_ref())?;
        }
        // Before it is opened, because opening a device may have an effect.
        let known = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(known.st_mode) != FileType::RegularFile {
            return Err(ErrorKind::InvalidInput.into());
        }
        // By now it may be another file. A pipe must not block here either.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(openat(&folder, name, flags | OFlags::CLOEXEC, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    const MAX_BYTES: usize = 5;

    /// A folder `in` that a request may read, beside one that it may not.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            for folder in ["in/sub", "inner", "out"] {
                std::fs::create_dir_all(tree.path(folder)).unwrap();
            }
            for file in ["in/a.png", "in/sub/b", "inner/c", "out/secret"] {
                std::fs::write(tree.path(file), "12345").unwrap();
            }
            tree
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn text(&self, name: &str) -> String {
            self.path(name).to_str().unwrap().to_owned()
        }

        fn open(&self, folders: &[&str]) -> MediaFolders {
            let folders: Vec<String> = folders.iter().map(|name| self.text(name)).collect();
            MediaFolders::open(&folders).unwrap()
        }

        #[track_caller]
        fn check(&self, folders: &[&str], name: &str, expected: Result<&str, &str>) {
            let read = self.open(folders).read(&self.text(name), MAX_BYTES);
            let read = read.map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{name}");
        }
    }

    #[test]
    fn files_in_the_folders_are_read() {
        let tree = Tree::new();
        symlink("sub/b", tree.path("in/link")).unwrap();
        symlink(tree.path("in/a.png"), tree.path("in/absolute")).unwrap();
        symlink("../inner", tree.path("in/inner")).unwrap();
        for name in ["in/a.png", "in/sub/b", "in/./sub//b", "in/link", "in/absolute"] {
            tree.check(&["in"], name, Ok("12345"));
        }
        // A link from one folder into another.
        tree.check(&["in", "inner"], "in/inner/c", Ok("12345"));
        // The folder by a link, and the file by the link and without it.
        symlink("in", tree.path("alias")).unwrap();
        tree.check(&["alias"], "alias/a.png", Ok("12345"));
        tree.check(&["alias"], "in/a.png", Ok("12345"));
        tree.check(&["in"], "alias/a.png", Err(NOT_INSIDE));
    }

    #[test]
    fn what_is_outside_looks_like_what_is_missing() {
        let tree = Tree::new();
        symlink("../out/secret", tree.path("in/link")).unwrap();
        symlink("../out/none", tree.path("in/broken")).unwrap();
        symlink("../out", tree.path("in/folder")).unwrap();
        symlink("loop", tree.path("in/loop")).unwrap();
        symlink("/proc/self/root", tree.path("in/root")).unwrap();
        let by_root = format!("in/root{}", tree.text("out/secret"));
        for name in [
            "out/secret",
            "out/none",
            "in/none",
            "in/none/b",
            "in/a.png/b",
            "in/link",
            "in/broken",
            "in/folder/secret",
            "in/folder/none",
            "in/loop",
            "in/../out/secret",
            "in/../in/a.png",
            "in/sub/../a.png",
            "inner/c",
            "IN/a.png",
            "in",
            "in/\0",
            &by_root,
        ] {
            tree.check(&["in"], name, Err(NOT_INSIDE));
        }
        let folders = tree.open(&["in"]);
        for path in ["", "a.png", "in/a.png", "/", "/proc/self/cwd/a.png", "/dev/zero"] {
            assert_eq!(folders.read(path, MAX_BYTES).unwrap_err(), NOT_INSIDE, "{path}");
        }
        tree.check(&[], "in/a.png", Err(NO_FOLDER));
    }

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let tree = Tree::new();
        let made = std::process::Command::new("mkfifo").arg(tree.path("in/pipe")).status();
        assert!(made.unwrap().success());
        let _socket = UnixListener::bind(tree.path("in/socket")).unwrap();
        for name in ["in/pipe", "in/socket", "in/sub"] {
            tree.check(&["in"], name, Err(NOT_REGULAR));
        }
        std::fs::write(tree.path("in/empty"), "").unwrap();
        tree.check(&["in"], "in/empty", Ok(""));
        std::fs::write(tree.path("in/long"), "123456").unwrap();
        tree.check(&["in"], "in/long", Err(&too_long(MAX_BYTES)));
        // A file of a terabyte, of which nothing is read.
        let huge = File::create(tree.path("in/huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        tree.check(&["in"], "in/huge", Err(&too_long(MAX_BYTES)));
    }

    /// Between the resolution of the links and the opening of the file.
    #[test]
    fn a_folder_that_becomes_a_link_is_not_followed() {
        let tree = Tree::new();
        let folders = tree.open(&["in"]);
        std::fs::write(tree.path("out/b"), "other").unwrap();
        std::fs::remove_dir_all(tree.path("in/sub")).unwrap();
        symlink("../out", tree.path("in/sub")).unwrap();
        assert!(folders.0[0].open_file(Path::new("sub/b")).is_err());
        std::fs::remove_file(tree.path("in/a.png")).unwrap();
        symlink("../out/b", tree.path("in/a.png")).unwrap();
        assert!(folders.0[0].open_file(Path::new("a.png")).is_err());
        // A folder that takes the name of the one that was opened is another one.
        std::fs::rename(tree.path("in"), tree.path("old")).unwrap();
        symlink("out", tree.path("in")).unwrap();
        assert!(folders.0[0].open_file(Path::new("b")).is_err());
    }

    #[test]
    fn an_option_that_names_no_folder_is_an_error() {
        let tree = Tree::new();
        for name in ["none", "in/a.png"] {
            let paths = [tree.text("in"), tree.text(name)];
            let error = MediaFolders::open(&paths).err().unwrap();
            let expected = format!("media_folders[1]: {}: ", paths[1]);
            assert!(error.message().starts_with(&expected), "{error}");
        }
    }
}
