//! A chat request that runs on its own thread and whose updates the server awaits. Dropping it
//! cancels the request, which is what happens when a client leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::ApiError;
use super::library_request::LibraryRequest;
use super::log::RequestLog;
use super::metrics::Metrics;
use super::slot::Slot;
use crate::abi::Chat;
use crate::failure::{Failure, Result};

/// An update from a generation.
pub(crate) enum Update {
    /// A `chat.completion.chunk` of the library.
    Chunk(Value),
    /// The reply, or the reason for a failure. It is the last update.
    End(std::result::Result<Value, ApiError>),
}

pub(crate) struct Generation {
    updates: UnboundedReceiver<Update>,
    state: Arc<State>,
}

/// The state that the worker and the canceller share.
#[derive(Default)]
struct State {
    /// The chat while the worker uses it. No other request gets this chat meanwhile.
    chat: Mutex<Option<Arc<Chat>>>,
    is_cancelled: AtomicBool,
    has_ended: AtomicBool,
}

impl State {
    fn set_chat(&self, chat: Option<Arc<Chat>>) {
        *self.chat.lock().unwrap_or_else(PoisonError::into_inner) = chat;
    }

    /// Cancels the running request. The lock is held, so it cannot be a later request.
    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        if let Some(chat) = &*self.chat.lock().unwrap_or_else(PoisonError::into_inner) {
            chat.cancel();
        }
    }
}

/// Records the end of the worker, even after a panic.
struct Ended<'a>(&'a State);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.set_chat(None);
        self.0.has_ended.store(true, Ordering::Release);
    }
}

impl Generation {
    /// Starts a request of the library. `request` has `"stream_format": "chunks"`.
    pub(crate) fn start(
        slot: Slot,
        request: LibraryRequest,
        metrics: Arc<Metrics>,
        log: Arc<RequestLog>,
    ) -> Generation {
        let (sender, updates) = unbounded_channel();
        let state = Arc::new(State::default());
        let worker = Arc::clone(&state);
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let ended = Ended(&worker);
            let result = perform(&slot, &request, &worker, &sender, &log, started);
            drop(ended);
            drop((slot, request));
            match &result {
                Ok(reply) => {
                    metrics.add_reply(reply, started.elapsed());
                    log.set_reply(reply);
                }
                Err(failure) => log.set(|facts| facts.code.clone_from(&failure.code)),
            }
            let result = result.map_err(ApiError::from);
            if let Err(error) = &result
                && !worker.is_cancelled.load(Ordering::Acquire)
            {
                log.set_error(error);
            }
            // Sending fails if the client has left.
            let _ = sender.send(Update::End(result));
        });
        Generation { updates, state }
    }

    /// The next update.
    pub(crate) async fn next(&mut self) -> Update {
        self.updates.recv().await.unwrap_or_else(|| Update::End(Err(stopped())))
    }

    /// Like [`next`](Self::next), for streams.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Update> {
        self.updates
            .poll_recv(context)
            .map(|update| update.unwrap_or_else(|| Update::End(Err(stopped()))))
    }

    /// Waits for the reply.
    pub(crate) async fn reply(mut self) -> std::result::Result<Value, ApiError> {
        loop {
            if let Update::End(result) = self.next().await {
                return result;
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.state.has_ended.load(Ordering::Acquire) {
            return;
        }
        self.state.cancel();
        let state = Arc::clone(&self.state);
        // A cancel just before the call enters the library has no effect, so it is repeated.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while !state.has_ended.load(Ordering::Acquire) {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                    state.cancel();
                }
            });
        }
    }
}

fn perform(
    slot: &Slot,
    request: &LibraryRequest,
    state: &State,
    sender: &UnboundedSender<Update>,
    log: &RequestLog,
    started: Instant,
) -> Result<Value> {
    let chat = slot.chat()?;
    state.set_chat(Some(Arc::clone(&chat)));
    let result = if state.is_cancelled.load(Ordering::Acquire) {
        Err(Failure::new("the client left"))
    } else {
        let mut is_first = true;
        chat.infer(&request.text(), |chunk| {
            if std::mem::take(&mut is_first) {
                log.set(|facts| {
                    facts.first_token = Some(started.elapsed());
                    facts.first_token_at = Some(Instant::now());
                });
            }
            let chunk = serde_json::from_str(chunk).unwrap_or_default();
            let is_gone = sender.send(Update::Chunk(chunk)).is_err();
            if is_gone || state.is_cancelled.load(Ordering::Acquire) {
                chat.cancel();
            }
        })
    };
    state.set_chat(None);
    let is_broken =
        |failure: &Failure| failure.is("ENGINE_CLOSED") || failure.is("INTERNAL_BRIDGE_ERROR");
    if result.as_ref().is_err_and(is_broken) {
        slot.discard();
    } else {
        slot.give_back(chat);
    }
    result
}

fn stopped() -> ApiError {
    ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}
