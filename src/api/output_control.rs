//! The members of a chat request that control its reply: what the reply may contain, how long it
//! may be, and how it is passed on.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fields, expected};
use super::lora::LoraSwitch;
use super::member::members;
use super::reply_shape::ReplyShape;
use crate::error::Result;

named_enum! {
    /// The format of what a streamed request passes to its callback.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StreamFormat {
        /// Text: pieces of the visible content.
        Text = "text",
        /// `chat.completion.chunk` objects as JSON.
        Chunks = "chunks",
    }
}

named_enum! {
    /// The text in which stop strings are searched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StopScope {
        /// The content, without reasoning, markup and arguments of calls.
        Answer = "answer",
        /// The text as the model writes it.
        All = "all",
    }
}

named_enum! {
    /// Whether the tokens of a reply are guessed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Guessing {
        /// As the option `speculative` of the chat says.
        Auto = "auto",
        /// No token is guessed.
        Off = "off",
    }
}

members! {
    /// The control of a reply.
    #[derive(Debug, Clone)]
    pub struct OutputControl {
        /// The required format of the text.
        response_format: Option<ResponseFormat> = None
            => optional(read_response_format) writes |_| Value::Null,
        /// Whether lists and strings of the schema of `response_format` that have no bound get one,
        /// and the reply a limit.
        bound_schema: bool = false => boolean(),
        /// A Lark grammar that the text must match.
        grammar: Option<String> = None => text(),
        /// Whether one reply may contain several calls.
        parallel_tool_calls: bool = true => boolean(),
        /// Whether text that is plainly calls, but lacks the tags of the model's format, is calls.
        untagged_calls: bool = true => boolean(),
        /// The maximum number of tokens to generate, at least 1; None is what fits the context.
        max_tokens("max_tokens", "max_completion_tokens"): Option<usize> = None
            => custom(|fields| Ok(read_max_tokens(fields)?.map(Some))),
        /// Strings that end the reply. They are not part of it.
        stop: Vec<String> = Vec::new() => custom(|fields| read_stop(fields).map(Some)),
        /// Where stop strings are searched: in the answer, or in all text of the model, reasoning
        /// and markup included.
        stop_scope: StopScope = StopScope::Answer => one_of(StopScope::NAMES),
        /// The maximum number of tokens in each block of reasoning; None is unlimited.
        reasoning_budget("reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"):
            Option<usize> = None
            => custom(|fields| read_reasoning_budget(fields).map(Some)) writes |_| (-1).into(),
        /// Text that is added when the budget or the caller ends the reasoning; may be empty.
        reasoning_budget_message: String = String::new()
            => custom(|fields| Ok(fields.string("reasoning_budget_message")?.map(str::to_owned))),
        /// The number of first tokens that a context shift keeps. None keeps the whole prompt.
        n_keep: Option<usize> = Some(0) => custom(read_n_keep),
        /// How many of the most likely tokens to report with each sampled one. None reports no log
        /// probabilities.
        logprobs("logprobs", "top_logprobs"): Option<usize> = None
            => custom(|fields| read_logprobs(fields).map(Some)) writes |top| top.is_some().into(),
        /// The adapters of this request; None uses those of the chat.
        lora: Option<LoraSwitch> = None => optional(LoraSwitch::read) writes |_| Value::Null,
        /// Whether tokens are guessed, so that one decode may yield several: as the chat's option
        /// says, or not at all.
        speculative: Guessing = Guessing::Auto => one_of(Guessing::NAMES),
        /// What the callback receives.
        stream_format: StreamFormat = StreamFormat::Text => one_of(StreamFormat::NAMES),
        /// Whether the last chunk of a stream contains the usage.
        include_usage("stream_options"): bool = false
            => custom(read_include_usage) writes |_| Value::Null,
        /// How long the request may take. After that it ends as `cancelled`.
        timeout("timeout_ms"): Option<Duration> = None => optional(read_timeout),
    }
}

/// The member `response_format`.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponseFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that matches a schema.
    JsonSchema {
        /// The schema, an object or a boolean.
        schema: Value,
        /// Whether the request fails if the schema cannot be enforced completely.
        strict: bool,
    },
}

