//! `/v1/chat/completions`: OpenAI's chat completions, and `/v1/explain` for the same requests. The
//! library's requests have the same form, so most members are passed on unchanged and the library
//! checks them.

use std::mem;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::call::{Call, ParsedCall, Reply, json_response};
use super::chat_parts;
use super::error::{ApiError, Protocol};
use super::event_stream::{EventWriter, event_text};
use super::exchanges;
use super::fields;
use super::generation::Generated;
use super::left_out::LeftOut;
use super::model::ServedModel;
use super::stamp::{id, now};
use crate::raw_json::RawValues;

/// Members that the server handles, and members of the library that clients must not set.
const OWN: [&str; 5] = ["model", "stream", "n", "stream_format", "timeout_ms"];
/// Members that no local model can support and that would change the reply.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("functions", "is not supported; use `tools`"),
    ("function_call", "is not supported; use `tool_choice`"),
    ("audio", "is not supported; the reply is text"),
];

pub(super) async fn respond(mut call: Call) -> Reply {
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let has_usage = call.body["stream_options"]["include_usage"] == true;
        let mut left_out = LeftOut::default();
        let request = checked_request(&mut call, &model, &mut left_out)?;
        exchanges::check_chat(fields::array(&request, "messages")?)?;
        let request = call.library_request(&model, is_stream, request);
        Ok((model, request, is_stream, has_usage, left_out))
    };
    let (model, request, is_stream, has_usage, left_out) = call.read(convert).await?;
    let header = left_out.header();
    let writer = || ChunkWriter { model: model.name.clone(), has_usage, left_out };
    call.generate(&model, request, is_stream, writer).await.map(|reply| header.on(reply))
}

/// `/v1/explain`: the prompt that the request would have, with the origin of its parts. Waits until
/// the model is loaded, but not for a slot.
pub(super) async fn explain(mut call: Call) -> Reply {
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let request = checked_request(&mut call, &model, &mut LeftOut::default())?;
        let request = call.library_request(&model, is_stream, request);
        Ok((model, request))
    };
    let (model, mut request) = call.read(convert).await?;
    let lease = call.app.pool.lease(&model, call.wait()).await?;
    let route = call.route();
    let app = call.held_by(&mut request);
    let time = request.time();
    let explain = move || lease.loaded.chats()?.explain(&request);
    let mut explanation = app.weightless.run(route, time, explain).await?;
    // This member compares with the chat's last request, which another client sent.
    if let Some(members) = explanation.as_object_mut() {
        members.remove("cache_break");
    }
    Ok(json_response(&explanation))
}

/// The library's request, after checking members that the library does not read.
fn checked_request(
    call: &mut ParsedCall,
    model: &ServedModel,
    left_out: &mut LeftOut,
) -> Result<Value, ApiError> {
    check(&call.body, call.is_stream()?)?;
    let mut body = call.body.take();
    chat_parts::adapt(&mut body, left_out);
    library_request(body, model)
}

fn check(body: &Value, is_stream: bool) -> Result<(), ApiError> {
    fields::check(body, fields::CHAT)?;
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

fn library_request(mut body: Value, model: &ServedModel) -> Result<Value, ApiError> {
    let timeout = fields::positive(&body, "timeout_ms")?.unwrap_or(u64::MAX);
    let mut request: Map<String, Value> = body.as_object_mut().map(mem::take).unwrap_or_default();
    request.retain(|name, _| !OWN.contains(&name.as_str()));
    request.insert("stream_format".to_owned(), "chunks".into());
    request.insert("timeout_ms".to_owned(), timeout.min(model.timeout_ms()).into());
    let mut request = Value::Object(request);
    let names = ["max_tokens", "max_completion_tokens"];
    if names.iter().all(|name| fields::get(&request, name).is_none())
        && let Some(most) = model.max_tokens()
    {
        request["max_tokens"] = most.into();
    }
    Ok(request)
}

/// A request that timed out returns the text so far, like a request that reached its token limit.
fn finish_reason(reason: &Value) -> Value {
    if *reason == "cancelled" { "length".into() } else { reason.clone() }
}

fn completion(generated: &Generated, model: &str, left_out: &LeftOut) -> Vec<Bytes> {
    let reply = &generated.value;
    let mut raws = RawValues::new(&id("raw-"));
    let logprobs = generated.logprobs.clone().map(|logprobs| raws.add(logprobs));
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
            "logprobs": logprobs,
            "finish_reason": finish_reason(&reply["finish_reason"]),
        }],
        "usage": reply["usage"],
        "timings": reply["timings"],
    });
    // OpenAI's API has no such members.
    if reply["polyfills_applied"].as_array().is_some_and(|applied| !applied.is_empty()) {
        completion["polyfills_applied"] = reply["polyfills_applied"].clone();
    }
    if let Some(names) = reply.get("ignored_keys") {
        completion["ignored_keys"] = names.clone();
    }
    left_out.add_diagnostics(reply, "diagnostics", &mut completion);
    raws.parts(&completion)
}

struct ChunkWriter {
    model: String,
    has_usage: bool,
    left_out: LeftOut,
}

impl EventWriter for ChunkWriter {
    fn start(&mut self) -> String {
        String::new()
    }

    fn chunk(&mut self, generated: &Generated) -> String {
        let mut chunk = generated.value.clone();
        chunk["model"] = self.model.clone().into();
        let choice = &mut chunk["choices"][0];
        choice["finish_reason"] = finish_reason(&choice["finish_reason"]);
        let mut raws = RawValues::new(&id("raw-"));
        if let Some(logprobs) = &generated.logprobs {
            choice["logprobs"] = raws.add(logprobs.clone());
        }
        if !choice["finish_reason"].is_null() {
            let reply = json!({ "diagnostics": chunk["diagnostics"].take() });
            self.left_out.add_diagnostics(&reply, "diagnostics", &mut chunk);
        }
        if !self.has_usage {
            return event_text(&raws.text(&chunk));
        }
        // OpenAI sends the usage in a separate chunk, after the last choice.
        let usage = chunk["usage"].take();
        let text = event_text(&raws.text(&chunk));
        if usage.is_null() {
            return text;
        }
        if let Some(chunk) = chunk.as_object_mut() {
            chunk.remove("diagnostics");
            chunk.remove("ignored_keys");
            chunk.remove("polyfills_applied");
        }
        chunk["choices"] = json!([]);
        chunk["usage"] = usage;
        text + &event_text(&chunk.to_string())
    }

    fn end(&mut self, _reply: &Value) -> String {
        "data: [DONE]\n\n".to_owned()
    }

    fn error(&mut self, error: &ApiError) -> String {
        event_text(&error.json(Protocol::OpenAi).to_string())
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        completion(reply, &self.model, &self.left_out)
    }
}
