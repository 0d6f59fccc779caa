//! `/v1/chat/completions`: OpenAI's chat completions, and `/v1/explain` for the same requests. The
//! library's requests have the same form, so most members are passed on unchanged and the library
//! checks them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::call::{Call, ParsedCall, Reply, json_parts, json_response};
use super::chat_parts;
use super::choices;
use super::custom_calls::CustomCalls;
use super::error::ApiError;
use super::event_stream::{self, EventWriter, event_text};
use super::exchanges;
use super::fields;
use super::generation::Generated;
use super::left_out::LeftOut;
use super::library_request::LibraryRequest;
use super::llama_members::{self, timings};
use super::stamp::{id, now};
use crate::abi;
use crate::raw_json::RawValues;

/// Members that the server handles, and members of the library that clients must not set.
const OWN: [&str; 4] = ["model", "stream", "n", "stream_format"];
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
        let mut left_out = LeftOut::new(model.media());
        let n = choices::count(&call.body)?;
        let (request, custom) = checked_request(&mut call, &mut left_out)?;
        exchanges::check_chat(fields::array(&request, "messages")?)?;
        let request = call.library_request(&model, is_stream, request);
        let requests: Vec<LibraryRequest> = request.choices(n).collect();
        let writer = ChunkWriter::new(&model.name, has_usage, custom, left_out);
        Ok((model, requests, is_stream, writer))
    };
    let (model, mut requests, is_stream, writer) = call.read(convert).await?;
    let header = writer.left_out.header();
    let n = requests.len();
    let reply = match requests.pop() {
        Some(request) if n == 1 => call.generate(&model, request, is_stream, || writer).await?,
        last => {
            requests.extend(last);
            let (app, choices) = call.choices(&model, requests, n, is_stream);
            if is_stream {
                event_stream::respond(choices, writer, app.replies.begin()).await?
            } else {
                json_parts(writer.completion(&choices.replies().await?))
            }
        }
    };
    Ok(header.on(reply))
}

/// `/v1/explain`: the prompt that the request would have, with the origin of its parts. Waits until
/// the model is loaded, but not for a slot.
pub(super) async fn explain(mut call: Call) -> Reply {
    let convert = |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let mut left_out = LeftOut::new(model.media());
        let (request, _) = checked_request(&mut call, &mut left_out)?;
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

/// The library's request, after checking members that the library does not read, and its custom
/// tools.
pub(super) fn checked_request(
    call: &mut ParsedCall,
    left_out: &mut LeftOut,
) -> Result<(Value, CustomCalls), ApiError> {
    llama_members::rename(&mut call.body);
    check(&call.body, call.is_stream()?)?;
    let mut body = call.body.take();
    let custom = chat_parts::adapt(&mut body, left_out)?;
    if let Some(members) = body.as_object_mut() {
        members.retain(|name, _| !OWN.contains(&name.as_str()));
    }
    Ok((body, custom))
}

fn check(body: &Value, is_stream: bool) -> Result<(), ApiError> {
    fields::check(body, fields::CHAT)?;
    fields::positive(body, "timeout_ms")?;
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

/// A request that timed out returns the text so far, like a request that reached its token limit.
pub(super) fn finish_reason(reason: &Value) -> Value {
    if *reason == "cancelled" { "length".into() } else { reason.clone() }
}

/// Writes chunks, and completions, in OpenAI's shape.
struct ChunkWriter {
    id: String,
    model: String,
    has_usage: bool,
    custom: CustomCalls,
    left_out: LeftOut,
    /// The last chunk, for the one with the usage.
    last: Value,
}

impl ChunkWriter {
    fn new(model: &str, has_usage: bool, custom: CustomCalls, left_out: LeftOut) -> ChunkWriter {
        let (id, model) = (id("chatcmpl-"), model.to_owned());
        ChunkWriter { id, model, has_usage, custom, left_out, last: Value::Null }
    }

    /// A completion with a choice for each reply.
    fn completion(self, replies: &[Generated]) -> Vec<Bytes> {
        let mut raws = RawValues::new(&id("raw-"));
        let choices = replies.iter().enumerate().map(|(index, generated)| {
            let reply = &generated.value;
            let logprobs = generated.logprobs.clone().map(|logprobs| raws.add(logprobs));
            let mut message = reply["message"].clone();
            self.custom.write(&mut message);
            if let Some(message) = message.as_object_mut() {
                message.entry("content").or_insert(Value::Null);
                message.entry("refusal").or_insert(Value::Null);
            }
            json!({
                "index": index, "message": message, "logprobs": logprobs,
                "finish_reason": finish_reason(&reply["finish_reason"]),
            })
        });
        let choices: Vec<Value> = choices.collect();
        let together = choices::together(replies.iter(), replies.len());
        let first = replies.first().map_or(&Value::Null, |reply| &reply.value);
        let all = if replies.len() == 1 { first } else { &together };
        let mut completion = json!({
            "id": self.id,
            "object": "chat.completion",
            "created": now(),
            "model": self.model,
            "choices": choices,
            "usage": all["usage"],
            "timings": timings(first),
            "system_fingerprint": abi::version(),
        });
        // OpenAI's API has no such members.
        if first["polyfills_applied"].as_array().is_some_and(|applied| !applied.is_empty()) {
            completion["polyfills_applied"] = first["polyfills_applied"].clone();
        }
        self.left_out.add_diagnostics(all, "diagnostics", &mut completion);
        raws.parts(&completion)
    }
}

impl EventWriter for ChunkWriter {
    fn chunk(&mut self, generated: &Generated) -> String {
        let mut chunk = generated.value.clone();
        chunk["id"] = self.id.clone().into();
        chunk["model"] = self.model.clone().into();
        chunk["system_fingerprint"] = abi::version().into();
        let choice = &mut chunk["choices"][0];
        choice["finish_reason"] = finish_reason(&choice["finish_reason"]);
        if !self.custom.write_delta(choice) {
            return String::new();
        }
        let mut raws = RawValues::new(&id("raw-"));
        if let Some(logprobs) = &generated.logprobs {
            choice["logprobs"] = raws.add(logprobs.clone());
        }
        if self.has_usage && chunk.get("usage").is_none() {
            chunk["usage"] = Value::Null;
        }
        let choice = &chunk["choices"][0];
        if !choice["finish_reason"].is_null() {
            let own = chunk.as_object_mut().and_then(|members| members.remove("diagnostics"));
            let reply = json!({ "diagnostics": own });
            self.left_out.add_diagnostics(&reply, "diagnostics", &mut chunk);
            if self.has_usage {
                // OpenAI sends the usage in a separate chunk, after the last choice.
                let usage = chunk.as_object_mut().and_then(|members| members.remove("usage"));
                self.last = chunk.clone();
                self.last["usage"] = usage.unwrap_or_default();
                chunk["usage"] = Value::Null;
            }
        }
        event_text(&raws.text(&chunk))
    }

    fn end(&mut self, reply: &Value) -> String {
        let mut events = String::new();
        if let Some(members) = self.last.as_object_mut() {
            members.remove("diagnostics");
            members.remove("ignored_keys");
            members.remove("polyfills_applied");
            members.insert("choices".to_owned(), json!([]));
            if reply["usage"].is_object() {
                members.insert("usage".to_owned(), reply["usage"].clone());
            }
            if reply["timings"].is_object() {
                members.insert("timings".to_owned(), timings(reply));
            }
            events = event_text(&self.last.to_string());
        }
        events + "data: [DONE]\n\n"
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        self.completion(std::slice::from_ref(reply))
    }
}
