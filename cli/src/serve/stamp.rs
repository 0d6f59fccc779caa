//! What identifies a new object of a response: its id, and the time of its creation.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// A unique id.
pub(super) fn id(prefix: &str) -> String {
    // Two hashes with random keys.
    let half = || RandomState::new().hash_one(prefix);
    format!("{prefix}{:016x}{:016x}", half(), half())
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
