//! A served model: its chats, and the queue of requests for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServeLimits;
use super::error::ApiError;
use crate::abi::{self, Chat};
use crate::arguments::Loading;
use crate::failure::Result;
use crate::model_source::model_file;
use crate::terminal;

/// What llb uses if neither the model nor `--n-ctx` says otherwise.
const N_CTX: u64 = 8192;

pub(crate) struct ServedModel {
    pub(crate) name: String,
    /// The reply of `llb_model_info`.
    pub(crate) info: Value,
    /// Tokens of context.
    pub(crate) n_ctx: u64,
    /// Seconds since 1970 when the model was opened.
    pub(crate) created: u64,
    limits: ServeLimits,
    options: Value,
    /// Chats that no request uses. All share the weights and are decoded together.
    idle: Mutex<Vec<Arc<Chat>>>,
    /// Also among the idle ones: an explanation does not wait for a running request.
    first: Arc<Chat>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl ServedModel {
    /// Opens a model of the command line: `MODEL` or `NAME=MODEL`.
    pub(super) fn open(
        argument: &str,
        loading: &Loading,
        limits: ServeLimits,
    ) -> Result<ServedModel> {
        let (name, model) = match argument.split_once('=') {
            Some((name, model)) if !name.contains(['/', ':', '.']) => (name.to_owned(), model),
            _ => (short_name(argument), argument),
        };
        let path = model_file(model)?;
        let info = abi::model_info(&path)?;
        let mut options = loading.options(&path)?;
        options["n_parallel"] = limits.parallel.into();
        let n_ctx = loading.n_ctx.map(u64::from);
        let n_ctx = n_ctx.or_else(|| info["context_length"].as_u64().map(|most| most.min(N_CTX)));
        let first = Arc::new(Chat::open(&options, terminal::progress(&name))?);
        let created =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(ServedModel {
            name,
            info,
            n_ctx: n_ctx.unwrap_or(N_CTX),
            created,
            limits,
            options,
            idle: Mutex::new(vec![Arc::clone(&first)]),
            first,
            slots: Arc::new(Semaphore::new(limits.parallel)),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Waits for a slot, in order of arrival.
    ///
    /// With a full queue the error has status 429; so it has if the wait takes too long.
    pub(crate) async fn slot(self: &Arc<ServedModel>) -> std::result::Result<Slot, ApiError> {
        let queued = Queued::new(self);
        // Those before this one either have a slot or wait too.
        let is_full = queued.position > self.limits.queue + self.slots.available_permits();
        if is_full {
            return Err(self.overloaded("too many requests wait for the model"));
        }
        let permit = Arc::clone(&self.slots).acquire_owned();
        match tokio::time::timeout(self.limits.timeout, permit).await {
            Ok(Ok(permit)) => Ok(Slot { model: Arc::clone(self), _permit: permit }),
            _ => Err(self.overloaded("the request waited too long for the model")),
        }
    }

    /// What a request would do. Blocks for a moment.
    pub(crate) fn explain(&self, request: &Value) -> Result<Value> {
        self.first.explain(request)
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests that run.
    pub(crate) fn running(&self) -> usize {
        self.limits.parallel - self.slots.available_permits()
    }

    /// Tokens of a reply to a request that does not say: half of its share of the context. All
    /// requests share the context, each reserves room for its prompt and its reply, and one that
    /// finds no room waits.
    pub(crate) fn max_tokens(&self) -> u64 {
        let share = self.n_ctx / self.limits.parallel as u64;
        self.limits.max_tokens.unwrap_or((share / 2).max(1))
    }

    /// The most milliseconds that a request may run.
    pub(crate) fn timeout_ms(&self) -> u64 {
        u64::try_from(self.limits.timeout.as_millis()).unwrap_or(u64::MAX)
    }

    fn overloaded(&self, message: &str) -> ApiError {
        let waiting = self.waiting();
        let mut error = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{message} ({waiting} requests); try again later"),
        );
        // A guess: the queue moves on by some requests each second.
        error.retry_after = Some((waiting / self.limits.parallel).clamp(1, 60) as u64);
        error.with_code("rate_limit_exceeded")
    }
}

/// A place in the queue, until the slot is there or the client leaves.
struct Queued<'a> {
    model: &'a ServedModel,
    /// From 1.
    position: usize,
}

impl<'a> Queued<'a> {
    fn new(model: &'a ServedModel) -> Queued<'a> {
        Queued { model, position: model.waiting.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.model.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to use one chat.
pub(crate) struct Slot {
    pub(crate) model: Arc<ServedModel>,
    _permit: OwnedSemaphorePermit,
}

impl Slot {
    /// An idle chat, or a new one. Blocks.
    pub(crate) fn chat(&self) -> Result<Arc<Chat>> {
        let idle = self.model.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(chat) => Ok(chat),
            None => Ok(Arc::new(Chat::open(&self.model.options, Box::new(|_| ()))?)),
        }
    }

    /// Keeps a chat for later requests. One whose engine has stopped is not given back.
    pub(crate) fn give_back(&self, chat: Arc<Chat>) {
        self.model.idle.lock().unwrap_or_else(PoisonError::into_inner).push(chat);
    }
}

/// `hf:org/name:Q8_0` is `org/name:Q8_0`, `a/b.gguf` is `b`.
fn short_name(argument: &str) -> String {
    if let Some(id) = argument.strip_prefix("hf:") {
        return id.to_owned();
    }
    let file = argument.rsplit('/').next().unwrap_or(argument);
    file.strip_suffix(".gguf").unwrap_or(file).to_owned()
}
