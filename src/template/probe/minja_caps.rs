//! The capability flags by minja's own algorithm (`minja@3bf064d`) on our engine, for comparison.
//!
//! A probe has no generation prompt. `tools` is undefined unless declared. A failed render counts
//! as an empty prompt, and needles have no control. Later steps use the results of earlier steps. A
//! flag is null if a strict engine cannot determine it in minja's way.

use serde_json::{Map, Value, json};

use super::prober::Prober;
use super::traits::ReasoningFormat;
use crate::probing::Probe;

const USER: &str = "<User Needle>";
const SYSTEM: &str = "<System Needle>";
const REASONING: &str = "<REASONING_NEEDLE>";
const TEST: &str = "<REASON_TEST>";
const CONTENT: &str = "<CONTENT_TEST>";

/// minja's sixteen flags, under our names.
pub(crate) fn minja_caps(prober: &Prober) -> Map<String, Value> {
    MinjaProbes { prober, user: Value::Null, no_content: Value::Null, object: false }.caps()
}

struct MinjaProbes<'a> {
    prober: &'a Prober,
    /// The user message, in the form that the first step found.
    user: Value,
    /// The content of messages with calls.
    no_content: Value,
    /// Whether arguments are an object.
    object: bool,
}

/// The flags of tool calls, and the arguments in the form that appears in the prompt.
struct CallFlags {
    calls: bool,
    parallel: bool,
    responses: bool,
    ids: bool,
    arguments: Value,
}

/// The flags of reasoning.
struct ReasoningFlags {
    format: ReasoningFormat,
    requires_tools: bool,
    clear_thinking: bool,
    without_content: bool,
    with_content: bool,
    respects_enable: bool,
}

