//! The conversations that a derived template is held to: other names and texts than the probes
//! have, with what breaks templates that build JSON by hand or look for slots: quotes, braces,
//! mark-up, letters beyond ASCII, empty and nested objects, several turns, users in a row.
//!
//! Texts neither begin nor end with white space: what a template does with that is told as a
//! residual.

use serde_json::{Value, json};

use super::conversation::{Conversation, call, tool};
use super::part::Part;

/// One conversation, by a name for reports.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) part: Part,
    pub(super) id: &'static str,
    pub(super) conversation: Conversation,
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

/// All of them, by part.
pub(super) fn all() -> Vec<Context> {
    let mut contexts = Vec::new();
    let mut add = |part: Part, list: Vec<(&'static str, Conversation)>| {
        contexts.extend(list.into_iter().map(|(id, conversation)| Context {
            part,
            id,
            conversation,
        }));
    };
    add(Part::Chat, chat());
    add(Part::System, system());
    add(Part::Tools, tools());
    add(Part::Calls, calls());
    add(Part::Results, results());
    // Every second one on another day: what holds a date is not exact.
    for context in contexts.iter_mut().skip(1).step_by(2) {
        context.conversation.later = 100;
    }
    contexts
}

fn chat() -> Vec<(&'static str, Conversation)> {
    let turn = || Conversation::asking(ASK).assistant(ANSWER);
    vec![
        ("user", Conversation::asking(ASK)),
        ("user_prompt", Conversation::asking(ODD).prompt()),
        ("answer", turn()),
        ("answer_prompt", turn().prompt()),
        ("turns", turn().user(ODD).assistant(ODD)),
        ("turns_prompt", turn().user(ODD).assistant("Yes").user("Why?").prompt()),
        ("two_users_prompt", Conversation::asking(ASK).user(ODD).prompt()),
        ("answer_first_prompt", Conversation::default().assistant(ODD).user(ASK).prompt()),
        ("empty_answer", Conversation::asking(ASK).assistant("")),
    ]
}

fn system() -> Vec<(&'static str, Conversation)> {
    let ask = || Conversation::instructed(RULES).user(ASK);
    vec![
        ("system_prompt", ask().prompt()),
        ("system_turns", ask().assistant(ANSWER).user(ODD)),
        (
            "system_turns_prompt",
            Conversation::instructed(ODD).user(ODD).assistant(ANSWER).user(ASK).prompt(),
        ),
        (
            "system_answer_first_prompt",
            Conversation::instructed(RULES).assistant(ANSWER).user(ASK).prompt(),
        ),
        ("system_empty_prompt", Conversation::instructed("").user(ASK).prompt()),
        ("system_alone_prompt", Conversation::instructed(RULES).prompt()),
    ]
}

fn tools() -> Vec<(&'static str, Conversation)> {
    let two = [weather(), odd_tool()];
    let three = [small_tool(), weather(), strict_tool()];
    let bare = json!({ "name": "lookup", "description": "Look a word up", "parameters": { "type": "object", "properties": {} } });
    let turns = || Conversation::asking(ASK).assistant(ANSWER).user(ODD);
    vec![
        ("tool_prompt", Conversation::asking(ASK).tools(&two[..1]).prompt()),
        ("tools_system_prompt", Conversation::instructed(RULES).user(ASK).tools(&two).prompt()),
        ("tools_turns_prompt", turns().tools(&two).prompt()),
        (
            "tools_system_turns",
            Conversation::instructed(RULES).user(ASK).assistant(ANSWER).user(ODD).tools(&three),
        ),
        (
            "tools_odd_prompt",
            Conversation::instructed("Sé breve").user(ODD).tools(&[odd_tool()]).prompt(),
        ),
        ("tools_small_prompt", Conversation::asking(ODD).tools(&three).prompt()),
        ("tool_bare_prompt", Conversation::asking(ASK).tools(&[bare]).prompt()),
        ("tools_shuffled_prompt", Conversation::asking(ASK).tools(&[shuffled_tool()]).prompt()),
        ("tools_system_empty_prompt", Conversation::instructed("").user(ASK).tools(&two).prompt()),
        ("tools_none_system_prompt", Conversation::instructed(RULES).user(ASK).tools(&[]).prompt()),
        ("tools_none_prompt", Conversation::asking(ASK).tools(&[]).prompt()),
    ]
}

