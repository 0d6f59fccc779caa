//! Checks a file of kernels or devices before it is loaded: that it belongs to a user whom the
//! process trusts, that not every user can write it, that it is complete, and that it is from this
//! library's build.
//!
//! In: a path. Out: the name of its content, or the reason why it is not used. Nothing is loaded
//! here: the dynamic loader runs constructors, and would crash the process on a truncated file.

use std::fs::{File, Metadata};
use std::path::Path;

use crate::regular_file;

/// The identity of this library's build. A file of kernels must have the same identity.
pub(crate) const IDENTITY: &str = env!("LLB_KERNELS_IDENTITY");

/// The most headers or notes to read. No file of kernels has more.
const MAX_HEADERS: usize = 64;
const MAX_NOTE_BYTES: u64 = 1 << 16;

/// Returns the variant or the backend that a file contains, if it is from this build. An error says
/// why the file is not used.
pub(crate) fn check_file(path: &Path, owners: &[u32]) -> Result<String, String> {
    let (file, metadata) = regular_file::open(path).map_err(|error| error.to_string())?;
    check_writers(&metadata, owners, false)?;
    let text = note(&file, metadata.len())?;
    match text.split_once(' ') {
        Some((variant, identity)) if identity == IDENTITY => Ok(variant.to_owned()),
        Some((_, identity)) => {
            Err(format!("is from another build ({identity}; needed: {IDENTITY})"))
        }
        None => Err("has no identity".to_owned()),
    }
}

/// Refuses a file or folder that untrusted users can change. `owners` are the users that the
/// process trusts. In a folder with the sticky bit, others can only add files, and those have
/// another owner.
pub(super) fn check_writers(
    metadata: &Metadata,
    owners: &[u32],
    may_add: bool,
) -> Result<(), String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        const OTHERS_WRITE: u32 = 0o002;
        const STICKY: u32 = 0o1000;
        if !owners.contains(&metadata.uid()) {
            return Err(format!("belongs to another user (uid {})", metadata.uid()));
        }
        let is_kept = may_add && metadata.mode() & STICKY != 0;
        if metadata.mode() & OTHERS_WRITE != 0 && !is_kept {
            return Err("can be written by every user".to_owned());
        }
    }
    #[cfg(not(unix))]
    let _ = (metadata, owners, may_add);
    Ok(())
}

/// The users that the process trusts: root, its own user, and the owner of this library's file.
pub(crate) fn owners(library: Option<&Path>) -> Vec<u32> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let library = library.and_then(|path| std::fs::metadata(path).ok());
        let own = rustix::process::geteuid().as_raw();
        [0, own].into_iter().chain(library.map(|metadata| metadata.uid())).collect()
    }
    #[cfg(not(unix))]
    {
        let _ = library;
        Vec::new()
    }
}

/// The text of the ELF note "llb" (System V ABI, gABI 4.3). Everything that the headers refer to
/// must lie inside the file.
fn note(file: &File, size: u64) -> Result<String, String> {
    let header = Bytes::read(file, 0, 64)?;
    let is_elf = header.0.starts_with(b"\x7fELF\x02\x01\x01");
    let of_this_processor = header.number(18, 2)? == ELF_MACHINE;
    if !is_elf || !of_this_processor {
        return Err("is not a shared library for this processor".to_owned());
    }
    let (segments, sections) = (header.number(32, 8)?, header.number(40, 8)?);
    let (segment_size, n_segments) = (header.number(54, 2)?, header.number(56, 2)? as usize);
    let (section_size, n_sections) = (header.number(58, 2)?, header.number(60, 2)?);
    let fits = |start: u64, length: u64| start.checked_add(length).is_some_and(|end| end <= size);
    if !fits(sections, section_size * n_sections) {
        return Err(CUT.to_owned());
    }
    let mut text = None;
    for index in 0..n_segments.min(MAX_HEADERS) as u64 {
        const NOTES: u64 = 4;
        let at = segments.checked_add(index * segment_size).ok_or(CUT)?;
        let segment = Bytes::read(file, at, 56)?;
        let (start, length) = (segment.number(8, 8)?, segment.number(32, 8)?);
        if !fits(start, length) {
            return Err(CUT.to_owned());
        }
        if segment.number(0, 4)? == NOTES && length <= MAX_NOTE_BYTES {
            text = text.or(own_note(&Bytes::read(file, start, length as usize)?));
        }
    }
    text.ok_or_else(|| "is not a file of llb's kernels".to_owned())
}

const CUT: &str = "is not complete";
const ELF_MACHINE: u64 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    u64::MAX
};

