//! What goes back for a chat request.

use serde_json::{Value, json};

use super::logprobs::{SampledToken, logprobs_json};
use super::object;

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn, or a stop string was met.
    Stop,
    /// `max_tokens` or the context was used up.
    Length,
    /// The model called tools.
    ToolCalls,
    /// By `llb_chat_cancel`, a destroy or a time-out.
    Cancelled,
}

impl FinishReason {
    /// OpenAI's spelling, and `cancelled`.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// Token counts of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated, the end-of-generation token left out.
    pub completion_tokens: usize,
    /// Tokens of the prompt that were still in the KV cache.
    pub cached_tokens: usize,
    /// Tokens generated inside reasoning, its closing tag included; None where the model's format has none.
    pub reasoning_tokens: Option<usize>,
}

impl Usage {
    /// OpenAI's shape.
    pub fn to_json(self) -> Value {
        let mut usage = json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        });
        if let Some(tokens) = self.reasoning_tokens {
            usage["completion_tokens_details"] = json!({ "reasoning_tokens": tokens });
        }
        usage
    }
}

/// How long prefill and decode took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Milliseconds from the first prefill to the first token.
    pub prompt_ms: f64,
    /// Milliseconds from the first token to the last.
    pub predicted_ms: f64,
    /// Tokens that were guessed, and those of them that were right; None without speculative decoding.
    pub drafted: Option<(usize, usize)>,
}

impl Timings {
    /// With the rates that follow from the counts; a rate of nothing is 0.
    pub fn to_json(self, usage: Usage) -> Value {
        let rate = |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1000.0 / ms } else { 0.0 };
        // The first token comes out of the prefill, so decoding made one fewer.
        let decoded = usage.completion_tokens.saturating_sub(1);
        let mut timings = json!({
            "prompt_ms": self.prompt_ms,
            "predicted_ms": self.predicted_ms,
            "prompt_per_second": rate(usage.prompt_tokens - usage.cached_tokens, self.prompt_ms),
            "predicted_per_second": rate(decoded, self.predicted_ms),
        });
        // llama-server's names.
        if let Some((tokens, accepted)) = self.drafted {
            timings["draft_n"] = json!(tokens);
            timings["draft_n_accepted"] = json!(accepted);
        }
        timings
    }
}

/// One tool call of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Unique within the conversation.
    pub id: String,
    /// The function.
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

/// A finished reply.
#[derive(Debug)]
pub struct ChatResponse {
    /// Visible content.
    pub text: String,
    /// The model's reasoning, where there was any.
    pub reasoning: Option<String>,
    /// Calls in order.
    pub tool_calls: Vec<Call>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Times.
    pub timings: Timings,
    /// One for each token that was generated, in order; None when the request asked for none.
    pub logprobs: Option<Vec<SampledToken>>,
    /// Names of the polyfills that changed the messages.
    pub polyfills_applied: Vec<&'static str>,
    /// `{code, message}` objects: what was relaxed, repaired or guessed.
    pub diagnostics: Vec<Value>,
    /// What was left out of the prompt because it would not fit.
    pub truncated: Option<Value>,
    /// Members of the request that nobody reads.
    pub ignored_keys: Vec<String>,
}

impl ChatResponse {
    /// The reply object of the ABI.
    pub fn to_json(&self) -> Value {
        let calls = |shape: &dyn Fn(&Call) -> Value| self.tool_calls.iter().map(shape).collect::<Vec<Value>>();
        let has_calls = !self.tool_calls.is_empty();
        let mut message = json!({ "role": "assistant", "content": self.text });
        if has_calls && self.text.is_empty() {
            message["content"] = Value::Null;
        }
        if let Some(reasoning) = &self.reasoning {
            message["reasoning_content"] = json!(reasoning);
        }
        if has_calls {
            message["tool_calls"] = Value::Array(calls(&openai_call));
        }
        let own_call = |call: &Call| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
        let mut reply = object([
            ("type", if has_calls { "tool_call" } else { "assistant_text" }.into()),
            ("text", self.text.as_str().into()),
            ("reasoning_content", self.reasoning.as_deref().into()),
            ("tool_calls", calls(&own_call).into()),
            ("finish_reason", self.finish_reason.as_str().into()),
            ("message", message),
            ("usage", self.usage.to_json()),
            ("timings", self.timings.to_json(self.usage)),
            ("logprobs", self.logprobs.as_deref().map(logprobs_json).into()),
            ("polyfills_applied", self.polyfills_applied.as_slice().into()),
            ("diagnostics", self.diagnostics.as_slice().into()),
        ]);
        if let Some(truncated) = &self.truncated {
            reply["truncated"] = truncated.clone();
        }
        if !self.ignored_keys.is_empty() {
            reply["ignored_keys"] = json!(self.ignored_keys);
        }
        reply
    }
}

fn openai_call(call: &Call) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}
