//! What the callback of a streamed request gets, from the recogniser's deltas.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::PieceSink;
use crate::api::response::ChatResponse;
use crate::api::{StreamFormat, new_completion_id};
use crate::output::Delta;

/// Turns deltas into callback calls.
pub(crate) struct Stream<'a> {
    sink: Option<PieceSink<'a>>,
    format: StreamFormat,
    id: String,
    created: u64,
    began: bool,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(format: StreamFormat, sink: Option<PieceSink<'a>>) -> Self {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Stream { sink, format, id: new_completion_id(), created, began: false }
    }

    /// Sends what the recogniser made of a piece.
    pub(crate) fn send(&mut self, deltas: Vec<Delta>) {
        for delta in deltas {
            match (self.format, delta) {
                (StreamFormat::Text, Delta::Content(text)) => self.call(&text),
                (StreamFormat::Text, _) => {}
                (StreamFormat::Chunks, delta) => self.chunk(&delta_json(delta), Value::Null, None),
            }
        }
    }

    /// Ends a stream of chunks.
    pub(crate) fn finish(&mut self, response: &ChatResponse, include_usage: bool) {
        if self.format == StreamFormat::Chunks {
            let usage = include_usage.then(|| response.usage.to_json());
            self.chunk(&json!({}), response.finish_reason.as_str().into(), usage);
        }
    }

    fn chunk(&mut self, delta: &Value, finish_reason: Value, usage: Option<Value>) {
        let mut delta = delta.clone();
        if !self.began {
            self.began = true;
            delta["role"] = "assistant".into();
        }
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        self.call(&chunk.to_string());
    }

    fn call(&mut self, text: &str) {
        if let Some(sink) = &mut self.sink
            && !text.is_empty()
        {
            sink(text);
        }
    }
}

fn delta_json(delta: Delta) -> Value {
    match delta {
        Delta::Content(text) => json!({ "content": text }),
        Delta::Reasoning(text) => json!({ "reasoning_content": text }),
        Delta::ToolCall { index, id, name } => {
            let function = json!({ "name": name, "arguments": "" });
            json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] })
        }
        Delta::Arguments { index, fragment } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": fragment } }] })
        }
    }
}
