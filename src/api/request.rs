//! A chat request: the argument of `llb_chat_infer`, `llb_chat_infer_stream` and
//! `llb_chat_explain`.

use std::sync::Arc;

use serde_json::Value;

use super::defaults::RequestDefaults;
use super::fields::Fields;
use super::message::check_messages;
use super::output_control::{OutputControl, ResponseFormat};
use super::plain_prompt::PlainPrompt;
use super::prompt_control::{PromptControl, Thinking, read_ending, take_template_kwargs};
use super::reply_shape::ReplyShape;
use super::sampling::{Sampling, SamplingSource};
use super::tool::{ToolChoice, check_tools, read_tool_choice};
use crate::error::{Error, Result};

/// The members that are in no group: the name, the default as JSON, and what it means.
pub(super) const OTHERS: [(&str, &str, &str); 7] = [
    ("messages", "null", "The conversation, in OpenAI's format; at least one message."),
    ("prompt", "null", "A text, or token ids, that the model continues, instead of messages."),
    ("suffix", "null", "The text after the reply, which fills the gap after `prompt`."),
    ("tools", "null", "OpenAI tool objects."),
    ("tool_choice", "\"auto\"", "Which tools may or must be called."),
    ("add_generation_prompt", "true", "Whether the prompt ends with the generation prompt."),
    ("continue_final_message", "false", "The member of the last message to continue."),
];

/// The maximum number of tokens of a reply with a bounded schema, which may still be recursive. It
/// leaves room for reasoning.
const MAX_BOUNDED_TOKENS: usize = 4096;

/// The names of the members in groups.
const GROUPS: [&[&[&str]]; 4] =
    [Sampling::NAMES, OutputControl::NAMES, PromptControl::NAMES, Thinking::NAMES];

/// Whether a member is read. All others are listed in `ignored_keys` and their values are skipped.
fn is_member(name: &str) -> bool {
    OTHERS.iter().any(|(other, ..)| *other == name)
        || GROUPS.iter().any(|group| group.iter().any(|names| names.contains(&name)))
}

/// A checked request with its defaults filled in.
#[derive(Debug)]
pub struct ChatRequest {
    /// The checked messages; at least one, unless there is a plain prompt.
    pub messages: Vec<Value>,
    /// What the model continues, if there are no messages.
    pub plain: Option<PlainPrompt>,
    /// OpenAI tool objects.
    pub tools: Arc<Vec<Value>>,
    /// Which tools may or must be called.
    pub tool_choice: ToolChoice,
    /// Whether the prompt ends with the generation prompt.
    pub add_generation_prompt: bool,
    /// The member of the last message that the reply continues.
    pub continued: Option<String>,
    /// The settings of reasoning.
    pub thinking: Thinking,
    /// The control of the prompt.
    pub prompt: PromptControl,
    /// The sampler's parameters.
    pub sampling: Sampling,
    /// The control of the reply.
    pub output: OutputControl,
    /// The unknown members, by path.
    pub ignored_keys: Vec<String>,
}

impl ChatRequest {
    /// Parses a request. `defaults` are those of the chat. Errors name the JSON path of the member.
    pub fn parse(
        text: &str,
        reply_shape: ReplyShape,
        defaults: &RequestDefaults,
    ) -> Result<ChatRequest> {
        ChatRequest::read_with(super::parse(text, "request_json")?, reply_shape, defaults)
    }

    /// Reads a request to a chat that `llb_chat_create_with` opened without `defaults`. Errors name
    /// the JSON path of the member.
    pub fn read(request: Value) -> Result<ChatRequest> {
        ChatRequest::read_with(request, ReplyShape::Current, &RequestDefaults::default())
    }

    /// Like [`ChatRequest::read`], for any chat. Messages and tools are moved and not copied, because
    /// they are most of the request.
    pub(crate) fn read_with(
        mut request: Value,
        reply_shape: ReplyShape,
        defaults: &RequestDefaults,
    ) -> Result<ChatRequest> {
        let fields = &mut Fields::new("", &request)?;
        if fields.get("prompt").is_some() {
            fields.array("messages")?;
        } else {
            check_messages(fields)?;
        }
        let tools = check_tools(fields)?;
        let read = ChatRequest::read_members(&request, tools, reply_shape, defaults)?;
        // Both members are arrays if they are present. That has been checked.
        let mut list = |name: &str| match request.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let (messages, tools) = (list("messages"), list("tools"));
        read.with_large(messages, tools, &mut request)
    }

