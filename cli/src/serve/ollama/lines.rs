//! Replies as Ollama writes them: one object, or a line of JSON for each piece and one at the end.

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::raw_json::{RawObject, RawValues};
use crate::serve::error::{ApiError, Protocol};
use crate::serve::event_stream::EventWriter;
use crate::serve::generation::Generated;
use crate::serve::left_out::LeftOut;
use crate::serve::stamp::{self, id};

/// The route that a reply belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Generate,
}

pub(super) struct LineWriter {
    shape: Shape,
    model: String,
    started: Instant,
    left_out: LeftOut,
}

impl LineWriter {
    pub(super) fn new(
        shape: Shape,
        model: &str,
        started: Instant,
        left_out: LeftOut,
    ) -> LineWriter {
        LineWriter { shape, model: model.to_owned(), started, left_out }
    }

    /// An object with this content and reasoning.
    fn object(&self, content: &Value, thinking: &Value) -> Value {
        let mut object = empty(self.shape, &self.model);
        let text = content.as_str().unwrap_or_default();
        let (holder, name) = match self.shape {
            Shape::Chat => (&mut object["message"], "content"),
            Shape::Generate => (&mut object, "response"),
        };
        holder[name] = text.into();
        if thinking.as_str().is_some_and(|thinking| !thinking.is_empty()) {
            holder["thinking"] = thinking.clone();
        }
        object
    }

    /// Adds what the last object has.
    fn finish(&self, reply: &Value, object: &mut Value) {
        object["done"] = true.into();
        object["done_reason"] = match reply["finish_reason"].as_str() {
            Some("length" | "cancelled") => "length",
            _ => "stop",
        }
        .into();
        if let (Some(object), Value::Object(durations)) =
            (object.as_object_mut(), durations(reply, self.started))
        {
            object.extend(durations);
        }
        self.left_out.add_diagnostics(reply, "diagnostics", object);
    }
}

impl EventWriter for LineWriter {
    const MEDIA_TYPE: &'static str = "application/x-ndjson";
    // Lines of JSON have no comments.
    const WAIT: &'static str = "";

    fn chunk(&mut self, chunk: &Generated) -> String {
        let delta = &chunk.value["choices"][0]["delta"];
        let (content, thinking) = (&delta["content"], &delta["reasoning_content"]);
        let is_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
        if !is_text(content) && !is_text(thinking) && chunk.logprobs.is_none() {
            return String::new();
        }
        let mut object = self.object(content, thinking);
        let mut raws = RawValues::new(&id("raw-"));
        add_logprobs(chunk, &mut raws, &mut object);
        line(&raws.text(&object))
    }

    fn end(&mut self, reply: &Value) -> String {
        let mut text = String::new();
        if let Some(calls) = calls(reply) {
            let mut object = self.object(&Value::Null, &Value::Null);
            object["message"]["tool_calls"] = calls;
            text = line(&object.to_string());
        }
        let mut object = self.object(&Value::Null, &Value::Null);
        self.finish(reply, &mut object);
        text + &line(&object.to_string())
    }

    fn error(&mut self, error: &ApiError) -> String {
        line(&error.json(Protocol::Ollama).to_string())
    }

    fn whole(self, generated: &Generated) -> Vec<Bytes> {
        let reply = &generated.value;
        let mut object = self.object(&reply["text"], &reply["reasoning_content"]);
        if let Some(calls) = calls(reply) {
            object["message"]["tool_calls"] = calls;
        }
        self.finish(reply, &mut object);
        let mut raws = RawValues::new(&id("raw-"));
        add_logprobs(generated, &mut raws, &mut object);
        raws.parts(&object)
    }
}

/// An object without text.
pub(super) fn empty(shape: Shape, model: &str) -> Value {
    let mut object =
        json!({ "model": model, "created_at": stamp::text(stamp::since_1970()), "done": false });
    match shape {
        Shape::Chat => object["message"] = json!({ "role": "assistant", "content": "" }),
        Shape::Generate => object["response"] = "".into(),
    }
    object
}

fn add_logprobs(generated: &Generated, raws: &mut RawValues, object: &mut Value) {
    let entries = generated.logprobs.clone().map(RawObject::parse);
    if let Some(entries) = entries.and_then(|logprobs| logprobs.text("content")) {
        object["logprobs"] = raws.add(entries);
    }
}

/// The calls of a reply, whose arguments are objects here.
fn calls(reply: &Value) -> Option<Value> {
    let calls = reply["tool_calls"].as_array().filter(|calls| !calls.is_empty())?;
    let calls = calls.iter().enumerate().map(|(index, call)| {
        let arguments = call["arguments"].as_str().and_then(|text| crate::json::value(text).ok());
        let function = json!({
            "index": index, "name": call["name"], "arguments": arguments.unwrap_or_else(|| json!({})),
        });
        json!({ "id": call["id"], "function": function })
    });
    Some(calls.collect())
}

fn line(json: &str) -> String {
    format!("{json}\n")
}

/// Members of a chunk that say how long a request took, in nanoseconds.
fn durations(reply: &Value, started: Instant) -> Value {
    let nanoseconds = |name: &str| {
        let milliseconds = reply["timings"][name].as_f64().unwrap_or_default();
        (milliseconds * 1e6).max(0.0) as u64
    };
    let total = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (prompt, predicted) = (nanoseconds("prompt_ms"), nanoseconds("predicted_ms"));
    let usage = &reply["usage"];
    json!({
        "total_duration": total,
        "load_duration": total.saturating_sub(prompt.saturating_add(predicted)),
        "prompt_eval_count": usage["prompt_tokens"],
        "prompt_eval_duration": prompt,
        "eval_count": usage["completion_tokens"],
        "eval_duration": predicted,
    })
}
