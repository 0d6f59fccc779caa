//! A served model: its description, the queue of its requests, and what is loaded of it.
//! `model_pool` decides when to load it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fair_queue::{FairQueue, Group, QueueFull, Shares, Waiter};
use super::fields;
use super::left_out::TakenMedia;
use super::library_request::LibraryRequest;
use super::limits::ServeLimits;
use super::stamp;
use crate::abi::{self, Chat, Embedder, OnEvent};
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::model_source::model_file;

/// llb's context size if neither the model nor `--n-ctx` sets one.
const N_CTX: u64 = 8192;
/// The most sequences of a model in the library.
const MAX_SEQUENCES: usize = 64;

/// The purpose of a served model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Chat,
    Embedding,
}

pub(crate) struct ServedModel {
    pub(crate) name: String,
    /// Other names that clients may use.
    pub(crate) aliases: Vec<String>,
    pub(crate) purpose: Purpose,
    /// The reply of `llb_model_info`.
    pub(crate) info: Value,
    /// Tokens of context.
    pub(crate) n_ctx: u64,
    /// When the server opened the file, in seconds since 1970.
    pub(crate) created: u64,
    /// The options for creating its chats.
    pub(super) options: Value,
    limits: ServeLimits,
    /// The requests that wait for one of the model's chats or embedding handles, or have one.
    queue: Arc<FairQueue>,
    state: Mutex<LoadState>,
}

/// Whether a model is in memory, and how it is used.
pub(super) struct LoadState {
    pub(super) loaded: Option<Arc<LoadedModel>>,
    /// The number of requests that run or wait for a slot.
    pub(super) leases: usize,
    /// Whether new leases are refused, because another model needs the memory.
    pub(super) is_leaving: bool,
    /// The number of requests that wait for a load. Later ones wait after them.
    pub(super) awaited: usize,
    /// When the last lease ended, or when the load did.
    pub(super) last_use: Instant,
    /// The last attempt to load, if it failed, and when.
    pub(super) failure: Option<(Instant, Failure)>,
    /// The number of loads so far.
    pub(super) loads: u64,
}

impl LoadState {
    pub(super) fn keep(&mut self, loaded: LoadedModel) -> Arc<LoadedModel> {
        let loaded = Arc::new(loaded);
        self.loaded = Some(Arc::clone(&loaded));
        self.last_use = Instant::now();
        self.failure = None;
        self.loads += 1;
        loaded
    }
}

impl ServedModel {
    /// Reads the header of a model given on the command line: `MODEL`, `NAME=MODEL` or
    /// `NAME,ALIAS=MODEL`.
    pub(super) fn describe(
        argument: &str,
        purpose: Purpose,
        loading: &Loading,
        limits: ServeLimits,
    ) -> Result<ServedModel> {
        let (mut names, model) = names_and_model(argument);
        if names.iter().any(String::is_empty) {
            let failure = Failure::new(format!("{argument}: a name is empty"));
            return Err(failure.next("name models like this: llb serve NAME,OTHER=MODEL"));
        }
        let aliases = names.split_off(1);
        let name = names.remove(0);
        let path = model_file(model)?;
        let mut info = abi::model_info(&path)?;
        let mut options = match purpose {
            Purpose::Chat => loading.options(&path)?,
            Purpose::Embedding => loading.embedding_options(&path),
        };
        // Without the option, a projector beside the file is not used.
        match options["projector"].as_str() {
            Some("auto") => {}
            Some(projector) => {
                let request = json!({ "model_path": path, "projector": projector });
                let memory = abi::memory(&request)?;
                let taken = memory["projector"]["input_modalities"].as_array();
                let taken = taken.into_iter().flatten().cloned();
                info["input_modalities"] = std::iter::once("text".into()).chain(taken).collect();
            }
            None => info["input_modalities"] = json!(["text"]),
        }
        // For each request there is a spare one of another client.
        let spare = limits.parallel.min(MAX_SEQUENCES.saturating_sub(limits.parallel));
        let kinds = match purpose {
            Purpose::Chat => {
                options["n_parallel"] = (limits.parallel + spare).into();
                1
            }
            // The library gives its calls turns, but a large one may take much memory.
            Purpose::Embedding => 2,
        };
        let n_ctx = loading.n_ctx.map(u64::from);
        let n_ctx = n_ctx.or_else(|| info["context_length"].as_u64().map(|most| most.min(N_CTX)));
        Ok(ServedModel {
            name,
            aliases,
            purpose,
            info,
            n_ctx: n_ctx.unwrap_or(N_CTX),
            created: stamp::now(),
            options,
            limits,
            queue: FairQueue::new(Shares {
                places: limits.parallel,
                spare,
                min_clients: 1,
                kinds,
                max_waiting: limits.queue,
            }),
            state: Mutex::new(LoadState {
                loaded: None,
                leases: 0,
                is_leaving: false,
                awaited: 0,
                last_use: Instant::now(),
                failure: None,
                loads: 0,
            }),
        })
    }