/// The text of the note "llb" in a segment of notes.
fn own_note(notes: &Bytes) -> Option<String> {
    let padded = |length: u64| length.checked_next_multiple_of(4);
    let mut at = 0;
    loop {
        let name_size = notes.number(at, 4).ok()?;
        let text_size = notes.number(at + 4, 4).ok()?;
        let name = at + 12;
        let text = name.checked_add(padded(name_size)? as usize)?;
        let next = text.checked_add(padded(text_size)? as usize)?;
        if notes.0.get(name..name.checked_add(name_size as usize)?)? == b"llb\0" {
            let text = notes.0.get(text..text.checked_add(text_size as usize)?)?;
            return String::from_utf8(text.to_vec()).ok();
        }
        at = next;
    }
}

/// A part of a file.
struct Bytes(Vec<u8>);

impl Bytes {
    fn read(file: &File, at: u64, length: usize) -> Result<Bytes, String> {
        use std::io::{ErrorKind, Read, Seek, SeekFrom};
        let mut bytes = vec![0; length];
        let mut file = file;
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
        match read {
            Ok(()) => Ok(Bytes(bytes)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(CUT.to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads a little-endian number of `length` bytes.
    fn number(&self, at: usize, length: usize) -> Result<u64, String> {
        let bytes = self.0.get(at..at + length).ok_or(CUT)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// A minimal ELF file: one segment of notes with this text.
#[cfg(all(test, target_os = "linux"))]
pub(crate) fn written(text: &str) -> Vec<u8> {
    let number = |value: usize, length: usize| value.to_le_bytes()[..length].to_vec();
    let mut note = [number(4, 4), number(text.len(), 4), number(1, 4), b"llb\0".to_vec()].concat();
    note.extend_from_slice(text.as_bytes());
    note.resize(note.len().next_multiple_of(4), 0);
    let (segments, notes) = (64, 64 + 56);
    let sections = notes + note.len();
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    let mut put = |at: usize, bytes: Vec<u8>| file[at..at + bytes.len()].copy_from_slice(&bytes);
    put(18, number(ELF_MACHINE as usize, 2));
    put(32, number(segments, 8));
    put(40, number(sections, 8));
    put(54, number(56, 2));
    put(56, number(1, 2));
    put(58, number(64, 2));
    put(60, number(1, 2));
    let segment =
        [number(4, 4), number(4, 4), number(notes, 8), vec![0; 16], number(note.len(), 8)];
    file.extend(segment.concat());
    file.resize(notes, 0);
    file.extend(note);
    file.resize(sections + 64, 0);
    file
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_whole_file_of_this_build_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libllb-cpu-x.so");
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            check_file(&path, &owners(None))
        };
        let valid = written(&format!("zen4 {IDENTITY}"));
        assert_eq!(check(&valid).as_deref(), Ok("zen4"));
        for length in 0..valid.len() {
            let problem = check(&valid[..length]).unwrap_err();
            assert_eq!(problem, CUT, "{length}");
        }
        let other = check(&written("zen4 llb 0.0.9, llama-cpp-sys-2 0.1.1, 0")).unwrap_err();
        assert!(
            other.starts_with("is from another build (llb 0.0.9, llama-cpp-sys-2 0.1.1, 0;"),
            "{other}"
        );
        assert_eq!(check(&written("zen4")).unwrap_err(), "has no identity");
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(check(&program).unwrap_err(), "is not a file of llb's kernels");
        assert_eq!(check(&[b'x'; 100]).unwrap_err(), "is not a shared library for this processor");
        // Replaces bytes of the headers with numbers that a hostile file may contain.
        for at in 0..valid.len() {
            let mut changed = valid.clone();
            changed[at] = 0xff;
            let _ = check(&changed);
        }
    }

    #[test]
    fn what_others_can_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libllb-cpu-x.so");
        std::fs::write(&path, written(&format!("zen4 {IDENTITY}"))).unwrap();
        let own = owners(None);
        assert_eq!(check_file(&path, &own).as_deref(), Ok("zen4"));
        let stranger = [own.iter().max().unwrap() + 1];
        let problem = check_file(&path, &stranger).unwrap_err();
        assert!(problem.starts_with("belongs to another user (uid "), "{problem}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(check_file(&path, &own).unwrap_err(), "can be written by every user");
        // Folders. With the sticky bit, other users can add files but not replace them.
        for (mode, expected) in [(0o755, true), (0o777, false), (0o1777, true)] {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            let metadata = std::fs::metadata(folder.path()).unwrap();
            assert_eq!(check_writers(&metadata, &own, true).is_ok(), expected, "{mode:o}");
        }
    }
}
