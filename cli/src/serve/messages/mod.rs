//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>, and the types of the package `anthropic`
//! 2.12.

mod blocks;
mod request;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use serde_json::{Value, json};

use self::blocks::Blocks;
use super::app::{App, Call, Reply, json as json_response, reply};
use super::chat_completions::id;
use super::error::{ApiError, Protocol};
use super::event_stream::{self, EventWriter, named_event};
use super::fields;
use super::generation::Generation;
use crate::abi;

pub(super) async fn respond(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    reply(answer(app, request).await)
}

pub(super) async fn count_tokens(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    reply(count(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Reply {
    let call = Call::read(app, request).await?;
    let model = Arc::clone(call.app.model(&call.body)?);
    let is_stream = fields::boolean(&call.body, "stream")?.unwrap_or_default();
    let mut library = request::library_request(&call.body)?;
    let max_tokens = fields::positive(&call.body, "max_tokens")?;
    library["max_tokens"] =
        max_tokens.ok_or_else(|| ApiError::invalid("max_tokens", "is missing"))?.into();
    library["stream_format"] = "chunks".into();
    library["timeout_ms"] = model.timeout_ms().into();
    let shows_thinking = request::asks_for_thinking(&call.body);
    let slot = call.slot(&model, &library).await?;
    let metrics = Arc::clone(&call.app.metrics);
    let generation = Generation::start(slot, library, metrics, Arc::clone(&call.log));
    let mut writer =
        MessageWriter { message: message(&model.name), blocks: Blocks::new(shows_thinking) };
    if is_stream {
        return event_stream::respond(generation, writer).await;
    }
    let reply = generation.reply().await?;
    writer.blocks.add_reply(&reply);
    let mut message = writer.message;
    message["content"] = writer.blocks.content();
    message["stop_reason"] = stop_reason(&reply);
    message["usage"] = usage(&reply);
    Ok(json_response(&message))
}

async fn count(app: Arc<App>, request: Request) -> Reply {
    let call = Call::read(app, request).await?;
    let model = Arc::clone(call.app.model(&call.body)?);
    let mut library = request::library_request(&call.body)?;
    call.log.set_model(&model.name);
    // Needs only the vocabulary, so the model need not be in memory.
    library["model_path"] = model.options["model"].clone();
    if let Some(template) = model.options.get("chat_template") {
        library["chat_template"] = template.clone();
    }
    let count = move || abi::count(&library).map_err(|failure| ApiError::of_library(&failure));
    let counted = call.app.weightless.run(count).await?;
    Ok(json_response(&json!({ "input_tokens": counted["prompt_tokens"] })))
}

/// A message without content.
fn message(model: &str) -> Value {
    json!({
        "id": id("msg_"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 0, "output_tokens": 0 },
    })
}

/// The library does not report which stop string ended a reply, so "stop_sequence" never occurs.
fn stop_reason(reply: &Value) -> Value {
    match reply["finish_reason"].as_str() {
        Some("tool_calls") => "tool_use",
        Some("length" | "cancelled") => "max_tokens",
        _ => "end_turn",
    }
    .into()
}

/// `input_tokens` does not include cached tokens.
fn usage(reply: &Value) -> Value {
    let usage = &reply["usage"];
    let prompt = usage["prompt_tokens"].as_u64().unwrap_or_default();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    json!({
        "input_tokens": prompt.saturating_sub(cached), "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0, "output_tokens": usage["completion_tokens"],
    })
}

struct MessageWriter {
    message: Value,
    blocks: Blocks,
}

impl EventWriter for MessageWriter {
    fn start(&mut self) -> String {
        let event = json!({ "type": "message_start", "message": self.message });
        named_event("message_start", &event)
    }

    fn chunk(&mut self, chunk: &Value) -> String {
        self.blocks.add_delta(&chunk["choices"][0]["delta"])
    }

    fn end(&mut self, reply: &Value) -> String {
        let mut text = self.blocks.close();
        let delta = json!({ "stop_reason": stop_reason(reply), "stop_sequence": null });
        let event = json!({ "type": "message_delta", "delta": delta, "usage": usage(reply) });
        text += &named_event("message_delta", &event);
        text + &named_event("message_stop", &json!({ "type": "message_stop" }))
    }

    fn error(&mut self, error: &ApiError) -> String {
        named_event("error", &error.json(Protocol::Anthropic))
    }
}
