//! `/v1/chat/completions`: OpenAI's chat completions. The library's requests have the same form, so
//! most members are passed on unchanged and the library checks them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use serde_json::{Map, Value, json};

use super::app::{App, Call, Reply, json as json_response, reply};
use super::error::{ApiError, Protocol};
use super::event_stream::{self, EventWriter, event};
use super::fields;
use super::generation::Generation;
use super::model::ServedModel;
use super::shape;

/// Members that the server handles, and members of the library that clients must not set.
const OWN: [&str; 5] = ["model", "stream", "n", "stream_format", "timeout_ms"];
/// Members that no local model can support and that would change the reply.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("functions", "is not supported; use `tools`"),
    ("function_call", "is not supported; use `tool_choice`"),
    ("audio", "is not supported; the reply is text"),
    ("web_search_options", "is not supported; declare a tool for the search"),
];

pub(super) async fn respond(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    reply(answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Reply {
    let call = Call::read(app, request).await?;
    let model = Arc::clone(call.app.model(&call.body)?);
    let is_stream = fields::boolean(&call.body, "stream")?.unwrap_or_default();
    let request = checked_request(&call.body, &model)?;
    let has_usage = call.body["stream_options"]["include_usage"] == true;
    let slot = call.slot(&model, &request).await?;
    let metrics = Arc::clone(&call.app.metrics);
    let generation = Generation::start(slot, request, metrics, Arc::clone(&call.log));
    if is_stream {
        let writer = ChunkWriter { model: model.name.clone(), has_usage };
        return event_stream::respond(generation, writer).await;
    }
    Ok(json_response(&completion(&generation.reply().await?, &model.name)))
}

/// The library's request, after checking members that the library does not read.
pub(super) fn checked_request(body: &Value, model: &ServedModel) -> Result<Value, ApiError> {
    check(body, fields::boolean(body, "stream")?.unwrap_or_default())?;
    library_request(body, model)
}

fn check(body: &Value, is_stream: bool) -> Result<(), ApiError> {
    shape::check(body, shape::CHAT)?;
    if let Some(n) = fields::get(body, "n")
        && n.as_f64() != Some(1.0)
    {
        return Err(ApiError::invalid("n", "one choice is supported; send n requests"));
    }
    for (name, message) in UNSUPPORTED {
        if fields::get(body, name).is_some() {
            return Err(ApiError::invalid(name, message));
        }
    }
    for modality in fields::array(body, "modalities")? {
        if *modality != "text" {
            return Err(ApiError::invalid("modalities", "only \"text\" is supported"));
        }
    }
    if !is_stream && fields::get(body, "stream_options").is_some() {
        return Err(ApiError::invalid("stream_options", "is for requests with `stream`"));
    }
    Ok(())
}

fn library_request(body: &Value, model: &ServedModel) -> Result<Value, ApiError> {
    let timeout = fields::positive(body, "timeout_ms")?.unwrap_or(u64::MAX);
    let members = body.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| !OWN.contains(&name.as_str()));
    let mut request: Map<String, Value> =
        members.map(|(name, value)| (name.clone(), value.clone())).collect();
    request.insert("stream_format".to_owned(), "chunks".into());
    request.insert("timeout_ms".to_owned(), timeout.min(model.timeout_ms()).into());
    let request = Value::Object(request);
    Ok(with_max_tokens(request, model))
}

fn with_max_tokens(mut request: Value, model: &ServedModel) -> Value {
    let names = ["max_tokens", "max_completion_tokens"];
    if names.iter().all(|name| fields::get(&request, name).is_none()) {
        request["max_tokens"] = model.max_tokens().into();
    }
    request
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A request that timed out returns the text so far, like a request that reached its token limit.
pub(crate) fn finish_reason(reason: &Value) -> Value {
    if *reason == "cancelled" { "length".into() } else { reason.clone() }
}

fn completion(reply: &Value, model: &str) -> Value {
    let mut message = reply["message"].clone();
    if let Some(message) = message.as_object_mut() {
        message.entry("content").or_insert(Value::Null);
        message.entry("refusal").or_insert(Value::Null);
    }
    let mut completion = json!({
        "id": id("chatcmpl-"),
        "object": "chat.completion",
        "created": now(),
        "model": model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": reply["logprobs"],
            "finish_reason": finish_reason(&reply["finish_reason"]),
        }],
        "usage": reply["usage"],
        "timings": reply["timings"],
    });
    add_diagnostics(&mut completion, reply);
    completion
}

/// Adds the library's diagnostics, if there are any. OpenAI's API has no such member.
pub(crate) fn add_diagnostics(object: &mut Value, reply: &Value) {
    if reply["diagnostics"].as_array().is_some_and(|diagnostics| !diagnostics.is_empty()) {
        object["diagnostics"] = reply["diagnostics"].clone();
    }
}

/// A unique id.
pub(crate) fn id(prefix: &str) -> String {
    use std::hash::{BuildHasher, RandomState};
    // Two hashes with random keys.
    let half = || RandomState::new().hash_one(prefix);
    format!("{prefix}{:016x}{:016x}", half(), half())
}

struct ChunkWriter {
    model: String,
    has_usage: bool,
}

impl EventWriter for ChunkWriter {
    fn start(&mut self) -> String {
        String::new()
    }

    fn chunk(&mut self, chunk: &Value) -> String {
        let mut chunk = chunk.clone();
        chunk["model"] = self.model.clone().into();
        let choice = &mut chunk["choices"][0];
        choice["finish_reason"] = finish_reason(&choice["finish_reason"]);
        if !self.has_usage {
            return event(&chunk);
        }
        // OpenAI sends the usage in a separate chunk, after the last choice.
        let usage = chunk["usage"].take();
        let text = event(&chunk);
        if usage.is_null() {
            return text;
        }
        chunk["choices"] = json!([]);
        chunk["usage"] = usage;
        text + &event(&chunk)
    }

    fn end(&mut self, _reply: &Value) -> String {
        "data: [DONE]\n\n".to_owned()
    }

    fn error(&mut self, error: &ApiError) -> String {
        event(&error.json(Protocol::OpenAi))
    }
}
