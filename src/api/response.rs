//! The reply to a chat request.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::logprobs::{LogprobsMember, SampledToken};
use super::reply_shape::ReplyShape;
use crate::diagnostic::Diagnostic;

named_enum! {
    /// Why a reply ended.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum FinishReason {
        /// The model ended its turn, or a stop string matched.
        #[default]
        Stop = "stop",
        /// `max_tokens` was reached, or the context is full.
        Length = "length",
        /// The model called tools.
        ToolCalls = "tool_calls",
        /// The reply was cancelled by `llb_chat_cancel`, by destroying the chat, or by its
        /// time-out.
        Cancelled = "cancelled",
    }
}

/// The token counts of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The tokens of the prompt.
    pub prompt_tokens: usize,
    /// The generated tokens, without the end-of-generation token.
    pub completion_tokens: usize,
    /// The prompt tokens that were already in the KV cache.
    pub cached_tokens: usize,
    /// The generated tokens of reasoning, including its closing tag. None if the output format has
    /// no reasoning.
    pub reasoning_tokens: Option<usize>,
}

/// The member `usage`, in OpenAI's shape. The classic shape has no details.
#[derive(Serialize)]
pub(crate) struct UsageMember {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<PromptTokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Option<CompletionTokens>,
}

#[derive(Serialize)]
struct PromptTokens {
    cached_tokens: usize,
}

#[derive(Serialize)]
struct CompletionTokens {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<usize>,
    // The names are OpenAI's.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_prediction_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected_prediction_tokens: Option<usize>,
}

/// The member `usage_details` of the classic shape.
#[derive(Serialize)]
pub(crate) struct UsageDetails {
    cached_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<usize>,
}

impl Usage {
    /// The members `usage` and `usage_details`, in this shape. `drafted` is [`Timings::drafted`].
    pub(crate) fn members(
        self,
        reply_shape: ReplyShape,
        drafted: Option<(usize, usize)>,
    ) -> (UsageMember, Option<UsageDetails>) {
        let Usage { prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens } = self;
        let total_tokens = prompt_tokens + completion_tokens;
        let (prompt_tokens_details, completion_tokens_details, usage_details) = match reply_shape {
            ReplyShape::Classic => {
                (None, None, Some(UsageDetails { cached_tokens, reasoning_tokens }))
            }
            ReplyShape::Current => (
                Some(PromptTokens { cached_tokens }),
                (reasoning_tokens.is_some() || drafted.is_some()).then(|| CompletionTokens {
                    reasoning_tokens,
                    accepted_prediction_tokens: drafted.map(|(_, accepted)| accepted),
                    rejected_prediction_tokens: drafted.map(|(tokens, accepted)| tokens - accepted),
                }),
                None,
            ),
        };
        let usage = UsageMember {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_tokens_details,
            completion_tokens_details,
        };
        (usage, usage_details)
    }
}

/// The times of prefill and decode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Timings {
    /// The time from the start of prefill to the first token, in milliseconds.
    pub prompt_ms: f64,
    /// The time from the first token to the last, in milliseconds.
    pub predicted_ms: f64,
    /// The numbers of drafted tokens and of accepted ones. None without speculative decoding.
    pub drafted: Option<(usize, usize)>,
    /// The mean number of threads that computed. None for a remote engine.
    pub threads: Option<f64>,
    /// The number of prompt tokens that were read from `cache_dir`. None without that option.
    pub disk_tokens: Option<usize>,
}

/// Times and token rates. A rate is 0 if its time is 0.
#[derive(Serialize)]
struct Rates {
    prompt_ms: f64,
    predicted_ms: f64,
    prompt_per_second: f64,
    predicted_per_second: f64,
    // The names are llama-server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_n_accepted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_tokens: Option<usize>,
}

impl Timings {
    fn rates(self, usage: Usage) -> Rates {
        let rate =
            |tokens: usize, ms: f64| if ms > 0.0 { tokens as f64 * 1000.0 / ms } else { 0.0 };
        // The first token comes from the prefill, so decoding yields one token less.
        let decoded = usage.completion_tokens.saturating_sub(1);
        Rates {
            prompt_ms: self.prompt_ms,
            predicted_ms: self.predicted_ms,
            prompt_per_second: rate(usage.prompt_tokens - usage.cached_tokens, self.prompt_ms),
            predicted_per_second: rate(decoded, self.predicted_ms),
            draft_n: self.drafted.map(|(tokens, _)| tokens),
            draft_n_accepted: self.drafted.map(|(_, accepted)| accepted),
            threads: self.threads.map(|threads| (threads * 100.0).round() / 100.0),
            disk_tokens: self.disk_tokens,
        }
    }
}

