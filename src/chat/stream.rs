//! Turns the reply parser's deltas into calls of a streamed request's callback.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::PieceSink;
use crate::api::logprobs::{SampledToken, logprobs_json};
use crate::api::response::{ChatResponse, UsageDetails, UsageMember};
use crate::api::{StreamFormat, new_completion_id};
use crate::output::Delta;

/// Turns deltas into callback calls.
pub(crate) struct Stream<'a> {
    sink: Option<PieceSink<'a>>,
    format: StreamFormat,
    id: String,
    created: u64,
    has_begun: bool,
    /// The log probabilities of tokens whose text has not been sent in a delta.
    logprobs: Vec<SampledToken>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(format: StreamFormat, sink: Option<PieceSink<'a>>) -> Self {
        let created =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Stream {
            sink,
            format,
            id: new_completion_id(),
            created,
            has_begun: false,
            logprobs: Vec::new(),
        }
    }

    /// Queues the log probabilities of the next piece. They are sent with the last delta of that
    /// piece, or with a later one if the parser holds the piece back.
    pub(crate) fn queue_logprobs(&mut self, logprobs: &[SampledToken]) {
        if self.format == StreamFormat::Chunks && self.sink.is_some() {
            self.logprobs.extend_from_slice(logprobs);
        }
    }

    /// Sends the deltas of a piece.
    pub(crate) fn send(&mut self, deltas: Vec<Delta>) {
        let last = deltas.len().saturating_sub(1);
        for (index, delta) in deltas.into_iter().enumerate() {
            match (self.format, delta) {
                (StreamFormat::Text, Delta::Content(text)) => self.call(&text),
                (StreamFormat::Text, _) => {}
                (StreamFormat::Chunks, delta) => {
                    let logprobs =
                        if index == last { std::mem::take(&mut self.logprobs) } else { Vec::new() };
                    let chunk = self.chunk(&delta_json(delta), &logprobs, Value::Null, None);
                    self.call(&chunk.to_string());
                }
            }
        }
    }

    /// Sends the last chunks of a stream of chunks.
    pub(crate) fn finish(&mut self, response: &ChatResponse, include_usage: bool) {
        if self.format == StreamFormat::Chunks {
            let usage = include_usage.then(|| response.usage.members(response.reply_shape));
            let logprobs = std::mem::take(&mut self.logprobs);
            let reason = response.finish_reason.as_str();
            let mut chunk = self.chunk(&json!({}), &logprobs, reason.into(), usage);
            if !response.diagnostics.is_empty() {
                chunk["diagnostics"] = json!(response.diagnostics);
            }
            self.call(&chunk.to_string());
        }
    }

    /// The next chunk of the stream.
    fn chunk(
        &mut self,
        delta: &Value,
        logprobs: &[SampledToken],
        finish_reason: Value,
        usage: Option<(UsageMember, Option<UsageDetails>)>,
    ) -> Value {
        let mut delta = delta.clone();
        if !self.has_begun {
            self.has_begun = true;
            delta["role"] = "assistant".into();
        }
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        });
        if !logprobs.is_empty() {
            chunk["choices"][0]["logprobs"] = logprobs_json(logprobs);
        }
        if let Some((usage, details)) = usage {
            chunk["usage"] = json!(usage);
            if let Some(details) = details {
                chunk["usage_details"] = json!(details);
            }
        }
        chunk
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
