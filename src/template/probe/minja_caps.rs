//! The capability flags by minja's own algorithm (`minja@3bf064d`) on our engine, for comparison.
//!
//! A probe has no generation prompt. `tools` is undefined unless declared. A failed render counts
//! as an empty prompt, and needles have no control. Later steps use the results of earlier steps. A
//! flag is null if a strict engine cannot determine it in minja's way.

use serde_json::{Map, Value, json};

use super::prober::Prober;
use super::reasoning_turns::field;
use super::traits::{ReasoningFormat, TemplateCaps};
use crate::probing::Probe;

const USER: &str = "<User Needle>";
const SYSTEM: &str = "<System Needle>";
const REASONING: &str = "<REASONING_NEEDLE>";
const TEST: &str = "<REASON_TEST>";
const CONTENT: &str = "<CONTENT_TEST>";

/// minja's sixteen flags, under our names.
pub(crate) fn minja_caps(prober: &Prober) -> Map<String, Value> {
    let caps = TemplateCaps::default();
    let [user, no_content, arguments] = [Value::Null, Value::Null, Value::Null];
    MinjaProbes { prober, caps, user, no_content, arguments }.run()
}

struct MinjaProbes<'a> {
    prober: &'a Prober,
    /// The flags that are known so far.
    caps: TemplateCaps,
    /// The user message, in the form that the first step found.
    user: Value,
    /// The content of messages with calls.
    no_content: Value,
    /// The arguments of calls, in the form that appears in the prompt.
    arguments: Value,
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

    fn run(mut self) -> Map<String, Value> {
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
        self.caps.requires_typed_content_blocks = requires_typed;
        self.caps.supports_system_role = self
            .render(vec![json!({ "role": "system", "content": content }), self.user.clone()])
            .contains(SYSTEM);
        self.caps.supports_tools = self
            .render_with(vec![self.user.clone()], Some(one_tool()), Vec::new())
            .contains("some_tool");
        self.probe_calls();
        self.probe_reasoning();
        let Value::Object(mut caps) = self.caps.to_json() else { return Map::new() };
        // minja's engine prints None joined with a string. Ours fails, like Python.
        caps["requires_non_null_content"] = Value::Null;
        caps
    }

    /// Sets the flags of calls, and the form of calls for later steps.
    fn probe_calls(&mut self) {
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
        self.caps.supports_tool_calls = as_text || as_object;
        self.caps.requires_object_arguments = !as_text && as_object;
        self.arguments = if self.caps.requires_object_arguments { needle } else { text };
        if !self.caps.supports_tool_calls {
            return;
        }
        let [first, second] = ["test_tool1", "test_tool2"].map(|name| call(name, &self.arguments));
        let both = self.render(vec![self.user.clone(), self.calls(&[first.clone(), second])]);
        let result = json!({ "role": "tool", "name": "test_tool1", "content": "Some response!", "tool_call_id": "call_911_" });
        let answered = self.render(vec![self.user.clone(), self.calls(&[first]), result]);
        self.caps.supports_parallel_tool_calls =
            both.contains("test_tool1") && both.contains("test_tool2");
        self.caps.supports_tool_responses = answered.contains("Some response!");
        self.caps.supports_tool_call_id = answered.contains("call_911_");
    }

    fn probe_reasoning(&mut self) {
        let (format, requires_tools) = self.format();
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
        self.caps = TemplateCaps {
            supports_reasoning: format != ReasoningFormat::None,
            reasoning_format: format,
            reasoning_requires_tools: requires_tools,
            supports_clear_thinking: is_field && self.keeps_both(),
            supports_reasoning_without_content: alone,
            supports_reasoning_with_content: measured
                && both.contains(TEST)
                && both.contains(CONTENT),
            respects_enable_reasoning: is_field && !off.contains(TEST) && off.contains(CONTENT),
            ..self.caps
        };
    }

    fn calls(&self, calls: &[Value]) -> Value {
        json!({ "role": "assistant", "content": self.no_content, "tool_calls": calls })
    }

    /// The first format whose needle appears in the prompt, and whether it appears only in messages
    /// with calls.
    fn format(&self) -> (ReasoningFormat, bool) {
        let calls = self.caps.supports_tool_calls;
        let shows = |turn: Value| self.render(vec![self.user.clone(), turn]);
        let call = self.calls(&[call("test_tool1", &self.arguments)]);
        let response = json!({ "role": "assistant", "content": "response" });
        for (format, needs_calls, turn) in [
            (ReasoningFormat::ReasoningContentField, false, &json!({ "role": "assistant" })),
            (ReasoningFormat::ReasoningContentField, true, &call),
            (ReasoningFormat::ThoughtField, false, &response),
            (ReasoningFormat::ThinkingField, false, &response),
            (ReasoningFormat::ToolPlanField, true, &call),
        ] {
            let Some(field) = field(format).filter(|_| calls || !needs_calls) else { continue };
            let mut turn = turn.clone();
            turn[field] = REASONING.into();
            if shows(turn).contains(REASONING) {
                return (format, needs_calls);
            }
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
        ReasoningFormat::ThinkingContentBlock => {
            turn["content"] = json!([{ "type": "thinking", "thinking": reasoning }, text()]);
        }
        ReasoningFormat::ThoughtsContentBlock => {
            turn["content"] = json!([{ "type": "thoughts", "text": reasoning }, text()])
        }
        _ => {
            if let Some(field) = field(format) {
                turn[field] = reasoning.into();
            }
        }
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
