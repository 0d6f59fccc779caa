//! A chat request that runs on its own thread and whose updates the server awaits. Dropping it
//! cancels the request, which is what happens when a client leaves.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::ApiError;
use super::held_replies::HeldReply;
use super::library_request::LibraryRequest;
use super::log::RequestLog;
use super::metrics::Metrics;
use super::running_call::RunningCall;
use super::slot::Slot;
use crate::abi::Chat;
use crate::failure::{Failure, Result};
use crate::raw_json::{RawObject, elements};

/// An update from a generation.
pub(crate) enum Update {
    /// A `chat.completion.chunk` of the library.
    Chunk(Generated),
    /// The reply, or the reason for a failure. It is the last update.
    End(std::result::Result<Generated, ApiError>),
}

/// Where the updates of a response come from.
pub(crate) trait Updates: Send + Unpin + 'static {
    /// The next update.
    fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Update>;
}

/// A reply of the library, or a chunk of it.
pub(crate) struct Generated {
    /// The JSON without its log probabilities.
    pub(crate) value: Value,
    /// Their JSON, `{"content": [...]}`: a long text, which is passed on as it is.
    pub(crate) logprobs: Option<Bytes>,
}

impl Generated {
    fn reply(reply: &RawObject) -> Generated {
        Generated { value: reply.value_without(LOGPROBS), logprobs: logprobs(reply) }
    }

    fn chunk(text: Bytes) -> Generated {
        let chunk = RawObject::parse(text);
        let choices = chunk.text(CHOICES).unwrap_or_default();
        let choice = elements(&choices).next().map(RawObject::parse);
        let mut value = chunk.value_without(CHOICES);
        value[CHOICES] = choice.iter().map(|choice| choice.value_without(LOGPROBS)).collect();
        Generated { value, logprobs: choice.as_ref().and_then(logprobs) }
    }
}

const CHOICES: &str = "choices";
const LOGPROBS: &str = "logprobs";

fn logprobs(object: &RawObject) -> Option<Bytes> {
    object.text(LOGPROBS).filter(|logprobs| logprobs != "null")
}

/// What the worker tells.
enum Signal {
    /// The next chunk is ready.
    Chunk,
    End(std::result::Result<Generated, ApiError>),
}

pub(crate) struct Generation {
    signals: UnboundedReceiver<Signal>,
    /// The chunks of a stream that the client has not read yet.
    held: Option<Arc<HeldReply>>,
    call: Arc<RunningCall<Chat>>,
}

impl Generation {
    /// Starts a request of the library. `request` has `"stream_format": "chunks"`. `held` takes the
    /// chunks of a stream; without it there is only a reply.
    pub(crate) fn start(
        slot: Slot,
        request: LibraryRequest,
        metrics: Arc<Metrics>,
        log: Arc<RequestLog>,
        held: Option<HeldReply>,
    ) -> Generation {
        let (sender, signals) = unbounded_channel();
        let held = held.map(Arc::new);
        let chunks = held.clone();
        let call = Arc::<RunningCall<Chat>>::default();
        let worker = Arc::clone(&call);
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let ended = worker.end();
            let chunks = chunks.as_deref();
            let result = perform(&slot, &request, &worker, (&sender, chunks), &log, started);
            drop(ended);
            drop(slot);
            let result = result.map(|reply| match chunks {
                None => Generated::reply(&reply),
                // The log probabilities were in the chunks.
                Some(_) => Generated { value: reply.value_without(LOGPROBS), logprobs: None },
            });
            match &result {
                Ok(reply) => {
                    metrics.add_reply(&reply.value, started.elapsed());
                    log.set_reply(&reply.value);
                }
                Err(failure) => log.set(|facts| facts.code.clone_from(&failure.code)),
            }
            let result = result.map_err(|failure| request.error(&failure));
            drop(request);
            if let Err(error) = &result
                && !worker.is_cancelled()
            {
                log.set_error(error);
            }
            // Sending fails if the client has left.
            let _ = sender.send(Signal::End(result));
        });
        Generation { signals, held, call }
    }

    /// The next update.
    pub(crate) async fn next(&mut self) -> Update {
        let signal = self.signals.recv().await;
        self.update(signal)
    }

    fn update(&self, signal: Option<Signal>) -> Update {
        match signal {
            Some(Signal::End(result)) => Update::End(result),
            Some(Signal::Chunk) => match self.held.as_ref().map(|held| held.take_part()) {
                Some(Ok(Some(text))) => Update::Chunk(Generated::chunk(text)),
                Some(Err(error)) => Update::End(Err(dropped(&error))),
                _ => Update::End(Err(stopped())),
            },
            None => Update::End(Err(stopped())),
        }
    }

    /// Waits for the reply.
    pub(crate) async fn reply(mut self) -> std::result::Result<Generated, ApiError> {
        loop {
            if let Update::End(result) = self.next().await {
                return result;
            }
        }
    }
}

impl Updates for Generation {
    fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Update> {
        self.signals.poll_recv(context).map(|signal| self.update(signal))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.call.cancel();
    }
}

fn perform(
    slot: &Slot,
    request: &LibraryRequest,
    call: &RunningCall<Chat>,
    (sender, held): (&UnboundedSender<Signal>, Option<&HeldReply>),
    log: &RequestLog,
    started: Instant,
) -> Result<RawObject> {
    let template = request.chat_template.as_deref();
    let chat = template.map_or_else(|| slot.chat(), |text| slot.chat_with_template(text))?;
    call.set_handle(Some(Arc::clone(&chat)));
    let result = if call.is_cancelled() {
        Err(Failure::new("the client left"))
    } else {
        let mut is_first = true;
        chat.infer_raw(&request.text(), |chunk| {
            if std::mem::take(&mut is_first) {
                log.set(|facts| {
                    facts.first_token = Some(started.elapsed());
                    facts.first_token_at = Some(Instant::now());
                });
            }
            let is_gone = match held {
                Some(held) => {
                    held.push(Bytes::copy_from_slice(chunk.as_bytes()));
                    sender.send(Signal::Chunk).is_err()
                }
                None => sender.is_closed(),
            };
            if is_gone || call.is_cancelled() {
                chat.cancel();
            }
        })
    };
    call.set_handle(None);
    let is_broken =
        |failure: &Failure| failure.is("ENGINE_CLOSED") || failure.is("INTERNAL_BRIDGE_ERROR");
    if result.as_ref().is_err_and(is_broken) {
        slot.discard();
    } else if template.is_none() {
        slot.give_back(chat);
    }
    result
}

fn dropped(error: &std::io::Error) -> ApiError {
    ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn stopped() -> ApiError {
    ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn log_probabilities_stay_text() {
        let chunk = |text: &'static str| Generated::chunk(Bytes::from_static(text.as_bytes()));
        let text = r#"{"id":"a","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":null,
            "logprobs":{"content":[1,2]}}],"usage":{"n":1}}"#;
        let generated = chunk(text);
        assert_eq!(generated.logprobs.unwrap(), r#"{"content":[1,2]}"#);
        let choice = json!({ "index": 0, "delta": { "content": "b" }, "finish_reason": null });
        let value = json!({ "id": "a", "usage": { "n": 1 }, "choices": [choice] });
        assert_eq!(generated.value, value);
        assert!(chunk(r#"{"choices":[{"logprobs":null}]}"#).logprobs.is_none());
        assert!(chunk(r#"{"choices":[]}"#).logprobs.is_none());
    }
}
