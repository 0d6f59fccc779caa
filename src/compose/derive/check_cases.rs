//! The conversations for which a derived template is compared with the original, and how they are
//! compared.
//!
//! Names and texts differ from those of the probes. They contain text that breaks templates which
//! build JSON by hand or search for slots: quotes, braces, markup, non-ASCII letters, empty and
//! nested objects, several turns, consecutive user messages.
//!
//! No text starts or ends with whitespace. How a template treats such whitespace is reported as a
//! residual.

use serde_json::{Value, json};

use super::parts::{DerivedPart, PartResult, PartStatus};
use crate::probing::{Probe, ProbeRenderer, call, tool};

/// A conversation, with an id for reports.
#[derive(Debug, Clone)]
pub(super) struct CheckCase {
    pub(super) part: DerivedPart,
    pub(super) id: &'static str,
    pub(super) conversation: Probe,
}

const ASK: &str = "What is the weather in Oslo?";
const ODD: &str = "¿天气? <b>&amp;</b> \"it's\" {content} {{x}} {% if %} 😀\nsecond line";
const ANSWER: &str = "It is 4 degrees.";
const RULES: &str = "Be brief & polite: {tools} <x> \"ü\".";
const TEXT: &str = "Let me look.";

fn weather() -> Value {
    let city = json!({ "type": "string", "description": "City name, \"Oslo\" for example." });
    let unit = json!({ "type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius" });
    let parameters = json!({ "type": "object", "properties": { "unit": unit, "city": city }, "required": ["city"] });
    tool("get_weather", "Get the weather for a city", &parameters)
}

fn odd_tool() -> Value {
    let nested = json!({ "type": "array", "items": { "type": "object", "properties": { "z": { "type": ["number", "null"] },
        "a": { "const": 1.5 } } }, "minItems": 1 });
    let parameters = json!({ "type": "object", "properties": { "lines": nested }, "additionalProperties": false });
    tool(
        "météo",
        "Wetter für <b>Zürich</b> & \"München\" 天气 😀 it's\nline {content}",
        &parameters,
    )
}

fn small_tool() -> Value {
    json!({ "type": "function", "function": { "name": "now", "description": "Tell the time" } })
}

fn strict_tool() -> Value {
    json!({ "type": "function", "function": { "strict": true, "name": "stop", "parameters": { "type": "object", "properties": {} } } })
}

fn shuffled_tool() -> Value {
    let mode = json!({ "default": "fast", "enum": ["fast", "safe"], "description": "How", "type": "string", "deprecated": false });
    let parameters = json!({ "required": ["mode"], "properties": { "mode": mode }, "$defs": { "x": [null, 2] }, "type": "object" });
    json!({ "type": "function", "function": { "parameters": parameters, "description": "Start over", "strict": false, "name": "restart" } })
}

fn paris() -> Value {
    call("call_1", "get_weather", &json!({ "city": "Paris", "days": 2 }))
}

fn odd_call() -> Value {
    let arguments = json!({ "q": "<a href=\"x\">it's</a>\n{content}", "city": "Zürich 天", "deep": { "b": [1.5, null, true], "a": {} } });
    call("call_2", "search_all", &arguments)
}

/// All cases, ordered by part.
pub(super) fn all() -> Vec<CheckCase> {
    let mut cases = Vec::new();
    let mut add = |part: DerivedPart, list: Vec<(&'static str, Probe)>| {
        cases.extend(list.into_iter().map(|(id, conversation)| CheckCase {
            part,
            id,
            conversation,
        }));
    };
    add(DerivedPart::Chat, chat());
    add(DerivedPart::System, system());
    add(DerivedPart::Tools, tools());
    add(DerivedPart::Calls, calls());
    add(DerivedPart::Results, results());
    // Every second case has another date, so a part that contains a fixed date is not exact.
    for case in cases.iter_mut().skip(1).step_by(2) {
        case.conversation = case.conversation.clone().days_later(100);
    }
    cases
}

