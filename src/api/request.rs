//! A chat request: the argument of `llb_chat_infer`, `llb_chat_infer_stream` and
//! `llb_chat_explain`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::defaults::{RequestDefaults, read_n_keep};
use super::fields::Fields;
use super::lora::LoraSwitch;
use super::message::check_each_message;
use super::parsed_lists::{ItemTexts, ParsedLists, RequestMembers};
use super::polyfills::Polyfills;
use super::prompt_ending::read_ending;
use super::reply_shape::ReplyShape;
use super::response_format::{ResponseFormat, read_response_format};
use super::sampling::{Sampling, SamplingSource, read_stop};
use super::template_kwargs::{check_template_kwargs, take_template_kwargs};
use super::thinking::{Thinking, read_budget_message, read_reasoning_budget, read_thinking};
use super::tool::{ToolChoice, check_each_tool, read_tool_choice};
use super::{check_messages, check_tools, parse};
use crate::error::Result;

/// The members that are read, besides the sampling parameters.
const MEMBERS: [&str; 31] = [
    "add_generation_prompt",
    "cache_prompt",
    "chat_template_kwargs",
    "continue_final_message",
    "enable_thinking",
    "grammar",
    "logprobs",
    "lora",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "n_keep",
    "now",
    "parallel_tool_calls",
    "parse_special_in_messages",
    "polyfills",
    "preserve_reasoning",
    "reasoning_budget",
    "reasoning_budget_message",
    "reasoning_budget_tokens",
    "reasoning_effort",
    "response_format",
    "skills",
    "stop",
    "stream_format",
    "stream_options",
    "thinking_budget_tokens",
    "timeout_ms",
    "tool_choice",
    "tools",
    "top_logprobs",
];

/// Whether a member is read. All others are listed in `ignored_keys` and their values are skipped.
fn is_member(name: &str) -> bool {
    MEMBERS.contains(&name) || Sampling::has_parameter(name)
}

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

/// A checked request with its defaults filled in.
#[derive(Debug)]
pub struct ChatRequest {
    /// The checked messages; at least one.
    pub messages: Vec<Value>,
    /// OpenAI tool objects.
    pub tools: Arc<Vec<Value>>,
    /// Skills that the template may list. Each is an object with `name`, `description` and other
    /// members that the template reads.
    pub skills: Vec<Value>,
    /// Which tools may or must be called.
    pub tool_choice: ToolChoice,
    /// Whether one reply may contain several calls.
    pub parallel_tool_calls: bool,
    /// The required format of the text.
    pub response_format: Option<ResponseFormat>,
    /// A Lark grammar that the text must match.
    pub grammar: Option<String>,
    /// The maximum number of tokens to generate, at least 1.
    pub max_tokens: usize,
    /// The sampler's parameters.
    pub sampling: Sampling,
    /// Strings that end the reply. They are not part of it.
    pub stop: Vec<String>,
    /// Additional variables of the chat template.
    pub template_kwargs: Map<String, Value>,
    /// The settings of reasoning.
    pub thinking: Thinking,
    /// The member of the last message that the reply continues.
    pub continued: Option<String>,
    /// The maximum number of tokens in each block of reasoning; None is unlimited.
    pub reasoning_budget: Option<usize>,
    /// Text that is added when the budget or the caller ends the reasoning; may be empty.
    pub reasoning_budget_message: String,
    /// The number of first tokens that a context shift keeps. None keeps the whole prompt.
    pub n_keep: Option<usize>,
    /// How many of the most likely tokens to report with each sampled one. None reports no log
    /// probabilities.
    pub logprobs: Option<usize>,
    /// The adapters of this request; None uses those of the chat.
    pub lora: Option<LoraSwitch>,
    /// Whether text of messages and tools may spell special tokens.
    pub parse_special_in_messages: bool,
    /// The time that the template sees, as `2026-01-31T09:30:00`. None is the current time.
    pub now: Option<String>,
    /// Whether the prompt ends with the generation prompt.
    pub add_generation_prompt: bool,
    /// Whether to reuse a cached prefix of the prompt.
    pub cache_prompt: bool,
    /// What the callback receives.
    pub stream_format: StreamFormat,
    /// Whether the last chunk of a stream contains the usage.
    pub include_usage: bool,
    /// How long the request may take. After that it ends as `cancelled`.
    pub timeout: Option<Duration>,
    /// The polyfills of this request; None uses those of the chat.
    pub polyfills: Option<Polyfills>,
    /// The unknown members, by path.
    pub ignored_keys: Vec<String>,
    /// The JSON text of the messages and of the tools.
    texts: [ItemTexts; 2],
}

