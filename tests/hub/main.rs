//! Downloads from hubs on this machine's loopback: one that behaves like the real one, and many
//! that do not.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(missing_docs, unreachable_pub, reason = "a test program")]

#[path = "../scripted/mod.rs"]
mod scripted;

mod cancelled;
mod fetched;
#[cfg(unix)]
mod full;
mod hostile;
mod killed;
mod proxied;
mod refused;
mod resumed;
mod secure;
mod server;
mod slow;
mod token;

use std::path::{Path, PathBuf};

use llb::error::Error;
use llb::hub::{Environment, fetch};
use serde_json::{Value, json};

use server::Hub;

/// A user of a hub, with a cache.
pub struct User {
    pub cache: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl User {
    pub fn of(hub: &Hub) -> User {
        let cache = tempfile::tempdir().unwrap();
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let variables =
            vec![own("HF_ENDPOINT", &hub.url()), own("HF_HOME", cache.path().to_str().unwrap())];
        User { cache, variables }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> User {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Fetches `o/n` with these members. Returns the events too.
    pub fn fetch(&self, members: &Value) -> (Result<Value, Error>, Vec<String>) {
        let mut events = Vec::new();
        let fetched = self.watch(members, &mut |event| events.push(event.to_owned()));
        (fetched, events)
    }

    pub fn watch(&self, members: &Value, on_event: &mut dyn FnMut(&str)) -> Result<Value, Error> {
        let mut request = json!({ "id": "o/n" });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let variables: Vec<_> =
            self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        fetch(&request.to_string(), &Environment::of(&variables), on_event)
    }

    #[track_caller]
    pub fn fetches(&self, members: &Value) -> Value {
        self.fetch(members).0.unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub fn fails(&self, members: &Value) -> Error {
        let (fetched, events) = self.fetch(members);
        let error = fetched.expect_err("a failure");
        let last = format!("fetch_failure:{}", error.code().as_str().to_ascii_lowercase());
        assert_eq!(events.last(), Some(&last), "{error}");
        error
    }

    pub fn repository(&self) -> PathBuf {
        self.cache.path().join("hub").join("models--o--n")
    }

    /// The files in the cache except locks: paths below the repository's folder.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(&self.repository(), &self.repository(), &mut files);
        files.sort();
        files
    }
}

pub fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, files);
        } else {
            let path = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.push(path.replace(std::path::MAIN_SEPARATOR, "/"));
        }
    }
}

/// A model with pseudo-random bytes after its tensors, in place of weights.
pub fn model_of(size: usize) -> Vec<u8> {
    let mut bytes = scripted::text();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

pub fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