impl MinjaProbes<'_> {
    fn render(&self, messages: Vec<Value>) -> String {
        self.render_with(messages, None, Vec::new())
    }

    fn render_with(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
        kwargs: Vec<(&'static str, Value)>,
    ) -> String {
        let probe = Probe { messages, tools, kwargs, ..Probe::default() };
        self.prober.render(probe).unwrap_or_default()
    }

    fn caps(mut self) -> Map<String, Value> {
        let string = json!({ "role": "user", "content": USER });
        let typed = json!({ "role": "user", "content": [{ "type": "text", "text": USER }] });
        let requires_typed = !self.render(vec![string.clone()]).contains(USER)
            && self.render(vec![typed.clone()]).contains(USER);
        let content = if requires_typed {
            json!([{ "type": "text", "text": SYSTEM }])
        } else {
            SYSTEM.into()
        };
        self.user = if requires_typed { typed } else { string };
        let system = self
            .render(vec![json!({ "role": "system", "content": content }), self.user.clone()])
            .contains(SYSTEM);
        let tools = self
            .render_with(vec![self.user.clone()], Some(one_tool()), Vec::new())
            .contains("some_tool");
        let calls = self.call_flags();
        let reasoning = self.reasoning_flags(&calls);
        let flags: [(&str, Value); 16] = [
            ("supports_system_role", system.into()),
            ("supports_tools", tools.into()),
            ("supports_tool_calls", calls.calls.into()),
            ("supports_tool_responses", calls.responses.into()),
            ("supports_tool_call_id", calls.ids.into()),
            ("supports_parallel_tool_calls", calls.parallel.into()),
            ("requires_object_arguments", self.object.into()),
            // minja's engine prints None joined with a string. Ours fails, like Python.
            ("requires_non_null_content", Value::Null),
            ("requires_typed_content_blocks", requires_typed.into()),
            ("supports_reasoning", (reasoning.format != ReasoningFormat::None).into()),
            ("reasoning_format", reasoning.format.as_str().into()),
            ("reasoning_requires_tools", reasoning.requires_tools.into()),
            ("supports_clear_thinking", reasoning.clear_thinking.into()),
            ("supports_reasoning_without_content", reasoning.without_content.into()),
            ("supports_reasoning_with_content", reasoning.with_content.into()),
            ("respects_enable_reasoning", reasoning.respects_enable.into()),
        ];
        flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Also sets the form of calls for later steps.
    fn call_flags(&mut self) -> CallFlags {
        let turns = |content: Value| {
            let turn = json!({ "role": "assistant", "content": content });
            vec![self.user.clone(), turn.clone(), self.user.clone(), turn]
        };
        if self.render(turns("".into())).contains(USER)
            && !self.render(turns(Value::Null)).contains(USER)
        {
            self.no_content = "".into();
        }
        let needle = json!({ "argument_needle": "print('Hello, World!')" });
        let text: Value = needle.to_string().into();
        let shows = |arguments: &Value| {
            let prompt =
                self.render(vec![self.user.clone(), self.calls(&[call("ipython", arguments)])]);
            [
                "<parameter=argument_needle>",
                "\"argument_needle\"",
                "'argument_needle':",
                ">argument_needle<",
            ]
            .iter()
            .any(|needle| prompt.contains(needle))
        };
        let (as_text, as_object) = (shows(&text), shows(&needle));
        self.object = !as_text && as_object;
        let arguments = if self.object { needle } else { text };
        let calls = as_text || as_object;
        if !calls {
            return CallFlags { calls, parallel: false, responses: false, ids: false, arguments };
        }
        let (first, second) = (call("test_tool1", &arguments), call("test_tool2", &arguments));
        let both = self.render(vec![self.user.clone(), self.calls(&[first.clone(), second])]);
        let result = json!({ "role": "tool", "name": "test_tool1", "content": "Some response!", "tool_call_id": "call_911_" });
        let answered = self.render(vec![self.user.clone(), self.calls(&[first]), result]);
        CallFlags {
            calls,
            parallel: both.contains("test_tool1") && both.contains("test_tool2"),
            responses: answered.contains("Some response!"),
            ids: answered.contains("call_911_"),
            arguments,
        }
    }

    fn reasoning_flags(&self, calls: &CallFlags) -> ReasoningFlags {
        let (format, requires_tools) = self.format(calls.calls, &calls.arguments);
        let is_field = format == ReasoningFormat::ReasoningContentField;
        let measured = !matches!(format, ReasoningFormat::None | ReasoningFormat::ToolPlanField);
        let alone =
            measured && self.render(vec![self.user.clone(), turn(format, "")]).contains(TEST);
        let both = self.render(vec![self.user.clone(), turn(format, CONTENT)]);
        let off = self.render_with(
            vec![self.user.clone(), turn(format, CONTENT)],
            None,
            vec![("enable_thinking", false.into())],
        );
        ReasoningFlags {
            format,
            requires_tools,
            clear_thinking: is_field && self.keeps_both(),
            without_content: alone,
            with_content: measured && both.contains(TEST) && both.contains(CONTENT),
            respects_enable: is_field && !off.contains(TEST) && off.contains(CONTENT),
        }
    }

    fn calls(&self, calls: &[Value]) -> Value {
        json!({ "role": "assistant", "content": self.no_content, "tool_calls": calls })
    }

    /// The first format whose needle appears in the prompt, and whether it appears only in messages
    /// with calls.
    fn format(&self, calls: bool, arguments: &Value) -> (ReasoningFormat, bool) {
        let shows = |turn: Value| self.render(vec![self.user.clone(), turn]);
        let with = |mut turn: Value, field: &str| {
            turn[field] = REASONING.into();
            turn
        };
        let with_call = |field: &str| with(self.calls(&[call("test_tool1", arguments)]), field);
        let response = || json!({ "role": "assistant", "content": "response" });
        if shows(with(json!({ "role": "assistant" }), "reasoning_content")).contains(REASONING) {
            return (ReasoningFormat::ReasoningContentField, false);
        }
        if calls && shows(with_call("reasoning_content")).contains(REASONING) {
            return (ReasoningFormat::ReasoningContentField, true);
        }
        if shows(with(response(), "thought")).contains(REASONING) {
            return (ReasoningFormat::ThoughtField, false);
        }
        if shows(with(response(), "thinking")).contains(REASONING) {
            return (ReasoningFormat::ThinkingField, false);
        }
        if calls && shows(with_call("tool_plan")).contains(REASONING) {
            return (ReasoningFormat::ToolPlanField, true);
        }
        for format in [ReasoningFormat::ThinkingContentBlock, ReasoningFormat::ThoughtsContentBlock]
        {
            let prompt = shows(write(format, REASONING, "response"));
            if prompt.contains(REASONING)
                && !prompt.contains("\"type\"")
                && !prompt.contains("'type'")
            {
                return (format, false);
            }
        }
        (ReasoningFormat::None, false)
    }

    fn keeps_both(&self) -> bool {
        let turn = |reasoning: &str, content: &str| json!({ "role": "assistant", "content": content, "reasoning_content": reasoning });
        let messages = vec![
            self.user.clone(),
            turn("<FIRST_REASONING>", "first"),
            self.user.clone(),
            turn("<SECOND_REASONING>", "second"),
        ];
        let prompt = self.render_with(messages, None, vec![("clear_thinking", false.into())]);
        prompt.contains("<FIRST_REASONING>") && prompt.contains("<SECOND_REASONING>")
    }
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "id": "call_1___", "type": "function", "function": { "arguments": arguments, "name": name } })
}

