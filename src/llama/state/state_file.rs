//! State files: a chat's part of the KV cache, saved for another process.
//!
//! ```text
//! "LLBSTATE" | u32 version | u32 length of the description | description, JSON
//!            | tokens, i32 each | data | SHA-256 of all
//! ```
//!
//! Numbers are little-endian. The description names the model, options and llama.cpp version of the
//! data, and is compared first. It does not include the scales of adapters: these are restored from
//! the file. llama.cpp gets the data only if the checksum matches, and reads it within bounds. A
//! checksum is not a signature, so a file that other users own or may write is not read.

use std::fs::File;
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{MAGIC, StateStore};
use crate::api::AdapterScales;
use crate::engine::{SavedSequence, TokenId};
use crate::llama::raw::machine_memory;

const VERSION: u32 = 1;
/// Bytes before the description.
const PREFIX: usize = 16;
const MAX_DESCRIPTION: usize = 16 * 1024;
const CHECKSUM: usize = 32;
/// The size of the blocks in which the data is read and hashed.
const BLOCK: usize = 1 << 20;
/// The maximum number of characters of a file's description that a message quotes.
const MAX_QUOTED: usize = 100;

/// Writes a state file, replacing an existing one.
pub(crate) fn write(
    store: &dyn StateStore,
    description: &Value,
    kept: &SavedSequence,
) -> io::Result<()> {
    store.replace(&mut |file| write_content(file, description, kept))
}

fn write_content(file: &mut File, description: &Value, kept: &SavedSequence) -> io::Result<()> {
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

/// Upper bounds for the state of this model and context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateLimits {
    pub(crate) n_tokens: usize,
    pub(crate) n_bytes: u64,
    pub(crate) n_adapters: usize,
}

/// Reads a file that was written for a model with this description. `fits` returns whether the
/// vocabulary contains a token. `None` if the file does not exist. The error is a message that says
/// why the file cannot be used.
pub(crate) fn read(
    store: &dyn StateStore,
    description: &Value,
    limits: StateLimits,
    fits: impl Fn(TokenId) -> bool,
) -> Result<Option<SavedSequence>, String> {
    let Some((file, size)) = store.open()? else { return Ok(None) };
    parse(file, size, description, limits, fits).map(Some)
}

/// Parses a file of `size` bytes. Every length is checked before anything after the head is read or
/// allocated.
fn parse(
    file: impl Read,
    size: u64,
    description: &Value,
    limits: StateLimits,
    fits: impl Fn(TokenId) -> bool,
) -> Result<SavedSequence, String> {
    let mut input = HashingReader { source: file, checksum: Sha256::new() };
    let head = StateHead::read(&mut input, size, description)?;
    let adapters = AdapterScales::of_json(&head.scales, limits.n_adapters).ok_or_else(damaged)?;
    if head.n_tokens > limits.n_tokens || head.n_bytes as u64 > limits.n_bytes {
        return Err("it is damaged (its state is too large for this model and context)".to_owned());
    }
    if machine_memory::available_memory().is_some_and(|available| size > available) {
        return Err(format!("its {size} bytes do not fit in memory"));
    }
    let tokens = input.bytes(head.n_tokens * size_of::<TokenId>())?;
    let tokens: Vec<TokenId> = tokens
        .chunks_exact(size_of::<TokenId>())
        .filter_map(|four| Some(TokenId::from_le_bytes(four.try_into().ok()?)))
        .collect();
    let data = input.bytes(head.n_bytes)?;
    let expected = input.checksum.clone().finalize();
    if input.bytes(CHECKSUM)? != expected.as_slice() {
        return Err("it is damaged (its checksum is wrong)".to_owned());
    }
    if !tokens.iter().all(|token| fits(*token)) {
        return Err(damaged());
    }
    Ok(SavedSequence { tokens, adapters, data })
}

fn damaged() -> String {
    "it is damaged".to_owned()
}

/// The head of a file: the description, and the lengths of the rest.
struct StateHead {
    n_tokens: usize,
    n_bytes: usize,
    scales: Value,
}

impl StateHead {
    /// Reads the head of a file of `size` bytes.
    fn read(
        input: &mut HashingReader<impl Read>,
        size: u64,
        description: &Value,
    ) -> Result<StateHead, String> {
        let prefix = input.bytes(size.min(PREFIX as u64) as usize)?;
        let number = |at: usize| {
            prefix.get(at..at + 4).and_then(|four| Some(u32::from_le_bytes(four.try_into().ok()?)))
        };
        if !prefix.starts_with(MAGIC) {
            return Err("it is not a state file".to_owned());
        }
        match number(8) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!("its format version is {other}, but {VERSION} is expected"));
            }
            None => return Err(damaged()),
        }
        let length = number(12).map(|length| length as usize);
        let length = length.filter(|length| *length <= MAX_DESCRIPTION).ok_or_else(damaged)?;
        let written = crate::json::value(input.bytes(length)?).map_err(|_| damaged())?;
        let count = |key: &str| written[key].as_u64().and_then(|count| usize::try_from(count).ok());
        let (n_tokens, n_bytes) = count("n_tokens").zip(count("n_bytes")).ok_or_else(damaged)?;
        let expected = n_tokens
            .checked_mul(size_of::<TokenId>())
            .and_then(|tokens| tokens.checked_add(n_bytes))
            .and_then(|rest| rest.checked_add(PREFIX + length + CHECKSUM));
        if n_tokens == 0 || expected.is_none_or(|expected| expected as u64 != size) {
            return Err(damaged());
        }
        for (key, now) in description.as_object().into_iter().flatten() {
            let then = &written["for"][key];
            if then != now {
                let then: String = then.to_string().chars().take(MAX_QUOTED).collect();
                return Err(format!("it was written with a different {key}: {then}, now {now}"));
            }
        }
        Ok(StateHead { n_tokens, n_bytes, scales: written["for"]["lora_scales"].clone() })
    }
}

