//! Passes the reply parser's deltas to the caller: as text, as chunks of JSON, or as they are.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::logprobs::{LogprobsMember, SampledToken};
use crate::api::response::{ChatResponse, UsageDetails, UsageMember};
use crate::api::{StreamFormat, new_completion_id};
use crate::diagnostic::Diagnostic;
use crate::output::Delta;

/// Receives a streamed reply, on the thread of the call.
pub type PieceSink<'a> = &'a mut dyn FnMut(&str);

/// Receives a streamed reply as deltas, on the thread of the call.
pub(crate) type DeltaSink<'a> = &'a mut dyn FnMut(Delta);

/// A chunk, in OpenAI's shape.
#[derive(Serialize)]
struct ChunkJson<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    choices: [ChunkChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageMember>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage_details: Option<UsageDetails>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    polyfills_applied: &'a [&'static str],
    #[serde(skip_serializing_if = "<[Diagnostic]>::is_empty")]
    diagnostics: &'a [Diagnostic],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    ignored_keys: &'a [String],
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: Value,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<LogprobsMember<'a>>,
}

/// Where a streamed reply goes, on the thread of the call.
pub(crate) enum StreamSink<'a> {
    /// Text, or chunks, by the request's `stream_format`.
    Pieces(PieceSink<'a>),
    /// The deltas themselves.
    Deltas(DeltaSink<'a>),
}

/// Turns deltas into callback calls.
pub(crate) struct Stream<'a> {
    sink: Option<StreamSink<'a>>,
    format: StreamFormat,
    id: String,
    created: u64,
    has_begun: bool,
    /// The log probabilities of tokens whose text has not been sent in a delta.
    logprobs: Vec<SampledToken>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(format: StreamFormat, sink: Option<StreamSink<'a>>) -> Self {
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
        if let Some(StreamSink::Deltas(sink)) = &mut self.sink {
            return deltas.into_iter().for_each(sink);
        }
        let last = deltas.len().saturating_sub(1);
        for (index, delta) in deltas.into_iter().enumerate() {
            match (self.format, delta) {
                (StreamFormat::Text, Delta::Content(text)) => self.call(&text),
                (StreamFormat::Text, _) => {}
                (StreamFormat::Chunks, delta) => {
                    let logprobs =
                        if index == last { std::mem::take(&mut self.logprobs) } else { Vec::new() };
                    self.send_chunk(delta_json(delta), &logprobs, None);
                }
            }
        }
    }

    /// Sends the last chunks of a stream of chunks.
    pub(crate) fn finish(&mut self, response: &ChatResponse, include_usage: bool) {
        if self.format == StreamFormat::Chunks {
            let logprobs = std::mem::take(&mut self.logprobs);
            self.send_chunk(json!({}), &logprobs, Some((response, include_usage)));
        }
    }

    /// Sends the next chunk. `finished` is for the last one: the reply, and whether the chunk has
    /// its usage.
    fn send_chunk(
        &mut self,
        mut delta: Value,
        logprobs: &[SampledToken],
        finished: Option<(&ChatResponse, bool)>,
    ) {
        if !self.has_begun {
            self.has_begun = true;
            delta["role"] = "assistant".into();
        }
        let usage = finished.filter(|(_, include_usage)| *include_usage).map(|(response, _)| {
            response.usage.members(response.reply_shape, response.timings.drafted)
        });
        let (usage, usage_details) = usage.map_or((None, None), |(usage, it)| (Some(usage), it));
        let chunk = ChunkJson {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            choices: [ChunkChoice {
                index: 0,
                delta,
                finish_reason: finished.map(|(response, _)| response.finish_reason.as_str()),
                logprobs: (!logprobs.is_empty()).then_some(LogprobsMember { content: logprobs }),
            }],
            usage,
            usage_details,
            polyfills_applied: finished.map_or(&[], |(response, _)| &response.polyfills_applied),
            diagnostics: finished.map_or(&[], |(response, _)| &response.diagnostics),
            ignored_keys: finished.map_or(&[], |(response, _)| &response.ignored_keys),
        };
        let text = serde_json::to_string(&chunk).expect("members of chunks have names");
        self.call(&text);
    }

    fn call(&mut self, text: &str) {
        if let Some(StreamSink::Pieces(sink)) = &mut self.sink
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
