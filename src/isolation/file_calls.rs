//! Calls about a model file and no chat: requests about its vocabulary, and unloading it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::chat::checked_reply;
use super::helper::{HELPERS, Helper, HelperSlot, StartHelper};
use super::helper_call::{HelperCallLimits, HelperError, ProgressLimits, Request};
use super::message::Call;
use super::options::{AllowedFile, HelperKey, absolute, projector};
use super::session::write_states;
use crate::api::{self, Fields, MODEL_PATH, MediaChoice, ProjectorChoice};
use crate::chat::{MediaFiles, put_files_inside};
use crate::engine::Interrupt;
use crate::error::Result;
use crate::process;
use crate::tokens::TokenCall;

/// The processor time that a call may use for each megabyte of its request, beside what reading the
/// file may take.
const MAX_WORK_PER_MEGABYTE: f64 = 8.0;

/// Runs a request in a helper for its model file: a chat's helper, or a new one that ends with the
/// call. The reply is valid JSON. `version` is the version that the helper must have.
pub(crate) fn run_tokens(
    call: TokenCall,
    mut request: Value,
    version: &str,
    start: StartHelper,
) -> Result<String> {
    let mut fields = Fields::new("", &request)?;
    let path = absolute(api::model_path(&mut fields)?, MODEL_PATH)?;
    let (choice, media) = match call {
        TokenCall::Count => (ProjectorChoice::read(&mut fields)?, MediaChoice::read(&mut fields)?),
        TokenCall::Tokenize | TokenCall::Detokenize => Default::default(),
    };
    let files = MediaFiles::open(&media)?;
    let projector = projector(choice.as_ref(), &path.as_str().into())?;
    let key = HelperKey::of_files(&path, projector.as_deref());
    request[MODEL_PATH] = path.into();
    if choice.is_some() {
        request["projector"] = projector.into();
    }
    if files.reads_others() {
        // Only the host opens and fetches them.
        if let Value::Object(members) = &mut request {
            members.retain(|name, _| !matches!(name.as_str(), "media_folders" | "media_urls"));
        }
        let timeout = request["timeout_ms"].as_u64().map(Duration::from_millis);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        put_files_inside(&mut request, &files, &Interrupt { deadline, ..Interrupt::default() })?;
    }
    let request = request.to_string();
    let helper = Helper::shared(&key, version, start)?;
    let mut progress = ProgressLimits::of_reading(key.gigabytes());
    let for_text = Duration::from_secs_f64(MAX_WORK_PER_MEGABYTE * request.len() as f64 / 1e6);
    progress.work = progress.work.map(|work| work + for_text);
    let limits = HelperCallLimits { progress, ..HelperCallLimits::default() };
    let call = |_| Call::Tokens { call };
    let request = Request { call: &call, text: Some(&request), descriptor: None };
    match helper.call(&request, &limits, &mut |_, _| {}) {
        Ok(text) => checked_reply(text),
        Err(HelperError::Answered(error, _) | HelperError::Ended(error)) => Err(error),
    }
}

/// See [`crate::llama::unload`]; this one is for chats in helpers.
pub(crate) fn unload(path: &str) -> Result<usize> {
    #[derive(Deserialize)]
    struct Unloaded {
        chats: usize,
    }
    let path = absolute(path, MODEL_PATH)?;
    let mut chats = 0;
    for FoundHelper { helper, path, gigabytes } in helpers_with(&path) {
        let request = Request { call: &|_| Call::Unload, text: Some(&path), descriptor: None };
        // A state is copied before the model is freed, which takes less than reading the file.
        let progress = ProgressLimits::of_reading(gigabytes);
        let limits = HelperCallLimits { progress, ..HelperCallLimits::default() };
        chats += write_states(&helper, &mut || {
            match helper.call(&request, &limits, &mut |_, _| {}) {
                Ok(text) => Ok(crate::json::typed(&text).map_or(0, |Unloaded { chats }| chats)),
                Err(HelperError::Answered(error, _)) => Err(error),
                // The helper ended, and its model with it.
                Err(HelperError::Ended(_)) => Ok(0),
            }
        })?;
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
