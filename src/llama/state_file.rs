//! State files: a chat's part of the KV cache, saved for another process.
//!
//! ```text
//! "LLBSTATE" | u32 version | u32 length of the description | description, JSON | tokens, i32 each | data | SHA-256 of all
//! ```
//!
//! Numbers are little-endian. The description names the model, options and llama.cpp version of the
//! data, and is compared first. llama.cpp gets the data only if the checksum matches, and reads it
//! within bounds. A checksum is not a signature: a file that others may write is not read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::memory;
use crate::engine::{SavedSequence, TokenId};

const MAGIC: &[u8; 8] = b"LLBSTATE";
const VERSION: u32 = 1;
/// Bytes before the description.
const PREFIX: usize = 16;
const MOST_DESCRIPTION: usize = 16 * 1024;
const CHECKSUM: usize = 32;

/// Writes a state file, replacing an existing one; only the user can read it. After an error `path`
/// is unchanged.
pub(crate) fn write(path: &Path, description: &Value, kept: &SavedSequence) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    may_replace(path)?;
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"))?;
    let mut temporary_name = name.to_owned();
    temporary_name.push(format!(
        ".{}-{}.tmp",
        std::process::id(),
        COUNTER.fetch_add(1, Ordering::Relaxed)
    ));
    let temporary = path.with_file_name(temporary_name);
    let written =
        write_new(&temporary, description, kept).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Fails if the path has anything but a state file or an empty file: a typo must not overwrite a
/// model.
fn may_replace(path: &Path) -> io::Result<()> {
    let another = || {
        io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is not a state file and was not overwritten; choose another path",
        )
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_file() => return Err(another()),
        Ok(_) => {}
    }
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    if begin.is_empty() || begin == MAGIC { Ok(()) } else { Err(another()) }
}

fn write_new(path: &PathBuf, description: &Value, kept: &SavedSequence) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut checksum = Sha256::new();
    let mut put = |bytes: &[u8]| {
        checksum.update(bytes);
        file.write_all(bytes)
    };
    let description =
        json!({ "for": description, "n_tokens": kept.tokens.len(), "n_bytes": kept.data.len() })
            .to_string();
    put(MAGIC)?;
    put(&VERSION.to_le_bytes())?;
    put(&(description.len() as u32).to_le_bytes())?;
    put(description.as_bytes())?;
    put(&kept.tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>())?;
    put(&kept.data)?;
    file.write_all(&checksum.finalize())?;
    file.sync_all()
}

/// Reads a file for a model of this description. `fits` returns whether the vocabulary has a token.
/// `None` if there is no file. An error is a message that says why the file cannot be used.
pub(crate) fn read(
    path: &Path,
    description: &Value,
    n_ctx: usize,
    fits: impl Fn(TokenId) -> bool,
) -> Result<Option<SavedSequence>, String> {
    let text = |error: io::Error| error.to_string();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(text(error)),
    };
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o022 != 0 {
        return Err("other users may write to it; remove that permission (chmod 600)".to_owned());
    }
    if memory::available().is_some_and(|available| metadata.len() > available) {
        return Err(format!("its {} bytes do not fit in memory", metadata.len()));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(metadata.len() as usize).map_err(|error| error.to_string())?;
    File::open(path)
        .and_then(|file| file.take(metadata.len()).read_to_end(&mut bytes))
        .map_err(text)?;
    parse(&bytes, description, n_ctx, fits).map(Some)
}

fn parse(
    bytes: &[u8],
    description: &Value,
    n_ctx: usize,
    fits: impl Fn(TokenId) -> bool,
) -> Result<SavedSequence, String> {
    let damaged = || "it is damaged".to_owned();
    let number = |at: usize| {
        bytes.get(at..at + 4).and_then(|four| Some(u32::from_le_bytes(four.try_into().ok()?)))
    };
    if !bytes.starts_with(MAGIC) {
        return Err("it is not a state file".to_owned());
    }
    match number(8) {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!("its format version is {other}, but {VERSION} is expected"));
        }
        None => return Err(damaged()),
    }
    let (content, checksum) =
        bytes.split_at_checked(bytes.len().saturating_sub(CHECKSUM)).ok_or_else(damaged)?;
    if Sha256::digest(content).as_slice() != checksum {
        return Err("it is damaged (its checksum is wrong)".to_owned());
    }
    let length = number(12)
        .map(|length| length as usize)
        .filter(|length| *length <= MOST_DESCRIPTION)
        .ok_or_else(damaged)?;
    let written = content.get(PREFIX..PREFIX + length).ok_or_else(damaged)?;
    let written: Value = serde_json::from_slice(written).map_err(|_| damaged())?;
    for (key, now) in description.as_object().into_iter().flatten() {
        let then = &written["for"][key];
        if then != now {
            return Err(format!("it was written with a different {key}: {then}, now {now}"));
        }
    }
    let count = |key: &str| written[key].as_u64().and_then(|count| usize::try_from(count).ok());
    let (n_tokens, n_bytes) = count("n_tokens").zip(count("n_bytes")).ok_or_else(damaged)?;
    if n_tokens == 0 || n_tokens > n_ctx {
        return Err(damaged());
    }
    let (tokens, data) =
        content[PREFIX + length..].split_at_checked(n_tokens * 4).ok_or_else(damaged)?;
    let tokens: Vec<TokenId> = tokens
        .chunks_exact(4)
        .filter_map(|four| Some(TokenId::from_le_bytes(four.try_into().ok()?)))
        .collect();
    if data.len() != n_bytes || !tokens.iter().all(|token| fits(*token)) {
        return Err(damaged());
    }
    Ok(SavedSequence { tokens, data: data.to_vec() })
}