/// Reads `response_format`; None is text.
pub(crate) fn read_response_format(fields: &mut Fields) -> Result<Option<ResponseFormat>> {
    let Some(value) = fields.get("response_format") else { return Ok(None) };
    let mut format = Fields::new("response_format", value)?;
    let kinds = [("text", 0), ("json_object", 1), ("json_schema", 2)];
    match format.one_of("type", &kinds)?.ok_or_else(|| format.invalid("type", "missing"))? {
        0 => Ok(None),
        1 => Ok(Some(ResponseFormat::JsonObject)),
        _ => {
            let mut json_schema = format.inner("json_schema")?;
            let strict = json_schema.boolean("strict")?.unwrap_or(false);
            match json_schema.required("schema")? {
                schema @ (Value::Object(_) | Value::Bool(_)) => {
                    Ok(Some(ResponseFormat::JsonSchema { schema: schema.clone(), strict }))
                }
                other => Err(json_schema.invalid("schema", expected("a JSON Schema", other))),
            }
        }
    }
}

/// Reads `reasoning_budget` or one of its two aliases; -1 means no limit.
fn read_reasoning_budget(fields: &mut Fields) -> Result<Option<usize>> {
    let mut budget = None;
    for name in ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"] {
        let Some(tokens) = fields.integer(name, -1..=i64::from(i32::MAX))? else { continue };
        match budget {
            Some((first, other)) if other != tokens => {
                return Err(fields.invalid(
                    name,
                    format!(
                        "is {tokens}, but its alias `{first}` is {other}; leave one of them out"
                    ),
                ));
            }
            _ => budget = Some((name, tokens)),
        }
    }
    Ok(budget.and_then(|(_, tokens)| usize::try_from(tokens).ok()))
}

/// Reads `stop`: a string or an array of strings. An empty string stops nothing, so it is left out.
fn read_stop(fields: &mut Fields) -> Result<Vec<String>> {
    const MAX_STOP_STRINGS: usize = 64;
    let mut stops = match fields.get("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(stop)) => vec![stop.clone()],
        Some(Value::Array(stops)) => fields.strings("stop", stops)?,
        Some(other) => {
            return Err(fields.invalid("stop", expected("a string or an array of strings", other)));
        }
    };
    stops.retain(|stop| !stop.is_empty());
    if stops.len() > MAX_STOP_STRINGS {
        return Err(fields.invalid(
            "stop",
            format!("at most {MAX_STOP_STRINGS} stop strings, got {}", stops.len()),
        ));
    }
    Ok(stops)
}

/// Reads `max_completion_tokens` or `max_tokens`. In chats of `llb_chat_create`, a number below 1
/// means the default.
pub(super) fn read_max_tokens(fields: &mut Fields) -> Result<Option<usize>> {
    let fewest = match fields.reply_shape {
        ReplyShape::Classic => i64::MIN,
        ReplyShape::Current => 1,
    };
    let range = fewest..=i64::from(i32::MAX);
    let preferred = fields.integer("max_completion_tokens", range.clone())?;
    let other = fields.integer("max_tokens", range)?;
    let tokens = [preferred, other].into_iter().flatten().find(|tokens| *tokens >= 1);
    Ok(tokens.map(|tokens| tokens as usize))
}

/// Reads `n_keep`. -1 means the whole prompt, which is None.
pub(super) fn read_n_keep(fields: &mut Fields) -> Result<Option<Option<usize>>> {
    let n_keep = fields.integer("n_keep", -1..=i64::from(i32::MAX))?;
    Ok(n_keep.map(|n_keep| usize::try_from(n_keep).ok()))
}

/// Reads `include_usage` of `stream_options`.
fn read_include_usage(fields: &mut Fields) -> Result<Option<bool>> {
    let Some(options) = fields.get("stream_options") else { return Ok(None) };
    Fields::new("stream_options", options)?.boolean("include_usage")
}

/// Reads `timeout_ms`.
pub(super) fn read_timeout(fields: &mut Fields) -> Result<Option<Duration>> {
    let ms = fields.integer("timeout_ms", 1..=i64::from(i32::MAX))?;
    Ok(ms.map(|ms| Duration::from_millis(ms as u64)))
}

/// Reads `logprobs` and `top_logprobs`.
fn read_logprobs(fields: &mut Fields) -> Result<Option<usize>> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.integer("top_logprobs", 0..=20)? {
        Some(_) if !wanted => Err(fields.invalid("top_logprobs", "requires `logprobs`: true")),
        n_top => Ok(wanted.then_some(n_top.unwrap_or(0) as usize)),
    }
}