    /// The name, then the aliases.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model is in memory.
    pub(crate) fn is_loaded(&self) -> bool {
        self.state().loaded.is_some()
    }

    /// How often the model was loaded.
    pub(crate) fn loads(&self) -> u64 {
        self.state().loads
    }

    /// What the model takes besides text: what its projector takes.
    pub(crate) fn media(&self) -> TakenMedia {
        let modalities = self.info["input_modalities"].as_array().map(Vec::as_slice);
        let takes = |name| modalities.unwrap_or_default().iter().any(|modality| modality == name);
        TakenMedia { pictures: takes("image"), sound: takes("audio") }
    }

    /// The approximate bytes that the model takes when loaded.
    pub(super) fn bytes(&self) -> u64 {
        let projector = match self.options["projector"].as_str() {
            Some("auto") => self.info["projector"].as_str(),
            path => path,
        };
        let projector = projector.and_then(|path| std::fs::metadata(path).ok());
        let file = self.info["file_size"].as_u64().unwrap_or_default();
        file + projector.map_or(0, |file| file.len())
    }

    /// Adds a request to the queue. If the queue is full, the error has status 429.
    pub(super) fn queue(&self, group: Group) -> std::result::Result<Waiter, ApiError> {
        self.queue.join(group).map_err(|full| self.full(full))
    }

    /// The error for a request that a full queue has dropped.
    pub(super) fn full(&self, _: QueueFull) -> ApiError {
        self.overloaded("too many requests wait for the model")
    }

    /// The number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// The number of running requests.
    pub(crate) fn running(&self) -> usize {
        self.queue.running()
    }

    /// How many requests the model processes at the same time.
    pub(crate) fn places(&self) -> usize {
        self.limits.parallel
    }

    /// Adds to a request of the library how its reply arrives, and the limits of this server.
    pub(super) fn limit(&self, request: &mut Value) {
        request["stream_format"] = "chunks".into();
        let timeout = request["timeout_ms"].as_u64().filter(|timeout| *timeout > 0);
        let timeout = timeout.unwrap_or(u64::MAX);
        request["timeout_ms"] = timeout.min(self.timeout_ms()).into();
        let names = ["max_tokens", "max_completion_tokens"];
        let is_limited = names.iter().any(|name| fields::get(request, name).is_some());
        if let Some(most) = self.limits.max_tokens.filter(|_| !is_limited) {
            request["max_tokens"] = most.into();
        }
    }

    /// The maximum number of milliseconds that a request may run.
    pub(crate) fn timeout_ms(&self) -> u64 {
        u64::try_from(self.limits.timeout.as_millis()).unwrap_or(u64::MAX)
    }

    /// The error for a request that cannot wait any longer.
    pub(super) fn overloaded(&self, message: &str) -> ApiError {
        let waiting = self.waiting();
        let mut error = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{message} ({waiting} requests); try again later"),
        );
        // A guess: the queue advances by a few requests per second.
        error.retry_after = Some((waiting / self.limits.parallel).clamp(1, 60) as u64);
        error.with_code("rate_limit_exceeded")
    }
}

/// A model in memory: its chats, which share the weights and are decoded together, or the handles of
/// an embedding model, which share the weights and get turns. Dropping the last reference frees the
/// memory.
pub(crate) enum LoadedModel {
    Chat(ChatModel),
    Embedding(EmbeddingModel),
}

