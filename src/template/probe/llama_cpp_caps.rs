//! llama.cpp's nine capability flags of a template, by its rules (`llama.cpp b9371 jinja/caps` and
//! later), with evidence.
//!
//! In: a compiled template. Out: nine booleans and their evidence. Each probe renders one
//! conversation with recording objects, and without preparing the messages. A failed probe affects
//! only its own flag.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::{Evidence, EvidenceStatus};
use super::prober::{Prober, RecordedRender};
use crate::probing::Probe;

const STRING: &str = "STRING_MARKER";
const TYPED: &str = "TYPED_MARKER";
const REASONING: &str = "<REASONING_CONTENT_PLACEHOLDER>";

/// The nine flags under llama.cpp's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "nine independent flags of a published format")]
pub struct LlamaCppCaps {
    /// Whether the declared tools are in the prompt.
    pub supports_tools: bool,
    /// Whether the tool calls of assistant messages are read.
    pub supports_tool_calls: bool,
    /// Whether system messages are read.
    pub supports_system_role: bool,
    /// Whether more than one tool call per message is read.
    pub supports_parallel_tool_calls: bool,
    /// Whether the reasoning of an earlier turn can stay in the prompt.
    pub supports_preserve_reasoning: bool,
    /// Whether a reasoning effort is read.
    pub supports_reasoning_effort: bool,
    /// Whether content may be a string.
    pub supports_string_content: bool,
    /// Whether content may be a list of parts.
    pub supports_typed_content: bool,
    /// Whether arguments of calls are read as an object, not only as JSON text.
    pub supports_object_arguments: bool,
}

impl LlamaCppCaps {
    /// One JSON object of nine booleans.
    pub fn to_json(&self) -> Value {
        json!(self)
    }

    /// The result of the tool-capability check: tools are in the prompt and calls are read.
    pub fn tool_capable(&self) -> bool {
        self.supports_tools && self.supports_tool_calls
    }
}

/// The flags, and the evidence of each under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlamaCppCapsReport {
    /// The flags.
    pub caps: LlamaCppCaps,
    /// The evidence.
    pub evidence: Vec<(&'static str, Evidence)>,
}

impl LlamaCppCapsReport {
    /// Each flag with its name and evidence.
    pub fn flags(&self) -> impl Iterator<Item = (&'static str, bool, &Evidence)> {
        let flags = self.caps.to_json();
        self.evidence.iter().map(move |(name, evidence)| (*name, flags[*name] == true, evidence))
    }
}

/// The probes of the nine flags.
struct Flags {
    prober: Prober,
}

