//! A folder of state files that contain prefixes of prompts (`cache_dir`). Each file name describes
//! the content.
//!
//! ```text
//! <identity>-<number of tokens>-<hash of the tokens>.llbprefix
//! ```
//!
//! The identity is a hash of the model, the context, llama.cpp and the scales of the adapters, so a
//! file is found only by a process that can use it. The folder belongs to the user, and no one else
//! may read it. Several processes may use it at the same time: a file gets its name only when it is
//! complete. A file's modification time is the time of its last use, and the oldest files are
//! removed first.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{StatePath, StateStore, check_owner, replace};
use crate::engine::TokenId;
use crate::regular_file;

const EXTENSION: &str = ".llbprefix";
const TEMPORARY: &str = ".tmp";
/// The number of hexadecimal digits of an identity, and of a hash of tokens.
const DIGITS: usize = 32;
/// A temporary file that was not changed for this long was left by a crash.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The folder, and the size limit for all its prefixes in bytes.
#[derive(Debug, Clone)]
pub(crate) struct PrefixFolder {
    path: PathBuf,
    most_bytes: u64,
}

/// A hash of everything that determines a state: the description in a state file, in the form used
/// in names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity(String);

impl Identity {
    pub(crate) fn of(description: &Value) -> Identity {
        Identity(digits(Sha256::digest(description.to_string())))
    }
}

/// A prefix of a prompt, found in the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundPrefix {
    pub(crate) length: usize,
    pub(crate) name: String,
}

impl PrefixFolder {
    /// Opens the folder at an absolute path, and creates it if it is missing. The error is a
    /// message that says why it must not be used.
    pub(crate) fn open(path: PathBuf, most_bytes: u64) -> Result<PrefixFolder, String> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // A slash at the end would follow a symbolic link.
        let path = path.components().collect();
        let folder = PrefixFolder { path, most_bytes };
        if fs::symlink_metadata(&folder.path).is_err() {
            let created = builder.create(&folder.path);
            created.map_err(|error| format!("cannot make {}: {error}", folder.path.display()))?;
        }
        folder.check()?;
        Ok(folder)
    }

    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Checks that the folder may be used. The error says why not. The folder may change at any
    /// time, so it is checked before each use.
    pub(crate) fn check(&self) -> Result<(), String> {
        let shown = self.path.display();
        let metadata = fs::symlink_metadata(&self.path);
        let metadata = metadata.map_err(|error| format!("{shown}: {error}"))?;
        if metadata.is_symlink() {
            return Err(format!("{shown} is a symbolic link; name the folder that it leads to"));
        }
        if !metadata.is_dir() {
            return Err(format!("{shown} is not a folder; name a folder for prefixes only"));
        }
        check_owner(&metadata).map_err(|problem| {
            format!("{shown}: {problem}; name a folder of the user of this process")
        })?;
        #[cfg(unix)]
        if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0 {
            return Err(format!(
                "other users may look into {shown}; remove their permissions (chmod 700)"
            ));
        }
        Ok(())
    }

    /// The file name of a prefix.
    pub(crate) fn name(identity: &Identity, tokens: &[TokenId]) -> String {
        let mut hash = Sha256::new();
        add(&mut hash, tokens);
        name(identity, tokens.len(), &digits(hash.finalize()))
    }

    /// The prefixes of these tokens in the folder, shortest first. The whole prompt is not
    /// included, because its last token is always computed.
    pub(crate) fn find(
        &self,
        identity: &Identity,
        tokens: &[TokenId],
    ) -> io::Result<Vec<FoundPrefix>> {
        let mut known: HashMap<usize, Vec<String>> = HashMap::new();
        for entry in fs::read_dir(&self.path)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            let Some((of, length)) = parsed(&name) else { continue };
            if of == identity.0 && length < tokens.len() {
                known.entry(length).or_default().push(name);
            }
        }
        let mut lengths: Vec<usize> = known.keys().copied().collect();
        lengths.sort_unstable();
        let mut hash = Sha256::new();
        let mut hashed = 0;
        let mut found = Vec::new();
        for length in lengths {
            add(&mut hash, &tokens[hashed..length]);
            hashed = length;
            let name = name(identity, length, &digits(hash.clone().finalize()));
            if known[&length].contains(&name) {
                found.push(FoundPrefix { length, name });
            }
        }
        Ok(found)
    }

    /// The file with this name, for reading and writing.
    pub(crate) fn file(&self, name: &str) -> PrefixFile {
        PrefixFile(self.path.join(name))
    }

    /// Records that a file was used.
    pub(crate) fn mark_used(&self, name: &str) {
        let opened = regular_file::open_no_link(&self.path.join(name));
        // If the system refuses this, the file is merely removed earlier.
        let _ = opened.and_then(|(file, _)| file.set_modified(SystemTime::now()));
    }

    /// Removes files that crashes have left. Then removes the least recently used files until the
    /// rest and `more` bytes are within the limit.
    pub(crate) fn make_room(&self, more: u64) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Another process may have removed it. Links are not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if parsed(&name).is_some() {
                files.push((changed, metadata.len(), entry.path()));
            } else if is_temporary(&name) && is_abandoned(&metadata) {
                let _ = fs::remove_file(entry.path());
            }
        }
        files.sort_unstable();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total.saturating_add(more) <= self.most_bytes {
                break;
            }
            let _ = fs::remove_file(path);
            total -= size;
        }
        Ok(())
    }
}

/// A file in the folder. Writing replaces whatever has its name.
pub(crate) struct PrefixFile(PathBuf);

impl StateStore for PrefixFile {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Option<(File, u64)>, String> {
        StatePath(self.0.clone()).open()
    }

    fn replace(&self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
        replace(&self.0, write)
    }
}

fn add(hash: &mut Sha256, tokens: &[TokenId]) {
    tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
}

fn digits(hash: impl AsRef<[u8]>) -> String {
    hash.as_ref().iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

fn name(identity: &Identity, length: usize, hash: &str) -> String {
    format!("{}-{length}-{hash}{EXTENSION}", identity.0)
}

/// The identity and the length in a prefix's file name; `None` for other names.
fn parsed(name: &str) -> Option<(&str, usize)> {
    let mut parts = name.strip_suffix(EXTENSION)?.split('-');
    let (identity, length, hash) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hash =
        |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_name = parts.next().is_none() && is_hash(identity) && is_hash(hash);
    let length = length.parse().ok().filter(|_| is_name)?;
    Some((identity, length))
}

/// Whether this is the temporary name of a prefix that is being written.
fn is_temporary(name: &str) -> bool {
    let name = name.strip_suffix(TEMPORARY).and_then(|name| name.rsplit_once('.'));
    name.is_some_and(|(name, _)| parsed(name).is_some())
}

fn is_abandoned(metadata: &Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age > ABANDONED)
}