    /// Adds the members that are moved because they may be large. A message whose calls are
    /// complete cannot be continued.
    fn with_large(
        mut self,
        messages: Vec<Value>,
        tools: Vec<Value>,
        others: &mut Value,
    ) -> Result<ChatRequest> {
        if self.plain.is_some() {
            for (name, is_given) in [
                ("messages", !messages.is_empty()),
                ("tools", !tools.is_empty()),
                ("continue_final_message", self.continued.is_some()),
            ] {
                if is_given {
                    let problem = format!("cannot be used together with `{name}`");
                    return Err(Error::invalid("prompt", problem));
                }
            }
        }
        let calls = messages.last().and_then(|message| message["tool_calls"].as_array());
        if self.continued.is_some() && calls.is_some_and(|calls| !calls.is_empty()) {
            let problem = "the final message has `tool_calls`, which nothing can follow";
            return Err(Error::invalid("continue_final_message", problem));
        }
        self.prompt.template_kwargs = take_template_kwargs(others);
        Ok(ChatRequest { messages, tools: Arc::new(tools), ..self })
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
        fields.reply_shape = reply_shape;
        let (_, _) = (fields.get("messages"), fields.get("tools"));
        let plain = PlainPrompt::read(fields)?;
        let tool_choice = read_tool_choice(fields, tools)?;
        let (add_generation_prompt, continued) = read_ending(fields)?;
        let mut output = OutputControl {
            max_tokens: defaults.max_tokens.or(reply_shape.max_tokens()),
            n_keep: defaults.n_keep,
            ..OutputControl::default()
        };
        output.set(fields)?;
        let has_schema = matches!(output.response_format, Some(ResponseFormat::JsonSchema { .. }));
        if output.bound_schema && has_schema {
            output.max_tokens.get_or_insert(MAX_BOUNDED_TOKENS);
        }
        if output.grammar.is_some() && output.response_format.is_some() {
            return Err(fields.invalid("grammar", "cannot be used together with `response_format`"));
        }
        if tool_choice.forces_call() && output.grammar.is_some() {
            return Err(fields.invalid(
                "tool_choice",
                "cannot be used together with `grammar`: a forced call has no text",
            ));
        }
        let sampling = Sampling::read(fields, SamplingSource::Request, &defaults.sampling)?;
        let (mut prompt, mut thinking) = (PromptControl::default(), Thinking::default());
        prompt.set(fields)?;
        thinking.set(fields)?;
        let read = ChatRequest {
            messages: Vec::new(),
            plain,
            tools: Arc::default(),
            tool_choice,
            add_generation_prompt,
            continued: continued.map(str::to_owned),
            thinking,
            prompt,
            sampling,
            output,
            // Members of OpenAI's API that have no meaning here are accepted and reported as
            // ignored.
            ignored_keys: fields.ignored(),
        };
        debug_assert!(fields.read_only(is_member), "a member is in no table");
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use serde_json::json;

    fn parsed(text: &str) -> Result<ChatRequest> {
        let defaults = RequestDefaults::default();
        ChatRequest::parse(text, ReplyShape::Current, &defaults)
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
    fn a_bounded_reply_has_a_limit() {
        for (members, expected) in [
            (json!({"bound_schema": false}), None),
            (json!({"bound_schema": true}), Some(4096)),
            (json!({"bound_schema": true, "max_tokens": 9000}), Some(9000)),
            (json!({"bound_schema": true, "max_completion_tokens": 5}), Some(5)),
        ] {
            let mut members = with(members);
            members["response_format"] =
                json!({"type": "json_schema", "json_schema": {"schema": {"type": "string"}}});
            let request = ChatRequest::read(members.clone()).expect("valid");
            assert_eq!(request.output.max_tokens, expected, "{members}");
        }
        let text = ChatRequest::read(with(json!({"bound_schema": true}))).expect("valid");
        assert_eq!(text.output.max_tokens, None);
    }

    #[test]
    fn defaults_are_documented_ones() {
        let request = ChatRequest::read(with(json!({}))).expect("valid");
        assert_eq!(request.output.max_tokens, None);
        assert_eq!(request.tool_choice, ToolChoice::Auto);
        let s = &request.sampling;
        assert_eq!(
            (s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, s.seed),
            (0.7, 40, 0.95, 0.05, 1.0, None)
        );
        assert!(
            request.add_generation_prompt
                && request.prompt.cache_prompt
                && request.output.parallel_tool_calls
        );
        assert!(request.ignored_keys.is_empty());
    }

    #[track_caller]
    fn refused(members: Value, message: &str) {
        let error = ChatRequest::read(with(members)).expect_err("refused");
        assert_eq!(error.message(), message);
    }

    #[test]
    fn a_message_with_calls_is_not_continued() {
        let call =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let continued = |calls: Value, member: Value| {
            let given = json!({"role": "assistant", "content": "a", "tool_calls": calls});
            let asked = json!({"role": "user", "content": "b"});
            let request = json!({"messages": [asked, given], "continue_final_message": member});
            let read = ChatRequest::read(request.clone()).map(drop);
            let parsed = parsed(&request.to_string()).map(drop);
            assert_eq!(
                read.as_ref().err().map(Error::message),
                parsed.as_ref().err().map(Error::message)
            );
            parsed
        };
        for member in [json!(true), json!("reasoning_content")] {
            let error = continued(json!([call]), member).expect_err("refused");
            assert_eq!(error.code(), Code::InvalidRequest);
            assert_eq!(
                error.message(),
                "continue_final_message: the final message has `tool_calls`, which nothing can follow"
            );
        }
        assert!(continued(json!([call]), json!(false)).is_ok());
        assert!(continued(json!([]), json!(true)).is_ok());
        assert!(continued(Value::Null, json!(true)).is_ok());
    }

    #[test]
    fn a_prompt_replaces_the_messages() {
        let read = |request: Value| {
            let read = ChatRequest::read(request.clone()).map(|request| request.plain);
            let text = parsed(&request.to_string()).map(|request| request.plain);
            let message = |error: Error| error.message().to_owned();
            let (read, text) = (read.map_err(message), text.map_err(message));
            assert_eq!(read, text, "{request}");
            read
        };
        let text = |prompt: &str, suffix: Option<&str>| PlainPrompt::Text {
            prompt: prompt.to_owned(),
            suffix: suffix.map(str::to_owned),
        };
        assert_eq!(read(json!({"prompt": "a"})), Ok(Some(text("a", None))));
        assert_eq!(read(json!({"prompt": "", "suffix": "b"})), Ok(Some(text("", Some("b")))));
        let tokens = PlainPrompt::Tokens(vec![1, 2]);
        assert_eq!(read(json!({"prompt": [1, 2], "messages": null})), Ok(Some(tokens)));
        let message = json!({"role": "user", "content": "a"});
        for (request, problem) in [
            (json!({"suffix": "a"}), "messages: missing"),
            (json!({"messages": [message], "suffix": "a"}), "suffix: requires `prompt`"),
            (json!({"prompt": [1], "suffix": "a"}), "suffix: requires a `prompt` of text"),
            (json!({"prompt": ["a"]}), r#"prompt[0]: expected a token id, got "a""#),
            (json!({"prompt": [1, -1]}), "prompt[1]: expected a token id, got -1"),
            (json!({"prompt": {}}), "prompt: expected a string or an array of token ids, got {}"),
            (
                json!({"prompt": "a", "messages": [message]}),
                "prompt: cannot be used together with `messages`",
            ),
            (json!({"prompt": "a", "messages": 1}), "messages: expected an array, got 1"),
            (
                json!({"prompt": "a", "tools": [{"function": {"name": "f"}}]}),
                "prompt: cannot be used together with `tools`",
            ),
        ] {
            assert_eq!(read(request), Err(problem.to_owned()));
        }
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
        assert_eq!(read(json!({})).output.reasoning_budget, None);
        assert_eq!(read(json!({"reasoning_budget": -1})).output.reasoning_budget, None);
        for name in ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"] {
            assert_eq!(
                read(json!({name: 0, "reasoning_budget": 0})).output.reasoning_budget,
                Some(0),
                "{name}"
            );
        }
        assert_eq!(read(json!({"logprobs": false})).output.logprobs, None);
        assert_eq!(read(json!({"logprobs": true})).output.logprobs, Some(0));
        assert_eq!(read(json!({"logprobs": true, "top_logprobs": 20})).output.logprobs, Some(20));
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

    /// A member that is in no table would be skipped.
    #[test]
    fn all_members_that_are_read_are_in_the_list() {
        let others = OTHERS.iter().map(|(name, ..)| name).skip(1);
        for name in others.chain(GROUPS.iter().copied().flatten().copied().flatten()) {
            // No member accepts this value, except a list.
            let text = json!({"messages": [{"role": "user", "content": "hi"}], *name: {"x": [1]}});
            let read = parsed(&text.to_string());
            let ignored = read.map(|read| read.ignored_keys).unwrap_or_default();
            assert!(!ignored.iter().any(|key| key == *name), "{name}");
        }
    }

    /// As JSON values, `[0,0,…]` takes fifty times as much memory as its text.
    #[test]
    fn requests_of_many_values_are_refused() {
        let zeros = format!("[0{}]", ",0".repeat(1_000_000));
        for name in ["chat_template_kwargs", "unknown"] {
            let messages = r#"[{"role":"user","content":"hi"}]"#;
            let read = parsed(&format!(r#"{{"messages":{messages},"{name}":{zeros}}}"#));
            let message = read.expect_err("too many").message().to_owned();
            assert_eq!(message, "request_json: has more than 1000000 values and member names");
        }
    }

    #[test]
    fn unknown_members_are_reported() {
        let request = ChatRequest::read(with(json!({"n": 1, "user": "u"}))).expect("valid");
        assert_eq!(request.ignored_keys, ["n", "user"]);
    }
}