fn chat() -> Vec<(&'static str, Probe)> {
    let turn = || Probe::from_user(ASK).assistant(ANSWER);
    vec![
        ("user", Probe::from_user(ASK)),
        ("user_prompt", Probe::from_user(ODD).generation_prompt()),
        ("answer", turn()),
        ("answer_prompt", turn().generation_prompt()),
        ("turns", turn().user(ODD).assistant(ODD)),
        ("turns_prompt", turn().user(ODD).assistant("Yes").user("Why?").generation_prompt()),
        ("two_users_prompt", Probe::from_user(ASK).user(ODD).generation_prompt()),
        ("answer_first_prompt", Probe::default().assistant(ODD).user(ASK).generation_prompt()),
        ("empty_answer", Probe::from_user(ASK).assistant("")),
    ]
}

fn system() -> Vec<(&'static str, Probe)> {
    let ask = || Probe::from_system(RULES).user(ASK);
    vec![
        ("system_prompt", ask().generation_prompt()),
        ("system_turns", ask().assistant(ANSWER).user(ODD)),
        (
            "system_turns_prompt",
            Probe::from_system(ODD).user(ODD).assistant(ANSWER).user(ASK).generation_prompt(),
        ),
        (
            "system_answer_first_prompt",
            Probe::from_system(RULES).assistant(ANSWER).user(ASK).generation_prompt(),
        ),
        ("system_empty_prompt", Probe::from_system("").user(ASK).generation_prompt()),
        ("system_alone_prompt", Probe::from_system(RULES).generation_prompt()),
    ]
}

fn tools() -> Vec<(&'static str, Probe)> {
    let two = [weather(), odd_tool()];
    let three = [small_tool(), weather(), strict_tool()];
    let bare = json!({ "name": "lookup", "description": "Look a word up", "parameters": { "type": "object", "properties": {} } });
    let turns = || Probe::from_user(ASK).assistant(ANSWER).user(ODD);
    vec![
        ("tool_prompt", Probe::from_user(ASK).tools(&two[..1]).generation_prompt()),
        (
            "tools_system_prompt",
            Probe::from_system(RULES).user(ASK).tools(&two).generation_prompt(),
        ),
        ("tools_turns_prompt", turns().tools(&two).generation_prompt()),
        (
            "tools_system_turns",
            Probe::from_system(RULES).user(ASK).assistant(ANSWER).user(ODD).tools(&three),
        ),
        (
            "tools_odd_prompt",
            Probe::from_system("Sé breve").user(ODD).tools(&[odd_tool()]).generation_prompt(),
        ),
        ("tools_small_prompt", Probe::from_user(ODD).tools(&three).generation_prompt()),
        ("tool_bare_prompt", Probe::from_user(ASK).tools(&[bare]).generation_prompt()),
        (
            "tools_shuffled_prompt",
            Probe::from_user(ASK).tools(&[shuffled_tool()]).generation_prompt(),
        ),
        (
            "tools_system_empty_prompt",
            Probe::from_system("").user(ASK).tools(&two).generation_prompt(),
        ),
        (
            "tools_none_system_prompt",
            Probe::from_system(RULES).user(ASK).tools(&[]).generation_prompt(),
        ),
        ("tools_none_prompt", Probe::from_user(ASK).tools(&[]).generation_prompt()),
    ]
}

fn calls() -> Vec<(&'static str, Probe)> {
    let ask = || Probe::from_user(ASK);
    let saying = |content: Value| {
        ask().message(json!({ "role": "assistant", "content": content, "tool_calls": [paris()] }))
    };
    let text =
        |arguments: &str| call("call_3", "get_weather", &Value::String(arguments.to_owned()));
    let bare = json!({ "name": "multiply", "arguments": { "x": 1 } });
    let values = json!({ "on": true, "off": false, "none": null, "x": 1.5, "n": -20, "list": ["a", 2, null], "text": "", "Key": "1" });
    vec![
        ("call", ask().calls("", &[paris()])),
        ("call_text", ask().calls(TEXT, &[paris()])),
        ("call_null", saying(Value::Null)),
        (
            "call_without_content",
            ask().message(json!({ "role": "assistant", "tool_calls": [paris()] })),
        ),
        ("calls", ask().calls("", &[paris(), odd_call()])),
        (
            "calls_text_user_prompt",
            ask().calls(ODD, &[odd_call(), paris()]).user(ODD).generation_prompt(),
        ),
        ("call_odd", ask().calls("", &[odd_call()])),
        ("call_values", ask().calls("", &[call("call_5", "set_all", &values)])),
        ("call_empty_arguments", ask().calls("", &[call("call_4", "now", &json!({}))])),
        ("call_text_arguments", ask().calls("", &[text("{\"city\": \"Oslo\", \"days\": 3}")])),
        ("call_bare", ask().calls("", &[bare])),
        ("calls_empty_list", ask().calls(ANSWER, &[])),
        (
            "call_system_tools",
            Probe::from_system(RULES).user(ASK).calls(TEXT, &[paris()]).tools(&[weather()]),
        ),
    ]
}

