//! Unloads a model in helper processes.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::call_watch::{HelperCallLimits, ProgressLimits};
use super::helper::{HELPERS, Helper, HelperError, HelperSlot, Request};
use super::message::Call;
use super::options::{AllowedFile, absolute};
use crate::api::MODEL_PATH;
use crate::error::Result;
use crate::process;

#[derive(Deserialize)]
struct Unloaded {
    chats: usize,
}

/// See [`crate::llama::unload`]; this one is for chats in helpers.
pub(crate) fn unload(path: &str) -> Result<usize> {
    let path = absolute(path, MODEL_PATH)?;
    let mut chats = 0;
    for FoundHelper { helper, path, gigabytes } in helpers_with(&path) {
        let request = Request { call: &|_| Call::Unload, text: Some(&path), descriptor: None };
        // A state is copied before the model is freed, which takes less than reading the file.
        let progress = ProgressLimits::of_reading(gigabytes);
        let limits = HelperCallLimits { progress, ..HelperCallLimits::default() };
        match helper.call(&request, &limits, &mut |_, _| {}) {
            Ok(text) => chats += serde_json::from_str(&text).map_or(0, |Unloaded { chats }| chats),
            Err(HelperError::Answered(error, _)) => return Err(error),
            // The helper ended, and its model with it.
            Err(HelperError::Ended(_)) => {}
        }
    }
    Ok(chats)
}

struct FoundHelper {
    helper: Arc<Helper>,
    /// The path by which it knows the file.
    path: String,
    /// The size of its files.
    gigabytes: f64,
}

/// This process's helpers that may read the file at this path.
fn helpers_with(path: &str) -> Vec<FoundHelper> {
    let forks = process::forks();
    let file = AllowedFile::new(Path::new(path));
    let is_it = |known: &AllowedFile| {
        known.path == path || file.as_ref().is_some_and(|file| file.is_same_file(known))
    };
    let found: Vec<(HelperSlot, String, f64)> = HELPERS
        .lock()
        .iter()
        .filter(|(of, _, _)| *of == forks)
        .filter_map(|(_, key, slot)| {
            let file = key.files.iter().find(|file| is_it(file))?;
            Some((Arc::clone(slot), file.path.clone(), key.gigabytes()))
        })
        .collect();
    // A helper that is still starting holds the lock and is skipped.
    let started = found.into_iter().filter_map(|(slot, path, gigabytes)| {
        let helper = slot.try_lock().ok()?.upgrade()?;
        Some(FoundHelper { helper, path, gigabytes })
    });
    started.filter(|found| found.helper.is_alive()).collect()
}