fn calls() -> Vec<(&'static str, Conversation)> {
    let ask = || Conversation::asking(ASK);
    let saying = |content: Value| {
        ask().message(json!({ "role": "assistant", "content": content, "tool_calls": [paris()] }))
    };
    let text =
        |arguments: &str| call("call_3", "get_weather", &Value::String(arguments.to_owned()));
    let bare = json!({ "name": "multiply", "arguments": { "x": 1 } });
    let values = json!({ "on": true, "off": false, "none": null, "x": 1.5, "n": -20, "list": ["a", 2, null], "text": "", "Key": "1" });
    vec![
        ("call", ask().calling("", &[paris()])),
        ("call_text", ask().calling(TEXT, &[paris()])),
        ("call_null", saying(Value::Null)),
        (
            "call_without_content",
            ask().message(json!({ "role": "assistant", "tool_calls": [paris()] })),
        ),
        ("calls", ask().calling("", &[paris(), odd_call()])),
        ("calls_text_user_prompt", ask().calling(ODD, &[odd_call(), paris()]).user(ODD).prompt()),
        ("call_odd", ask().calling("", &[odd_call()])),
        ("call_values", ask().calling("", &[call("call_5", "set_all", &values)])),
        ("call_empty_arguments", ask().calling("", &[call("call_4", "now", &json!({}))])),
        ("call_text_arguments", ask().calling("", &[text("{\"city\": \"Oslo\", \"days\": 3}")])),
        ("call_bare", ask().calling("", &[bare])),
        ("calls_empty_list", ask().calling(ANSWER, &[])),
        (
            "call_system_tools",
            Conversation::instructed(RULES).user(ASK).calling(TEXT, &[paris()]).tools(&[weather()]),
        ),
    ]
}

fn results() -> Vec<(&'static str, Conversation)> {
    let ask = || Conversation::asking(ASK);
    let one = || ask().calling("", &[paris()]).result("call_1", "Sunny, 22C");
    let two = || {
        ask()
            .calling(TEXT, &[paris(), odd_call()])
            .result("call_1", ODD)
            .result("call_2", "{\"t\": {\"v\": [1, 2]}}")
    };
    vec![
        ("result_prompt", one().prompt()),
        ("result", one()),
        ("result_answer", one().assistant(ANSWER)),
        ("results_prompt", two().prompt()),
        ("results_answer_user_prompt", two().assistant(ANSWER).user(ASK).prompt()),
        (
            "rounds_prompt",
            one()
                .calling("", &[odd_call()])
                .result("call_2", "15")
                .assistant("Done.")
                .user("Thanks")
                .prompt(),
        ),
        ("result_user_prompt", one().user(ODD).prompt()),
        ("result_without_call", ask().assistant(ANSWER).result("call_9", "15")),
        (
            "result_system_tools_prompt",
            Conversation::instructed(RULES)
                .user(ASK)
                .calling("", &[paris()])
                .result("call_1", "4")
                .tools(&[weather()])
                .prompt(),
        ),
    ]
}

impl Context {
    /// The same conversation without what the part is about.
    pub(super) fn without(&self) -> Conversation {
        let mut conversation = self.conversation.clone();
        match self.part {
            Part::Chat => {}
            Part::System => conversation.messages.retain(|message| message["role"] != "system"),
            Part::Tools => conversation.tools = None,
            Part::Calls => {
                for message in &mut conversation.messages {
                    if let Some(message) = message.as_object_mut() {
                        message.remove("tool_calls");
                    }
                }
            }
            Part::Results => conversation.messages.retain(|message| message["role"] != "tool"),
        }
        conversation
    }
}