/// Probes a template.
pub(crate) fn report(prober: Prober) -> LlamaCppCapsReport {
    let mut prober = Flags { prober };
    prober.prober.bind_missing_variables(&probe(
        json!([user("User message")]),
        json!([]),
        Vec::new(),
    ));
    let (string, typed) = (prober.string_content(), prober.typed_content());
    let (system, tools) = (prober.system_role(), prober.tools());
    let (preserve, effort) = (prober.preserve_reasoning(), prober.reasoning_effort());
    let flags: [(&'static str, CapsFlag); 9] = [
        ("supports_tools", tools.tools),
        ("supports_tool_calls", tools.calls),
        ("supports_system_role", system),
        ("supports_parallel_tool_calls", tools.parallel),
        ("supports_preserve_reasoning", preserve),
        ("supports_reasoning_effort", effort),
        ("supports_string_content", string),
        ("supports_typed_content", typed),
        ("supports_object_arguments", tools.object),
    ];
    let caps = flags.iter().map(|(name, (flag, _))| ((*name).to_owned(), Value::from(*flag)));
    LlamaCppCapsReport {
        caps: serde_json::from_value(caps.collect()).expect("the names are those of the flags"),
        evidence: flags.map(|(name, (_, evidence))| (name, evidence)).into(),
    }
}

type CapsFlag = (bool, Evidence);

/// The flags that are probed by conversations with calls.
struct ToolFlags {
    tools: CapsFlag,
    calls: CapsFlag,
    parallel: CapsFlag,
    object: CapsFlag,
}

/// Variables of a probe.
type Kwargs = Vec<(&'static str, Value)>;

/// A probe as in llama.cpp, with the generation prompt.
fn probe(messages: Value, tools: Value, kwargs: Kwargs) -> Probe {
    let Value::Array(messages) = messages else { return Probe::default() };
    Probe { messages, tools: Some(tools), kwargs, add_generation_prompt: true, ..Probe::default() }
}

impl Flags {
    fn run(&self, messages: Value, tools: Value, kwargs: Kwargs) -> RecordedRender {
        self.prober.run(probe(messages, tools, kwargs))
    }

    /// A flag with its evidence: shown, refused by the template, unknown after an engine error, or
    /// absent.
    fn flag(
        &self,
        probe: &'static str,
        flag: bool,
        outcome: &RecordedRender,
        yes: &str,
        no: &str,
    ) -> CapsFlag {
        let (status, because) = match outcome.failure() {
            _ if flag => (EvidenceStatus::Yes, yes),
            None => (EvidenceStatus::No, no),
            Some(failure) if failure.is_refusal() => {
                (EvidenceStatus::No, "the template refuses the conversation of the probe")
            }
            Some(_) => {
                let because = "the engine could not render the conversation of the probe";
                (EvidenceStatus::Unknown, because)
            }
        };
        let evidence = Evidence {
            status,
            because: because.to_owned(),
            probe,
            error: outcome.failure().filter(|_| !flag).cloned(),
            assumed: self.prober.assumed(),
            ..Evidence::default()
        };
        (flag, evidence)
    }

    fn string_content(&self) -> CapsFlag {
        let outcome = self.run(json!([user(STRING)]), json!([]), Vec::new());
        self.flag(
            "string_content",
            outcome.shows(STRING),
            &outcome,
            "a user message with string content appears in the prompt",
            "a user message with string content does not appear in the prompt",
        )
    }

    fn typed_content(&self) -> CapsFlag {
        let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": TYPED }] }]);
        let taken_apart = |outcome: &RecordedRender| {
            let printed_as_text = outcome.text.as_ref().is_ok_and(|text| {
                text.match_indices(TYPED).any(|(at, _)| !text[..at].ends_with(['\'', '"']))
            });
            printed_as_text && outcome.read("messages[0].content[0].text")
        };
        let mut outcome = self.run(messages.clone(), json!([]), Vec::new());
        if !taken_apart(&outcome) {
            // Some templates put tools into the first user turn as text, even if the list is empty.
            outcome = self.run(messages, Value::Null, Vec::new());
        }
        self.flag(
            "typed_content",
            taken_apart(&outcome),
            &outcome,
            "the text of a content part is read and appears in the prompt",
            "the text of a content part is not read",
        )
    }

    fn system_role(&self) -> CapsFlag {
        let messages =
            json!([{ "role": "system", "content": "System message" }, user("User message")]);
        let outcome = self.run(messages, json!([]), Vec::new());
        self.flag(
            "system_role",
            outcome.read("messages[0].content"),
            &outcome,
            "the content of a system message is read",
            "the content of a system message is not read",
        )
    }

    fn tools(&self) -> ToolFlags {
        const TOOLS: &str = "tools[0].function.name";
        const CALLS: &str = "messages[1].tool_calls";
        let unused = "the declared tool's name is not read";
        let yes_tools = "the declared tool's name is read";
        let yes_calls = "the tool calls of an assistant message are read";
        let no_calls = "the tool calls of an assistant message are not read";

        // Some templates require a tool result to name its tool. This is tried only if nothing
        // renders without the name.
        let exchanges = |named: bool| {
            [true, false]
                .map(|object| self.run(with_calls(1, object, named), one_tool(), Vec::new()))
        };
        let unnamed = exchanges(false);
        let named = unnamed
            .iter()
            .all(|outcome| outcome.failure().is_some_and(|failure| !failure.is_refusal()));
        let [first, second] = if named { exchanges(true) } else { unnamed };
        let rendered = first.failure().is_none();
        let mut tools = !rendered || first.read(TOOLS);
        let mut calls = !rendered || first.read(CALLS);
        let object =
            rendered && calls && first.read("messages[1].tool_calls[0].function.arguments.arg");

        // A template that does not read members of the arguments may expect text.
        let second = (!object).then_some(second);
        if let Some(second) = &second {
            let rendered = second.failure().is_none();
            tools &= rendered && second.read(TOOLS);
            calls &= rendered && second.read(CALLS);
        }
        let decisive = match &second {
            Some(second) if second.failure().is_none() || !rendered => second,
            _ => &first,
        };
        let probe =
            if std::ptr::eq(decisive, &first) { "tool_calls_object" } else { "tool_calls_string" };
        let tools = self.flag(probe, tools, decisive, yes_tools, unused);
        let calls = self.flag(probe, calls, decisive, yes_calls, no_calls);

        let both = self.run(with_calls(2, object, named), one_tool(), Vec::new());
        let parallel = both.failure().is_none() && both.read("messages[1].tool_calls[1].function");
        ToolFlags {
            tools,
            calls,
            parallel: self.flag(
                "parallel_tool_calls",
                parallel,
                &both,
                "the second of two tool calls is read",
                "the second of two tool calls is not read",
            ),
            object: self.flag(
                "tool_calls_object",
                object,
                &first,
                "members of call arguments are read",
                "call arguments are not read as an object",
            ),
        }
    }

    fn preserve_reasoning(&self) -> CapsFlag {
        let messages = json!([
            user("User message"),
            { "role": "assistant", "content": "Assistant message", "reasoning_content": REASONING },
            user("User message"),
            { "role": "assistant", "content": "Assistant message", "reasoning_content": "Reasoning content" },
            user("User message"),
        ]);
        let switches = vec![
            ("enable_thinking", true.into()),
            ("preserve_thinking", true.into()),
            ("clear_thinking", false.into()),
            ("truncate_history_thinking", false.into()),
            ("drop_thinking", false.into()),
        ];
        let outcome = self.run(messages, json!([]), switches);
        self.flag(
            "preserve_reasoning",
            outcome.shows(REASONING),
            &outcome,
            "the reasoning of an earlier turn appears in the prompt",
            "the reasoning of an earlier turn does not appear in the prompt",
        )
    }

    fn reasoning_effort(&self) -> CapsFlag {
        let switches = vec![
            ("enable_thinking", true.into()),
            ("reasoning_effort", "low".into()),
            ("reasoning_strength", "low".into()),
        ];
        let outcome = self.run(json!([user("User message")]), json!([]), switches);
        self.flag(
            "reasoning_effort",
            outcome.read("reasoning_effort") || outcome.read("reasoning_strength"),
            &outcome,
            "a reasoning effort is read",
            "no reasoning effort is read",
        )
    }
}

fn user(content: &str) -> Value {
    json!({ "role": "user", "content": content })
}

/// A complete tool exchange with this many calls. If `named`, the results have the name of their
/// tool.
fn with_calls(count: usize, object: bool, named: bool) -> Value {
    let arguments = if object { json!({ "arg": "value" }) } else { json!("{\"arg\": \"value\"}") };
    let calls: Vec<Value> = (1..=count)
        .map(|number| {
            json!({
                "id": format!("call{number:05}"), "type": "function",
                "function": { "name": format!("tool{number}"), "arguments": arguments },
            })
        })
        .collect();
    let mut result =
        json!({ "role": "tool", "content": "Tool response", "tool_call_id": "call00001" });
    if named {
        result["name"] = "tool1".into();
    }
    json!([
        user("User message"),
        { "role": "assistant", "content": "", "tool_calls": calls },
        result,
        { "role": "assistant", "content": "The tool response was 'tool response'" },
        user("User message"),
    ])
}

fn one_tool() -> Value {
    json!([{
        "name": "tool", "type": "function",
        "function": {
            "name": "tool1", "description": "Tool description",
            "parameters": {
                "type": "object",
                "properties": { "arg": { "type": "string", "description": "Arg description" } },
                "required": ["arg"],
            },
        },
    }])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::template::probe::prober;

    fn probe(source: &str) -> LlamaCppCapsReport {
        report(prober::for_source(source))
    }

    #[track_caller]
    fn check(source: &str, yes: &[&str]) {
        let report = probe(source);
        let flags = report.flags().filter(|(_, flag, _)| *flag);
        let found: Vec<&str> = flags.map(|(name, ..)| name).collect();
        assert_eq!(found, yes);
    }

    #[test]
    fn chatml() {
        check(
            crate::template::sources::CHATML_SOURCE,
            &["supports_system_role", "supports_string_content"],
        );
    }

    #[test]
    fn tools_and_calls() {
        check(
            "{{ tools|tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
            &[
                "supports_tools",
                "supports_tool_calls",
                "supports_system_role",
                "supports_parallel_tool_calls",
                "supports_string_content",
                "supports_object_arguments",
            ],
        );
        check(
            "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ m.reasoning_content }}{% endfor %}{{ reasoning_effort }}",
            &[
                "supports_tools",
                "supports_system_role",
                "supports_preserve_reasoning",
                "supports_reasoning_effort",
                "supports_string_content",
                "supports_typed_content",
            ],
        );
    }

    #[test]
    fn a_refusal_is_no_and_an_engine_error_is_unknown() {
        #[track_caller]
        fn status(source: &str, flag: &str) -> (EvidenceStatus, Option<&'static str>) {
            let report = probe(source);
            let (_, evidence) =
                report.evidence.into_iter().find(|(name, _)| *name == flag).unwrap();
            (evidence.status, evidence.error.map(|failure| failure.kind.as_str()))
        }
        let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0].content }}";
        assert_eq!(status(refuses, "supports_system_role"), (EvidenceStatus::No, Some("raised")));
        let fails = "{% if messages[0].role == 'system' %}{{ 1 + 'a' }}{% endif %}{{ messages[0].content }}";
        assert_eq!(status(fails, "supports_system_role"), (EvidenceStatus::Unknown, Some("type")));
        assert_eq!(status(fails, "supports_string_content"), (EvidenceStatus::Yes, None));
    }

    #[test]
    fn needed_variables_are_assumed() {
        let report =
            probe("{{ 'a' + functions }}{{ 'b' + other.strip() }}{{ messages[0].content }}");
        assert!(report.caps.supports_string_content);
        assert_eq!(report.evidence[0].1.assumed, ["functions", "other"]);
        assert_eq!(report.evidence[0].1.to_json()["status"], "no");
    }
}
