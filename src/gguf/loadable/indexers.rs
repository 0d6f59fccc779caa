//! Checks that no KV cache for the keys of indexers is without layers.
//!
//! llama.cpp rotates the keys in the cache of indexers and in each cache of attention whose heads
//! have the same length (llama-kv-cache.cpp). It searches for the length of the rotation (`n_rot_k`)
//! by the length of the heads in the cache, which is 0 without layers: the search ends with a
//! division by zero, or never, on AArch64.

use super::{Facts, refused};
use crate::error::Result;

/// How llama.cpp distributes the layers over the caches of attention.
#[derive(PartialEq)]
enum Caches {
    /// One cache has all layers.
    One,
    /// One cache has the layers with a window, the other one the rest, by
    /// `attention.sliding_window_pattern`.
    ByPattern,
    /// All layers are in the cache of windows, and the other one has none.
    AllWindowed,
}

/// An architecture with rotated keys of indexers.
struct Indexers {
    architecture: &'static str,
    /// The key with one number for each layer. Where it is optional, every layer has an indexer
    /// without it.
    of_layers: &'static str,
    /// The number of a layer with an indexer. `None` if every number but 0 means one.
    number: Option<u64>,
    caches: Caches,
}

const INDEXERS: [Indexers; 3] = [
    Indexers {
        architecture: "deepseek4",
        of_layers: "attention.compress_ratios",
        number: Some(4),
        caches: Caches::AllWindowed,
    },
    Indexers {
        architecture: "dots3note",
        of_layers: "attention.indexer.types",
        number: None,
        caches: Caches::ByPattern,
    },
    Indexers {
        architecture: "glm-dsa",
        of_layers: "attention.indexer.types",
        number: None,
        caches: Caches::One,
    },
];

const LENGTH: &str = "attention.indexer.key_length";
const PATTERN: &str = "attention.sliding_window_pattern";

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    let Some(indexers) = INDEXERS.iter().find(|known| known.architecture == facts.architecture)
    else {
        return Ok(());
    };
    let is_indexed =
        |number: &u64| indexers.number.map_or(*number != 0, |indexed| *number == indexed);
    let key = indexers.of_layers;
    if facts.value(key).is_some() && !facts.of_layers(key).iter().any(is_indexed) {
        return Err(refused(format!("{} has no layer with an indexer", facts.key(key))));
    }
    let one_is_empty = match indexers.caches {
        Caches::One => false,
        Caches::AllWindowed => true,
        Caches::ByPattern => {
            let pattern = facts.of_layers(PATTERN);
            !pattern.contains(&0) || pattern.iter().all(|window| *window == 0)
        }
    };
    match facts.count(LENGTH).filter(|length| facts.head_length() == Some(*length)) {
        Some(length) if one_is_empty => Err(refused(format!(
            "{} is {length}, but must differ from the length of a head, because no layer or every \
             layer has a window",
            facts.key(LENGTH)
        ))),
        _ => Ok(()),
    }
}