/// Blocks that are read to identify a model file, and their size.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 64 * 1024;

/// Identifies a model file by its content: a hash of its size and of blocks spread over it. Files
/// that differ only between these blocks are not told apart, but fine-tuning changes every tensor.
pub(crate) fn fingerprint(path: &Path) -> io::Result<String> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    let mut block = Vec::new();
    for sample in 0..SAMPLES {
        let last = size.saturating_sub(SAMPLE_BYTES);
        // In 128 bits, because sizes are multiplied.
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

    fn kept() -> SavedSequence {
        SavedSequence { tokens: vec![3, 1, 4, 1, 5], data: (0..=255).collect() }
    }

    fn reads(bytes: &[u8]) -> Result<SavedSequence, String> {
        parse(bytes, &json!({ "model": "m", "n_ctx": 64 }), 64, |token| (0..9).contains(&token))
    }

    fn file(description: &Value, kept: &SavedSequence) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        write(&path, description, kept).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        fs::read(path).unwrap()
    }

    #[test]
    fn a_file_reads_back_and_damage_is_detected() {
        let bytes = file(&json!({ "model": "m", "n_ctx": 64 }), &kept());
        assert_eq!(reads(&bytes), Ok(kept()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(reads(&damaged).is_err(), "byte {at}");
            assert!(reads(&bytes[..at]).is_err(), "{at} bytes");
        }
        assert!(reads(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn content_with_a_valid_checksum_is_still_checked() {
        let forged = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = file(&json!({ "model": "m", "n_ctx": 64 }), &kept());
            bytes.truncate(bytes.len() - CHECKSUM);
            change(&mut bytes);
            let checksum = Sha256::digest(&bytes);
            bytes.extend_from_slice(&checksum);
            reads(&bytes)
        };
        assert_eq!(forged(&|_| ()), Ok(kept()));
        let replace = |from: &'static str, to: &'static str| {
            assert_eq!(from.len(), to.len());
            forged(&move |bytes| {
                let at =
                    bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            })
        };
        let damaged = Err("it is damaged".to_owned());
        assert_eq!(replace("\"n_tokens\":5", "\"n_tokens\":9"), damaged);
        assert_eq!(replace("\"n_tokens\":5", "\"n_tokens\":0"), damaged);
        assert_eq!(replace("\"n_bytes\":256", "\"n_bytes\":1e9"), damaged);
        assert_eq!(replace("\"n_bytes\"", "\"m_bytes\""), damaged);
        assert_eq!(forged(&|bytes| bytes[12..16].fill(0xFF)), damaged);
        assert_eq!(forged(&|bytes| bytes.truncate(14)), damaged);
        // A token outside the vocabulary.
        let spoil_first = |bytes: &mut Vec<u8>| {
            let at = bytes.len() - 256 - 20;
            bytes[at] = 200;
        };
        assert_eq!(forged(&spoil_first), damaged);
        assert_eq!(
            forged(&|bytes| bytes[8] = 2),
            Err("its format version is 2, but 1 is expected".to_owned())
        );
    }

    #[test]
    fn a_different_model_is_reported() {
        let bytes = file(&json!({ "model": "m", "n_ctx": 32 }), &kept());
        assert_eq!(
            reads(&bytes),
            Err("it was written with a different n_ctx: 32, now 64".to_owned())
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let description = json!({ "model": "m" });
        write(&path, &description, &kept()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = || read(&path, &description, 64, |_| true);
        assert_eq!(read(), Ok(Some(kept())));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(
            read(),
            Err("other users may write to it; remove that permission (chmod 600)".to_owned())
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(read(), Ok(None));
    }

    #[test]
    fn other_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let description = json!({ "model": "m" });
        for other in [b"GGUF and gigabytes".as_slice(), b"LLB"] {
            fs::write(&path, other).unwrap();
            let error = write(&path, &description, &kept()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "it is not a state file and was not overwritten; choose another path"
            );
            assert_eq!(fs::read(&path).unwrap(), other);
        }
        fs::write(&path, b"").unwrap();
        for _ in 0..2 {
            write(&path, &description, &kept()).unwrap();
        }
    }

    #[test]
    fn a_fingerprint_depends_on_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            fs::write(folder.path().join(name), bytes).unwrap();
            fingerprint(&folder.path().join(name)).unwrap()
        };
        let long = vec![7; 3_000_000];
        let mut changed = long.clone();
        changed[2_000_000] = 8;
        assert_eq!(of("a", &long), of("b", &long));
        assert_ne!(of("a", &long), of("b", &changed));
        assert_ne!(of("a", &[]), of("b", &[0]));
    }
}