pub(crate) struct ChatModel {
    options: Value,
    /// Chats that no request uses.
    idle: Mutex<Vec<Arc<Chat>>>,
    /// Also one of the idle chats. It is used for explanations, which do not wait for a running
    /// request.
    first: Arc<Chat>,
}

impl LoadedModel {
    /// Loads a model with the options of a create. Blocks.
    pub(super) fn open(
        purpose: Purpose,
        options: &Value,
        on_event: OnEvent,
    ) -> Result<LoadedModel> {
        match purpose {
            Purpose::Chat => ChatModel::open(options, on_event).map(LoadedModel::Chat),
            Purpose::Embedding => EmbeddingModel::open(options).map(LoadedModel::Embedding),
        }
    }

    pub(crate) fn chats(&self) -> Result<&ChatModel> {
        match self {
            LoadedModel::Chat(chats) => Ok(chats),
            LoadedModel::Embedding(_) => Err(Failure::new("the model makes vectors, not replies")),
        }
    }

    pub(super) fn embedders(&self) -> Result<&EmbeddingModel> {
        match self {
            LoadedModel::Embedding(embedders) => Ok(embedders),
            LoadedModel::Chat(_) => Err(Failure::new("the model makes replies, not vectors")),
        }
    }
}

pub(crate) struct EmbeddingModel {
    options: Value,
    /// Handles that no request uses.
    idle: Mutex<Vec<Arc<Embedder>>>,
}

impl EmbeddingModel {
    fn open(options: &Value) -> Result<EmbeddingModel> {
        let idle = Mutex::new(vec![Arc::new(Embedder::open(options)?)]);
        Ok(EmbeddingModel { options: options.clone(), idle })
    }

    /// An idle handle, or a new one. Blocks.
    pub(super) fn embedder(&self) -> Result<Arc<Embedder>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Embedder::open(&self.options).map(Arc::new), Ok)
    }

    /// Keeps a handle for later requests.
    pub(super) fn give_back(&self, embedder: Arc<Embedder>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(embedder);
    }
}

impl ChatModel {
    fn open(options: &Value, on_event: OnEvent) -> Result<ChatModel> {
        let first = Arc::new(Chat::open(options, on_event)?);
        let idle = Mutex::new(vec![Arc::clone(&first)]);
        Ok(ChatModel { options: options.clone(), idle, first })
    }

    /// An idle chat, or a new one. Blocks.
    pub(super) fn chat(&self) -> Result<Arc<Chat>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(chat) => Ok(chat),
            None => Ok(Arc::new(Chat::open(&self.options, Box::new(|_| ()))?)),
        }
    }

    /// A chat with another template than the model's. It shares the weights. Blocks.
    pub(super) fn with_template(&self, template: &str) -> Result<Arc<Chat>> {
        let mut options = self.options.clone();
        options["chat_template"] = template.into();
        Ok(Arc::new(Chat::open(&options, Box::new(|_| ()))?))
    }

    /// Keeps a chat for later requests.
    pub(super) fn give_back(&self, chat: Arc<Chat>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(chat);
    }

    /// Explains a request without running it. Blocks briefly.
    pub(crate) fn explain(&self, request: &LibraryRequest) -> Result<Value> {
        match &request.chat_template {
            Some(template) => self.with_template(template)?.explain(&request.text()),
            None => self.first.explain(&request.text()),
        }
    }
}

/// The parts of `NAME=MODEL` or `NAME,NAME=MODEL`; at least one name. Without a name, a short form of
/// the model's.
pub(super) fn names_and_model(argument: &str) -> (Vec<String>, &str) {
    match argument.split_once('=') {
        Some((names, model)) if !names.contains(['/', ':']) => {
            (names.split(',').map(|name| name.trim().to_owned()).collect(), model)
        }
        _ => (vec![short_name(argument)], argument),
    }
}

/// Derives a name from an argument: `hf:org/name:Q8_0` becomes `org/name:Q8_0`, `a/b.gguf` becomes
/// `b`.
fn short_name(argument: &str) -> String {
    if let Some(id) = argument.strip_prefix("hf:") {
        return id.to_owned();
    }
    let file = argument.rsplit('/').next().unwrap_or(argument);
    file.strip_suffix(".gguf").unwrap_or(file).to_owned()
}