impl ChatRequest {
    /// Parses a request. `last` has the messages and tools of the previous request, and parsed
    /// elements are reused from it. `defaults` are those of the chat. Errors name the JSON path of
    /// the member.
    pub fn parse(
        text: &str,
        last: ParsedLists,
        reply_shape: ReplyShape,
        defaults: &RequestDefaults,
    ) -> Result<ChatRequest> {
        match last.split(text, is_member) {
            Some(RequestMembers { messages, tools, others }) if !messages.items.is_empty() => {
                check_each_message(&messages.items, messages.reused)?;
                check_each_tool(&tools.items)?;
                let mut others = Value::Object(others);
                let read = ChatRequest::read_members(&others, &tools.items, reply_shape, defaults)?;
                let texts = [messages.texts, tools.texts];
                Ok(ChatRequest {
                    messages: messages.items,
                    tools: Arc::new(tools.items),
                    template_kwargs: take_template_kwargs(&mut others),
                    texts,
                    ..read
                })
            }
            // Parsing the request as a whole reports its errors.
            _ => ChatRequest::read_at(parse(text, "request_json")?, reply_shape, defaults),
        }
    }

    /// Reads a request to a chat that `llb_chat_create_with` opened without `defaults`. Errors name
    /// the JSON path of the member.
    pub fn read(request: Value) -> Result<ChatRequest> {
        ChatRequest::read_at(request, ReplyShape::Current, &RequestDefaults::default())
    }

    /// Messages and tools are moved and not copied, because they are most of the request.
    fn read_at(
        mut request: Value,
        reply_shape: ReplyShape,
        defaults: &RequestDefaults,
    ) -> Result<ChatRequest> {
        let fields = &mut Fields::new("", &request)?;
        check_messages(fields)?;
        let tools = check_tools(fields)?;
        let read = ChatRequest::read_members(&request, tools, reply_shape, defaults)?;
        // Both members are arrays if they are present. That has been checked.
        let mut list = |name: &str| match request.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let (messages, tools) = (list("messages"), Arc::new(list("tools")));
        let template_kwargs = take_template_kwargs(&mut request);
        Ok(ChatRequest { messages, tools, template_kwargs, ..read })
    }

    /// Takes the messages and tools out, for the next request of the chat.
    pub fn into_parsed_lists(self) -> ParsedLists {
        let [messages, tools] = self.texts;
        // At this point no other reference to the tools exists.
        ParsedLists::of(
            (messages, self.messages),
            (tools, Arc::try_unwrap(self.tools).unwrap_or_default()),
        )
    }

    /// The JSON of the tools, concatenated; None if the request was not parsed from text.
    pub fn tools_text(&self) -> Option<&str> {
        let [_, tools] = &self.texts;
        tools.all(self.tools.len())
    }

    /// Reads and checks all members. `messages`, `tools` and `template_kwargs` stay empty: they may
    /// be large, so the caller moves them.
    fn read_members(
        request: &Value,
        tools: &[Value],
        reply_shape: ReplyShape,
        defaults: &RequestDefaults,
    ) -> Result<ChatRequest> {
        let fields = &mut Fields::new("", request)?;
        let (_, _) = (fields.get("messages"), fields.get("tools"));
        let tool_choice = read_tool_choice(fields, tools)?;
        let (add_generation_prompt, continued) = read_ending(fields)?;
        let response_format = read_response_format(fields)?;
        let grammar = fields.string("grammar")?.map(str::to_owned);
        if grammar.is_some() && response_format.is_some() {
            return Err(fields.invalid("grammar", "cannot be used together with `response_format`"));
        }
        if tool_choice.forces_call() && grammar.is_some() {
            return Err(fields.invalid(
                "tool_choice",
                "cannot be used together with `grammar`: a forced call has no text",
            ));
        }
        let include_usage = match fields.get("stream_options") {
            Some(options) => {
                Fields::new("stream_options", options)?.boolean("include_usage")?.unwrap_or(false)
            }
            None => false,
        };
        let read = ChatRequest {
            skills: fields.objects("skills")?.cloned().unwrap_or_default(),
            parallel_tool_calls: fields.boolean("parallel_tool_calls")?.unwrap_or(true),
            max_tokens: read_max_tokens(fields, reply_shape, defaults.max_tokens)?,
            sampling: Sampling::read(
                fields,
                reply_shape,
                SamplingSource::Request,
                &defaults.sampling,
            )?,
            stop: read_stop(fields)?,
            template_kwargs: check_template_kwargs(fields)?,
            now: fields.string("now")?.map(str::to_owned),
            add_generation_prompt,
            continued: continued.map(str::to_owned),
            thinking: read_thinking(fields)?,
            reasoning_budget: read_reasoning_budget(fields)?,
            reasoning_budget_message: read_budget_message(fields)?,
            n_keep: read_n_keep(fields, defaults.n_keep)?,
            logprobs: read_logprobs(fields)?,
            lora: LoraSwitch::read(fields)?,
            parse_special_in_messages: fields
                .boolean("parse_special_in_messages")?
                .unwrap_or(false),
            cache_prompt: fields.boolean("cache_prompt")?.unwrap_or(true),
            stream_format: fields
                .one_of("stream_format", StreamFormat::NAMES)?
                .unwrap_or(StreamFormat::Text),
            include_usage,
            timeout: fields
                .integer("timeout_ms", 1..=i64::from(i32::MAX))?
                .map(|ms| Duration::from_millis(ms as u64)),
            polyfills: Polyfills::read(fields)?,
            // Members of OpenAI's API that have no meaning here are accepted and reported as
            // ignored.
            ignored_keys: fields.ignored(),
            messages: Vec::new(),
            tools: Arc::default(),
            tool_choice,
            response_format,
            grammar,
            texts: Default::default(),
        };
        debug_assert!(fields.read_only(is_member), "a member is not in MEMBERS");
        Ok(read)
    }
}