/// Hashes the bytes that are read.
struct HashingReader<R> {
    source: R,
    checksum: Sha256,
}

impl<R: Read> HashingReader<R> {
    /// The next `count` bytes. The file must be large enough.
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count).map_err(|error| error.to_string())?;
        while bytes.len() < count {
            let start = bytes.len();
            bytes.resize(count.min(start + BLOCK), 0);
            let block = &mut bytes[start..];
            self.source.read_exact(block).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(),
                _ => error.to_string(),
            })?;
            self.checksum.update(&*block);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::llama::state::StatePath;
    #[cfg(unix)]
    use crate::test_support::conformance;

    const LIMITS: StateLimits = StateLimits { n_tokens: 64, n_bytes: 1 << 20, n_adapters: 0 };

    fn at(path: impl AsRef<Path>) -> StatePath {
        StatePath(path.as_ref().to_owned())
    }

    fn kept() -> SavedSequence {
        let (tokens, data) = (vec![3, 1, 4, 1, 5], (0..=255).collect());
        SavedSequence { tokens, adapters: AdapterScales::default(), data }
    }

    fn reads(bytes: &[u8]) -> Result<SavedSequence, String> {
        let description = json!({ "model": "m", "n_ctx": 64 });
        parse(bytes, bytes.len() as u64, &description, LIMITS, |token| (0..9).contains(&token))
    }

    fn file(description: &Value, kept: &SavedSequence) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        write(&at(&path), description, kept).unwrap();
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
        let damaged = Err(damaged());
        assert_eq!(replace("\"n_tokens\":5", "\"n_tokens\":9"), damaged);
        assert_eq!(replace("\"n_tokens\":5", "\"n_tokens\":0"), damaged);
        assert_eq!(replace("\"n_bytes\":256", "\"n_bytes\":1e9"), damaged);
        assert_eq!(replace("\"n_bytes\"", "\"m_bytes\""), damaged);
        assert_eq!(forged(&|bytes| bytes[12..16].fill(0xFF)), damaged);
        assert_eq!(forged(&|bytes| bytes.truncate(14)), damaged);
        // Replaces the first token by one outside the vocabulary.
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
        write(&at(&path), &description, &kept()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = || read(&at(&path), &description, LIMITS, |_| true);
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
            let error = write(&at(&path), &description, &kept()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "it is not a state file; it was not overwritten, choose another path"
            );
            assert_eq!(fs::read(&path).unwrap(), other);
        }
        fs::write(&path, b"").unwrap();
        (0..2).for_each(|_| write(&at(&path), &description, &kept()).unwrap());
    }

    #[test]
    fn the_head_decides_before_the_rest_is_read() {
        /// A head followed by bytes that must not be read.
        struct HeadOnly<'a>(&'a [u8]);
        impl Read for HeadOnly<'_> {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "more than the head was read");
                self.0.read(out)
            }
        }
        let head = |version: u32, n_tokens: u64, n_bytes: u64, size: Option<u64>| {
            let model = json!({ "model": "m" });
            let written = json!({ "for": &model, "n_tokens": n_tokens, "n_bytes": n_bytes });
            let written = written.to_string();
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&version.to_le_bytes());
            bytes.extend_from_slice(&(written.len() as u32).to_le_bytes());
            bytes.extend_from_slice(written.as_bytes());
            let length = bytes.len() as u64 + n_tokens * 4 + n_bytes + CHECKSUM as u64;
            let size = size.unwrap_or(length);
            parse(HeadOnly(&bytes), size, &model, LIMITS, |_| true).unwrap_err()
        };
        let large = 8 << 30;
        assert_eq!(head(2, 1, large, None), "its format version is 2, but 1 is expected");
        assert_eq!(head(1, 1, 9, Some(large)), "it is damaged");
        let beyond = "it is damaged (its state is too large for this model and context)";
        assert_eq!(head(1, 1, large, None), beyond);
        assert_eq!(head(1, 65, 9, None), beyond);
    }

    #[cfg(unix)]
    #[test]
    fn only_own_regular_files_are_read_and_replaced() {
        use std::os::unix::fs::{FileTypeExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let description = json!({ "model": "m" });
        let check = |name: &str, problem: &str| {
            let read = read(&at(path(name)), &description, LIMITS, |_| true);
            assert_eq!(read, Err(problem.to_owned()), "{name}");
            let error = write(&at(path(name)), &description, &kept()).unwrap_err();
            let expected = format!("{problem}; it was not overwritten, choose another path");
            assert_eq!(error.to_string(), expected, "{name}");
        };
        write(&at(path("state")), &description, &kept()).unwrap();
        symlink("state", path("link")).unwrap();
        check("link", "is a symbolic link, not a regular file");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        check("pipe", "is a named pipe, not a regular file");
        assert!(fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
        symlink("/dev/zero", path("zero")).unwrap();
        check("zero", "is a symbolic link, not a regular file");
        check(".", "is a directory, not a regular file");
        if chown(path("state"), Some(65_534), None).is_err() {
            return conformance::say(
                "skipped: a file of another user, because this user is not root",
            );
        }
        let before = fs::read(path("state")).unwrap();
        check("state", "it belongs to another user (uid 65534)");
        assert_eq!(fs::read(path("state")).unwrap(), before);
    }
}