fn results() -> Vec<(&'static str, Probe)> {
    let ask = || Probe::from_user(ASK);
    let one = || ask().calls("", &[paris()]).result("call_1", "Sunny, 22C");
    let two = || {
        ask()
            .calls(TEXT, &[paris(), odd_call()])
            .result("call_1", ODD)
            .result("call_2", "{\"t\": {\"v\": [1, 2]}}")
    };
    vec![
        ("result_prompt", one().generation_prompt()),
        ("result", one()),
        ("result_answer", one().assistant(ANSWER)),
        ("results_prompt", two().generation_prompt()),
        ("results_answer_user_prompt", two().assistant(ANSWER).user(ASK).generation_prompt()),
        (
            "rounds_prompt",
            one()
                .calls("", &[odd_call()])
                .result("call_2", "15")
                .assistant("Done.")
                .user("Thanks")
                .generation_prompt(),
        ),
        ("result_user_prompt", one().user(ODD).generation_prompt()),
        ("result_without_call", ask().assistant(ANSWER).result("call_9", "15")),
        (
            "result_system_tools_prompt",
            Probe::from_system(RULES)
                .user(ASK)
                .calls("", &[paris()])
                .result("call_1", "4")
                .tools(&[weather()])
                .generation_prompt(),
        ),
    ]
}

impl CheckCase {
    /// The conversation without the input that belongs to the part.
    fn without(&self) -> Probe {
        let mut conversation = self.conversation.clone();
        match self.part {
            DerivedPart::Chat => {}
            DerivedPart::System => {
                conversation.messages.retain(|message| message["role"] != "system")
            }
            DerivedPart::Tools => conversation.tools = None,
            DerivedPart::Calls => {
                for message in &mut conversation.messages {
                    if let Some(message) = message.as_object_mut() {
                        message.remove("tool_calls");
                    }
                }
            }
            DerivedPart::Results => {
                conversation.messages.retain(|message| message["role"] != "tool")
            }
        }
        conversation
    }
}

/// A check case and its prompt.
pub(super) struct ExpectedRender {
    case: CheckCase,
    /// The prompt; None if the template rejects the conversation.
    text: Option<String>,
    /// Whether the prompt changes when the input of the part is removed.
    used: bool,
}

/// Renders the check cases with the original template.
pub(super) fn expected(foreign: &ProbeRenderer<'_>) -> Vec<ExpectedRender> {
    let render = |case: CheckCase| {
        let text = foreign.prompt(&case.conversation);
        let used = case.part == DerivedPart::Chat
            || (text.is_some() && foreign.prompt(&case.without()) != text);
        ExpectedRender { case, text, used }
    };
    all().into_iter().map(render).collect()
}