/// Reads `max_completion_tokens` or `max_tokens`. In chats of `llb_chat_create`, a number below 1
/// means the default.
pub(crate) fn read_max_tokens(
    fields: &mut Fields,
    reply_shape: ReplyShape,
    default: usize,
) -> Result<usize> {
    let fewest = match reply_shape {
        ReplyShape::Classic => i64::MIN,
        ReplyShape::Current => 1,
    };
    let range = fewest..=i64::from(i32::MAX);
    let preferred = fields.integer("max_completion_tokens", range.clone())?;
    let other = fields.integer("max_tokens", range)?;
    let tokens = [preferred, other].into_iter().flatten().find(|tokens| *tokens >= 1);
    Ok(tokens.map_or(default, |tokens| tokens as usize))
}

/// Reads `logprobs` and `top_logprobs`.
fn read_logprobs(fields: &mut Fields) -> Result<Option<usize>> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.integer("top_logprobs", 0..=20)? {
        Some(_) if !wanted => Err(fields.invalid("top_logprobs", "requires `logprobs`: true")),
        n_top => Ok(wanted.then_some(n_top.unwrap_or(0) as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(text: &str) -> Result<ChatRequest> {
        let defaults = RequestDefaults::default();
        ChatRequest::parse(text, ParsedLists::default(), ReplyShape::Current, &defaults)
    }

    fn with(members: Value) -> Value {
        let mut request = json!({"messages": [{"role": "user", "content": "hi"}]});
        request
            .as_object_mut()
            .expect("an object")
            .extend(members.as_object().expect("an object").clone());
        request
    }

    #[test]
    fn defaults_are_documented_ones() {
        let request = ChatRequest::read(with(json!({}))).expect("valid");
        assert_eq!(request.max_tokens, 256);
        assert_eq!(request.tool_choice, ToolChoice::Auto);
        let s = &request.sampling;
        assert_eq!(
            (s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, s.seed),
            (0.7, 40, 0.95, 0.05, 1.0, None)
        );
        assert!(
            request.add_generation_prompt && request.cache_prompt && request.parallel_tool_calls
        );
        assert!(request.ignored_keys.is_empty());
    }

    #[track_caller]
    fn refused(members: Value, message: &str) {
        let error = ChatRequest::read(with(members)).expect_err("refused");
        assert_eq!(error.message(), message);
    }

    #[test]
    fn errors_name_the_member() {
        refused(json!({"max_tokens": 0}), "max_tokens: must be from 1 to 2147483647, got 0");
        refused(json!({"temperature": "hot"}), r#"temperature: expected a number, got "hot""#);
        refused(json!({"stop": ["a", 1]}), "stop[1]: expected a string, got 1");
        refused(json!({"logprobs": 1}), "logprobs: expected true or false, got 1");
        refused(json!({"top_logprobs": 0}), "top_logprobs: requires `logprobs`: true");
        refused(
            json!({"logprobs": true, "top_logprobs": 21}),
            "top_logprobs: must be from 0 to 20, got 21",
        );
        refused(
            json!({"reasoning_budget": -2}),
            "reasoning_budget: must be from -1 to 2147483647, got -2",
        );
        refused(json!({"n_keep": -2}), "n_keep: must be from -1 to 2147483647, got -2");
        refused(json!({"n_keep": "all"}), r#"n_keep: expected a whole number, got "all""#);
        refused(
            json!({"reasoning_budget_message": 1}),
            "reasoning_budget_message: expected a string, got 1",
        );
        refused(
            json!({"reasoning_budget": 1, "thinking_budget_tokens": 2}),
            "thinking_budget_tokens: is 2, but its alias `reasoning_budget` is 1; leave one of them out",
        );
        refused(json!({"logit_bias": {"x": 1}}), "logit_bias.x: expected a token id as key");
        refused(
            json!({"response_format": {"type": "xml"}}),
            r#"response_format.type: unknown value "xml"; expected one of "text", "json_object", "json_schema""#,
        );
        refused(
            json!({"chat_template_kwargs": {"tools": []}}),
            "chat_template_kwargs.tools: set `tools` of the request instead",
        );
        refused(json!({"stream_format": 1}), "stream_format: expected a string, got 1");
        refused(json!({"timeout_ms": -5}), "timeout_ms: must be from 1 to 2147483647, got -5");
    }

    #[test]
    fn budgets_and_log_probabilities_are_read() {
        let read = |members| ChatRequest::read(with(members)).expect("valid");
        assert_eq!(read(json!({})).reasoning_budget, None);
        assert_eq!(read(json!({"reasoning_budget": -1})).reasoning_budget, None);
        for name in ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"] {
            assert_eq!(
                read(json!({name: 0, "reasoning_budget": 0})).reasoning_budget,
                Some(0),
                "{name}"
            );
        }
        assert_eq!(read(json!({"logprobs": false})).logprobs, None);
        assert_eq!(read(json!({"logprobs": true})).logprobs, Some(0));
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 20})).logprobs, Some(20));
    }

    #[test]
    fn text_and_json_are_read_the_same() {
        for text in [
            r#"{"messages":[{"role":"user","content":"hi"}],"tools":[{"function":{"name":"f"}}],"n":1,"seed":7}"#,
            r#"{"messages":[{"role":"user"}]}"#,
            r#"{"messages":[{"role":"user","content":"hi"},7]}"#,
            r#"{"messages":[],"tools":7}"#,
            r#"{"messages":[{"role":"user","content":"hi"}],"tools":[{"function":{}}]}"#,
            r#"{"messages":[{"role":"user","content":"hi"}],"tool_choice":"required"}"#,
            r#"{"messages":null}"#,
            "{}",
            "7",
        ] {
            let request = parsed(text);
            let read = ChatRequest::read(serde_json::from_str(text).expect("JSON"));
            match (request, read) {
                (Ok(a), Ok(b)) => {
                    assert_eq!(
                        (&a.messages, &a.tools, &a.ignored_keys),
                        (&b.messages, &b.tools, &b.ignored_keys)
                    );
                    assert_eq!(a.sampling.seed, b.sampling.seed);
                }
                (a, b) => assert_eq!(a.expect_err(text).message(), b.expect_err(text).message()),
            }
        }
        let error = parsed(r#"{"messages":[{"role":"user","content":"hi"},]}"#);
        let message = error.expect_err("no JSON").message().to_owned();
        assert_eq!(message, "request_json: not valid JSON: trailing comma at line 1 column 45");
    }

    /// A member that is not in `MEMBERS` would be skipped.
    #[test]
    fn all_members_that_are_read_are_in_the_list() {
        let names = MEMBERS.iter().chain(Sampling::NAMES).filter(|name| **name != "messages");
        for name in names {
            // No member accepts this value, except a list.
            let text = json!({"messages": [{"role": "user", "content": "hi"}], *name: {"x": [1]}});
            let read = parsed(&text.to_string());
            let ignored = read.map(|read| read.ignored_keys).unwrap_or_default();
            assert!(!ignored.iter().any(|key| key == name), "{name}");
        }
    }

    /// As JSON values, `[0,0,…]` takes fifty times as much memory as its text.
    #[test]
    fn unknown_members_are_skipped_and_others_are_limited() {
        let zeros = format!("[0{}]", ",0".repeat(1_000_000));
        let request = |name: &str| {
            format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"{name}":{zeros}}}"#)
        };
        let read = parsed(&request("unknown")).expect("valid");
        assert_eq!(read.ignored_keys, ["unknown"]);
        let read = parsed(&request("chat_template_kwargs"));
        let message = read.expect_err("too many").message().to_owned();
        assert_eq!(message, "request_json: has more than 1000000 values and member names");
    }

    #[test]
    fn unknown_members_are_reported() {
        let request = ChatRequest::read(with(json!({"n": 1, "user": "u"}))).expect("valid");
        assert_eq!(request.ignored_keys, ["n", "user"]);
    }
}