fn turn(format: ReasoningFormat, content: &str) -> Value {
    write(format, TEST, content)
}

/// A turn with reasoning in this format.
fn write(format: ReasoningFormat, reasoning: &str, content: &str) -> Value {
    let mut turn = json!({ "role": "assistant", "content": content });
    let text = || json!({ "type": "text", "text": content });
    match format {
        ReasoningFormat::ReasoningContentField => turn["reasoning_content"] = reasoning.into(),
        ReasoningFormat::ThoughtField => turn["thought"] = reasoning.into(),
        ReasoningFormat::ThinkingField => turn["thinking"] = reasoning.into(),
        ReasoningFormat::ThinkingContentBlock => {
            turn["content"] = json!([{ "type": "thinking", "thinking": reasoning }, text()]);
        }
        ReasoningFormat::ThoughtsContentBlock => {
            turn["content"] = json!([{ "type": "thoughts", "text": reasoning }, text()])
        }
        _ => {}
    }
    turn
}

fn one_tool() -> Value {
    json!([{
        "name": "some_tool",
        "type": "function",
        "function": {
            "name": "some_tool",
            "description": "Some tool.",
            "parameters": {
                "type": "object",
                "properties": { "arg": { "type": "string", "description": "Some argument." } },
                "required": ["arg"],
            },
        },
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::probe::prober;

    #[track_caller]
    fn check(source: &str, yes: &[&str], format: &str) {
        let caps = minja_caps(&prober::for_source(source));
        let found: Vec<&str> = caps
            .iter()
            .filter(|(_, value)| **value == true)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(found, yes);
        assert_eq!(caps["reasoning_format"], format);
        assert_eq!((caps.len(), &caps["requires_non_null_content"]), (16, &Value::Null));
    }

    #[test]
    fn flags_by_minjas_rules() {
        check(
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            &["supports_system_role"],
            "NONE",
        );
        // Without a control, reasoning that always appears counts as kept.
        check(
            "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{% endfor %}",
            &[
                "supports_system_role",
                "supports_reasoning",
                "supports_clear_thinking",
                "supports_reasoning_without_content",
                "supports_reasoning_with_content",
            ],
            "REASONING_CONTENT_FIELD",
        );
        // Likewise, any part whose text is printed counts as a block.
        check(
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
            &[
                "supports_system_role",
                "supports_reasoning",
                "supports_reasoning_without_content",
                "supports_reasoning_with_content",
            ],
            "THOUGHTS_CONTENT_BLOCK",
        );
    }
}
