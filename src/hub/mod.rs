//! Fetches models from the Hugging Face hub: a model's id in, a verified file out.
//!
//! In: an id and the environment. Out: the path of a complete and verified file in the cache, and
//! its model profile. The header is read first, by ranges, so that a refused model is never
//! downloaded. Names, sizes, hashes and redirects of the hub are checked before they are used.

mod cache;
mod download;
mod environment;
mod fault;
mod fetch;
mod file_selection;
mod hash;
mod http;
mod listing;
mod name;
mod obtain;
mod pace;
mod refusal;
mod remote_file;
mod remote_header;
mod request;
mod running;
mod settings;

use serde_json::{Value, json};

use crate::error::Result;

pub use environment::Environment;
pub use running::cancel;

use cache::HubCache;
use fetch::Fetch;
use http::HubClient;
use request::FetchRequest;
use running::{CancelToken, FetchProgress};
use settings::Settings;

/// Runs an `llb_model_fetch` request (docs/hub.md) on the caller's thread and returns its reply.
///
/// `on_event` receives `fetch_start`, `fetch_progress:<bytes>/<total>`, `fetch_verify`, and last
/// `fetch_success` or `fetch_failure:<code>`. [`cancel()`] ends the fetch from any other thread.
///
/// # Errors
/// `INVALID_REQUEST`, the `HUB_*` codes, `OFFLINE`, `CANCELLED`, `MODEL_INVALID`,
/// `MODEL_NOT_TOOL_CAPABLE`, `TEMPLATE_ERROR`; `OUT_OF_MEMORY` if the disk is full.
pub fn fetch(
    request: &str,
    environment: &Environment,
    on_event: &mut dyn FnMut(&str),
) -> Result<Value> {
    fetch_by(|| FetchRequest::parse(request), environment, on_event)
}

/// Like [`fetch()`], for a request that is not text.
#[cfg(feature = "engine")]
pub(crate) fn fetch_value(
    request: &Value,
    environment: &Environment,
    on_event: &mut dyn FnMut(&str),
) -> Result<Value> {
    fetch_by(|| FetchRequest::read(request), environment, on_event)
}

fn fetch_by(
    read: impl FnOnce() -> Result<FetchRequest>,
    environment: &Environment,
    on_event: &mut dyn FnMut(&str),
) -> Result<Value> {
    let mut progress = FetchProgress::new(on_event);
    let fetched = read().and_then(|request| run(&request, environment, &mut progress));
    match &fetched {
        Ok(_) => progress.emit("fetch_success"),
        Err(error) => {
            progress.emit(&format!("fetch_failure:{}", error.code().as_str().to_ascii_lowercase()))
        }
    }
    fetched
}

fn run(
    request: &FetchRequest,
    environment: &Environment,
    progress: &mut FetchProgress,
) -> Result<Value> {
    let settings = Settings::read(request, environment)?;
    let cancel = CancelToken::register(&request.id.text);
    progress.emit("fetch_start");
    let repository = &request.id.repository;
    let fetch = Fetch {
        page: format!("{}/{repository}", settings.endpoint),
        api: format!("{}/api/models/{repository}", settings.endpoint),
        cache: HubCache::new(&settings.cache, repository),
        client: HubClient { settings: &settings },
        request,
        settings: &settings,
        cancel: &cancel,
    };
    // No error and no reply contains the token, even if the hub sends it back.
    let mut reply = fetch.run(progress).map_err(|error| settings.redactor.error(error))?;
    for member in ["diagnostics", "hub", "model_info"] {
        reply[member] = settings.redactor.value(&reply[member]);
    }
    if !request.ignored_keys.is_empty() {
        reply["ignored_keys"] = json!(request.ignored_keys);
    }
    Ok(reply)
}
