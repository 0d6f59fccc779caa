//! The profiles of this process, keyed by a hash of their templates: a second chat with the same
//! templates compiles and probes nothing.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::ModelProfile;
use crate::error::Result;
use crate::process::{self, Shared};
use crate::template::{Sources, Templates};

/// The maximum number of profiles to keep. Each takes a few hundred kilobytes.
const CAPACITY: usize = 32;

type SourceHash = [u8; 32];

impl ModelProfile {
    /// Returns the profile of these templates. It is cached, so a second chat with the same
    /// templates compiles and probes nothing.
    pub fn of(sources: &Sources) -> Result<Arc<ModelProfile>> {
        let profile = ModelProfile::with_markers(sources, Vec::new())?;
        let Some(path) = sources.model_file.as_deref().filter(|_| profile.lacks_format()) else {
            return Ok(profile);
        };
        let markers = ModelProfile::special_markers(path)?;
        match markers.is_empty() {
            true => Ok(profile),
            false => ModelProfile::with_markers(sources, markers),
        }
    }

    /// Returns the cached profile, or creates one.
    fn with_markers(sources: &Sources, special_markers: Vec<String>) -> Result<Arc<ModelProfile>> {
        let hash = hash(sources, &special_markers);
        if let Some(cached) = get(&hash) {
            return Ok(cached);
        }
        let profile = Arc::new(ModelProfile {
            templates: Templates::compile(sources)?,
            special_markers,
            output: OnceLock::new(),
            by_template: OnceLock::new(),
        });
        insert(hash, &profile);
        Ok(profile)
    }
}

/// Hashes everything that a profile depends on.
fn hash(sources: &Sources, special_markers: &[String]) -> SourceHash {
    let mut hash = Sha256::new();
    let optional = [sources.default.as_deref(), sources.tool_use.as_deref()];
    for part in optional.into_iter().chain([Some(&*sources.bos_token), Some(&*sources.eos_token)]) {
        // The lengths separate the parts.
        hash.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.update(sources.host.key());
    // Separates parent and child: when the process forked, another thread of the parent may have
    // been computing a part of the profile.
    hash.update(process::forks().to_le_bytes());
    for marker in special_markers {
        hash.update((marker.len() as u64).to_le_bytes());
        hash.update(marker);
    }
    hash.finalize().into()
}

/// Least recently used first.
static PROFILES: Shared<Vec<(SourceHash, Arc<ModelProfile>)>> = Shared::new(Vec::new());

fn get(hash: &SourceHash) -> Option<Arc<ModelProfile>> {
    let mut profiles = PROFILES.lock();
    let index = profiles.iter().rposition(|(cached, _)| cached == hash)?;
    let entry = profiles.remove(index);
    let profile = Arc::clone(&entry.1);
    profiles.push(entry);
    Some(profile)
}

fn insert(hash: SourceHash, profile: &Arc<ModelProfile>) {
    let mut profiles = PROFILES.lock();
    if profiles.len() >= CAPACITY {
        profiles.remove(0);
    }
    profiles.push((hash, Arc::clone(profile)));
}