/// Compares the expected prompts of one part with those of a derived template.
pub(super) fn compare(
    part: DerivedPart,
    expected: &[ExpectedRender],
    derived: Option<&ProbeRenderer<'_>>,
    residual: &[&str],
) -> PartResult {
    let mut result = PartResult {
        part,
        status: PartStatus::Opaque,
        failing: Vec::new(),
        refused: Vec::new(),
        reason: String::new(),
    };
    let mut equal = 0usize;
    let mut used = false;
    for ExpectedRender { case, text, used: differs } in
        expected.iter().filter(|expected| expected.case.part == part)
    {
        used = used || *differs;
        match (text, derived.and_then(|derived| derived.prompt(&case.conversation))) {
            (None, _) => result.refused.push(case.id),
            (Some(expected), Some(text)) if text == *expected => equal += 1,
            _ => result.failing.push(case.id),
        }
    }
    let whole = result.failing.is_empty();
    result.status = match (used, whole, equal) {
        (false, ..) => PartStatus::Ignores,
        (true, true, 1..) => PartStatus::Exact,
        (true, false, 1..) => PartStatus::Partial,
        (true, _, 0) => PartStatus::Opaque,
    };
    if equal == 0 && whole && result.status == PartStatus::Ignores {
        result.reason = "the template rejects it".to_owned();
    } else if !whole {
        result.reason = residual.join("; ");
        if result.reason.is_empty() {
            result.reason = "components do not describe these conversations".to_owned();
        }
    }
    result
}

/// The quality of a draft; greater is better. The number of parts without failures comes first,
/// then how few conversations fail.
pub(super) fn score(results: &[PartResult]) -> (usize, usize) {
    let whole = results.iter().filter(|result| result.failing.is_empty()).count();
    let failing: usize = results.iter().map(|result| result.failing.len()).sum();
    (whole, usize::MAX - failing)
}

const DAY: &str = "Which day is it?";
const MONDAY: &str = "It is Monday.";

/// Conversations that do not belong to any part, because components can express little about them.
/// Differences are only reported as residuals.
fn unchecked() -> Vec<(Probe, &'static str)> {
    let turn =
        |answer: Value| Probe::from_user(DAY).message(answer).user("And now?").generation_prompt();
    let saying = |text: &str| turn(json!({ "role": "assistant", "content": text }));
    let reasoning = json!({ "role": "assistant", "content": MONDAY, "reasoning_content": "Yesterday was Sunday." });
    let role = |name: &str| json!({ "role": name, "content": "Use English." });
    let parts = |parts: Value| {
        Probe::default().message(json!({ "role": "user", "content": parts })).generation_prompt()
    };
    let image = json!([{ "type": "image", "image": "https://example.com/a.png" }, { "type": "text", "text": DAY }]);
    let arguments = call("call_1", "now", &Value::String("{\"zone\":\"UTC\"}".to_owned()));
    vec![
        (
            Probe::from_user(" \n Which day? \n ").generation_prompt(),
            "whitespace around a user message renders differently",
        ),
        (saying(" \n Monday. \n "), "whitespace around an answer renders differently"),
        (
            Probe::from_system(" \n Be brief. \n ").user(DAY).generation_prompt(),
            "whitespace around a system message renders differently",
        ),
        (turn(reasoning.clone()), "the reasoning of earlier answers renders differently"),
        (
            Probe::from_user(DAY).message(reasoning),
            "the reasoning of a last answer renders differently",
        ),
        (
            saying("<think>\nYesterday was Sunday.\n</think>\n\nMonday."),
            "reasoning inside an answer's text renders differently",
        ),
        (
            Probe::from_user(DAY).message(role("system")).user("Go on.").generation_prompt(),
            "later system messages render differently",
        ),
        (
            Probe::default().message(role("developer")).user(DAY).generation_prompt(),
            "developer messages render differently",
        ),
        (
            parts(json!([{ "type": "text", "text": DAY }, { "type": "text", "text": " Now." }])),
            "text parts render differently",
        ),
        (parts(image), "images render differently"),
        (
            Probe::from_user(DAY).calls("", &[arguments]).user("Go on.").generation_prompt(),
            "arguments that are JSON text in another spacing render differently",
        ),
        (
            Probe::default().generation_prompt(),
            "a conversation without messages renders differently",
        ),
    ]
}

/// The residuals for conversations that render differently. Conversations that the template rejects
/// do not count.
pub(super) fn differences(
    foreign: &ProbeRenderer<'_>,
    derived: &ProbeRenderer<'_>,
) -> Vec<&'static str> {
    let differs = |conversation: &Probe| {
        foreign
            .prompt(conversation)
            .is_some_and(|expected| derived.prompt(conversation) != Some(expected))
    };
    unchecked()
        .into_iter()
        .filter(|(conversation, _)| differs(conversation))
        .map(|(_, words)| words)
        .collect()
}
