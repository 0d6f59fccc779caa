//! Server-sent events of a generation, or lines of JSON, with a comment now and then while nothing
//! is sent.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::error::{ApiError, Protocol};
use super::generation::{Generated, Update, Updates};
use super::held_replies::HeldReply;

/// Proxies and clients close connections that are silent for too long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Chunks are written together up to this many bytes.
const MAX_TOGETHER: usize = 16 << 10;
/// An error within this time gets its own HTTP status. A later error is an event in the stream.
const STATUS_WAIT: Duration = Duration::from_secs(5);

/// Converts updates of a generation to events of a protocol, as text, or to one object.
pub(crate) trait EventWriter: Send + Unpin + 'static {
    const MEDIA_TYPE: &'static str = "text/event-stream";
    /// What is sent now and then while there is no output. Empty if the format has no comments.
    const WAIT: &'static str = ": wait\n\n";

    /// Events before the first chunk.
    fn start(&mut self) -> String {
        String::new()
    }
    /// The events for a chunk of the library.
    fn chunk(&mut self, chunk: &Generated) -> String;
    /// Events after the last chunk.
    fn end(&mut self, reply: &Value) -> String;
    /// The events for an error in the middle of a stream.
    fn error(&mut self, error: &ApiError) -> String {
        event_text(&error.json(Protocol::OpenAi).to_string())
    }
    /// The JSON text, in parts, of a reply that is not streamed.
    fn whole(self, reply: &Generated) -> Vec<Bytes>;
}

/// Passes a reply to a writer as if it was streamed.
pub(crate) fn replay(writer: &mut impl EventWriter, generated: &Generated) {
    let reply = &generated.value;
    let mut add_with = |delta: Value, logprobs: Option<Bytes>| {
        let value = json!({ "choices": [{ "delta": delta }] });
        writer.chunk(&Generated { value, logprobs });
    };
    add_with(json!({ "reasoning_content": reply["reasoning_content"] }), None);
    add_with(json!({ "content": reply["text"] }), generated.logprobs.clone());
    for call in reply["tool_calls"].as_array().into_iter().flatten() {
        let function = json!({ "name": call["name"], "arguments": call["arguments"] });
        let calls = json!([{ "id": call["id"], "function": function }]);
        add_with(json!({ "tool_calls": calls }), None);
    }
    writer.end(reply);
}

/// The response of a streamed request: an error, or a stream that has begun. `events` holds what
/// the client has not read yet.
pub(crate) async fn respond<U: Updates, W: EventWriter>(
    mut updates: U,
    mut writer: W,
    events: HeldReply,
) -> Result<Response<Body>, ApiError> {
    let first = match timeout(STATUS_WAIT, poll_fn(|context| updates.poll_next(context))).await {
        Ok(Update::End(Err(error))) => return Err(error),
        Ok(update) => Some(update),
        Err(_) => None,
    };
    let mut text = writer.start();
    let mut is_over = false;
    if let Some(update) = first {
        is_over = append(&mut text, &mut writer, update);
    }
    let mut keep_alive = interval(KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    keep_alive.reset();
    events.push(text.into());
    let stream = EventStream { updates, writer, events, is_over, keep_alive };
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(W::MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Without this header, nginx would buffer the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// An event with a name: `event: NAME`, and its JSON.
pub(crate) fn named_event(name: &str, data: &Value) -> String {
    named_event_text(name, &data.to_string())
}

/// The same, for JSON as text.
pub(crate) fn named_event_text(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An event without a name, whose JSON is text.
pub(crate) fn event_text(data: &str) -> String {
    format!("data: {data}\n\n")
}

struct EventStream<U, W> {
    updates: U,
    writer: W,
    events: HeldReply,
    is_over: bool,
    keep_alive: Interval,
}

impl<U: Updates, W: EventWriter> Stream for EventStream<U, W> {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(events) = this.events.take_slice().transpose() {
            return Poll::Ready(Some(events));
        }
        let mut text = String::new();
        // Chunks that are already available are written together.
        while !this.is_over
            && text.len() < MAX_TOGETHER
            && let Poll::Ready(update) = this.updates.poll_next(context)
        {
            this.is_over = append(&mut text, &mut this.writer, update);
        }
        this.events.push(text.into());
        if let Some(events) = this.events.take_slice().transpose() {
            this.keep_alive.reset();
            return Poll::Ready(Some(events));
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        if W::WAIT.is_empty() {
            return Poll::Pending;
        }
        this.keep_alive.poll_tick(context).map(|_| Some(Ok(Bytes::from_static(W::WAIT.as_bytes()))))
    }
}

/// Whether this was the last update.
fn append(text: &mut String, writer: &mut impl EventWriter, update: Update) -> bool {
    match update {
        Update::Chunk(chunk) => {
            text.push_str(&writer.chunk(&chunk));
            false
        }
        Update::End(Ok(reply)) => {
            text.push_str(&writer.end(&reply.value));
            true
        }
        Update::End(Err(error)) => {
            text.push_str(&writer.error(&error));
            true
        }
    }
}
