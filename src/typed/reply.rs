//! The reply of a chat.

use serde_json::Value;

use crate::api::logprobs::SampledToken;
use crate::api::response::{ChatResponse, FinishReason, Timings, Usage};
use crate::diagnostic::Diagnostic;
use crate::output::ToolCall;

/// A finished reply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// The visible text.
    pub content: String,
    /// The reasoning, if the model wrote some.
    pub reasoning: Option<String>,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why the reply ended.
    pub finish_reason: FinishReason,
    /// The stop text of the request that ended the reply.
    pub stop_sequence: Option<String>,
    /// The numbers of tokens.
    pub usage: Usage,
    /// How long prefill and decode took.
    pub timings: Timings,
    /// The probability of each generated token, if the request has `logprobs`.
    pub logprobs: Option<Vec<SampledToken>>,
    /// The names of the polyfills that changed the messages.
    pub polyfills_applied: Vec<&'static str>,
    /// What was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
    /// The messages that were left out because they did not fit the context, as JSON.
    pub truncated: Option<Value>,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
    message: Value,
}

impl Reply {
    /// The reply as a message in OpenAI's format, for the next request
    /// ([`Request::reply`](super::Request::reply)).
    pub fn message(&self) -> &Value {
        &self.message
    }
}

impl From<ChatResponse> for Reply {
    fn from(response: ChatResponse) -> Reply {
        let message = response.message_json();
        let calls = response.tool_calls.into_iter();
        Reply {
            content: response.text,
            reasoning: response.reasoning,
            tool_calls: calls
                .map(|call| ToolCall { id: call.id, name: call.name, arguments: call.arguments })
                .collect(),
            finish_reason: response.finish_reason,
            stop_sequence: response.stop_sequence,
            usage: response.usage,
            timings: response.timings,
            logprobs: response.logprobs,
            polyfills_applied: response.polyfills_applied,
            diagnostics: response.diagnostics,
            truncated: response.truncated,
            ignored_keys: response.ignored_keys,
            message,
        }
    }
}