/// One tool call of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplyCall {
    /// The id of the call, unique within the conversation.
    pub id: String,
    /// The name of the function.
    pub name: String,
    /// The arguments: the JSON text of an object.
    pub arguments: String,
}

/// A finished reply.
#[derive(Debug, Default)]
pub struct ChatResponse {
    /// The function that opened the chat.
    pub reply_shape: ReplyShape,
    /// The content.
    pub text: String,
    /// The model's reasoning. None if it wrote none.
    pub reasoning: Option<String>,
    /// The content of the message that the reply continues; empty otherwise.
    pub continued_text: String,
    /// The reasoning of that message, and the text that separates it from the reply's reasoning.
    pub continued_reasoning: String,
    /// The tool calls, in order.
    pub tool_calls: Vec<ReplyCall>,
    /// Why the reply ended.
    pub finish_reason: FinishReason,
    /// The stop string of the request that ended the reply.
    pub stop_sequence: Option<String>,
    /// Token counts.
    pub usage: Usage,
    /// The times of prefill and decode.
    pub timings: Timings,
    /// One entry per generated token, in order. None if log probabilities were not requested.
    pub logprobs: Option<Vec<SampledToken>>,
    /// The names of the polyfills that changed the messages.
    pub polyfills_applied: Vec<&'static str>,
    /// The diagnostics: what was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
    /// The messages that were left out because they did not fit the context, as JSON.
    pub truncated: Option<Value>,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
}

/// The reply object of the ABI.
impl Serialize for ChatResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ReplyJson<'a> {
            r#type: &'static str,
            text: &'a str,
            reasoning_content: Option<&'a str>,
            tool_calls: &'a [ReplyCall],
            finish_reason: &'static str,
            stop_sequence: Option<&'a str>,
            message: Message<'a>,
            usage: UsageMember,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage_details: Option<UsageDetails>,
            timings: Rates,
            logprobs: Option<LogprobsMember<'a>>,
            polyfills_applied: &'a [&'static str],
            diagnostics: &'a [Diagnostic],
            #[serde(skip_serializing_if = "Option::is_none")]
            truncated: Option<&'a Value>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            ignored_keys: &'a [String],
        }
        let has_calls = !self.tool_calls.is_empty();
        let (usage, usage_details) = self.usage.members(self.reply_shape, self.timings.drafted);
        let shape = ReplyJson {
            r#type: if has_calls { "tool_call" } else { "assistant_text" },
            text: &self.text,
            reasoning_content: self.reasoning.as_deref(),
            tool_calls: &self.tool_calls,
            finish_reason: self.finish_reason.as_str(),
            stop_sequence: self.stop_sequence.as_deref(),
            message: self.message(),
            usage,
            usage_details,
            timings: self.timings.rates(self.usage),
            logprobs: self.logprobs.as_deref().map(|content| LogprobsMember { content }),
            polyfills_applied: &self.polyfills_applied,
            diagnostics: &self.diagnostics,
            truncated: self.truncated.as_ref(),
            ignored_keys: &self.ignored_keys,
        };
        shape.serialize(serializer)
    }
}

/// The reply as an assistant message for the next request, in OpenAI's shape. It replaces the
/// message that it continues.
#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<MessageCall<'a>>,
}

#[derive(Serialize)]
struct MessageCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl ChatResponse {
    /// The member `message`.
    #[cfg(feature = "engine")]
    pub(crate) fn message_json(&self) -> Value {
        serde_json::json!(self.message())
    }

    fn message(&self) -> Message<'_> {
        let content = joined(&self.continued_text, &self.text);
        let own = self.reasoning.as_deref();
        let reasoning = joined(&self.continued_reasoning, own.unwrap_or_default());
        Message {
            role: "assistant",
            content: Some(content).filter(|text| !text.is_empty() || self.tool_calls.is_empty()),
            reasoning_content: Some(reasoning).filter(|text| own.is_some() || !text.is_empty()),
            tool_calls: self.tool_calls.iter().map(MessageCall::of).collect(),
        }
    }
}

fn joined<'a>(beginning: &str, text: &'a str) -> Cow<'a, str> {
    if beginning.is_empty() { text.into() } else { format!("{beginning}{text}").into() }
}

impl<'a> MessageCall<'a> {
    fn of(call: &'a ReplyCall) -> MessageCall<'a> {
        let ReplyCall { id, name, arguments } = call;
        MessageCall { id, r#type: "function", function: Function { name, arguments } }
    }
}
