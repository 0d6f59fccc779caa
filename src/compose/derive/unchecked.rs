//! What lies beyond the parts: conversations that no part is held to, since blocks have few words
//! for them, and what is said when a derived template renders one differently.

use serde_json::{Value, json};

use crate::probing::{Probe, ProbeRenderer, call};

const ASK: &str = "Which day is it?";
const ANSWER: &str = "It is Monday.";

fn cases() -> Vec<(Probe, &'static str)> {
    let turn =
        |answer: Value| Probe::from_user(ASK).message(answer).user("And now?").generation_prompt();
    let saying = |text: &str| turn(json!({ "role": "assistant", "content": text }));
    let reasoning = json!({ "role": "assistant", "content": ANSWER, "reasoning_content": "Yesterday was Sunday." });
    let role = |name: &str| json!({ "role": name, "content": "Use English." });
    let parts = |parts: Value| {
        Probe::default().message(json!({ "role": "user", "content": parts })).generation_prompt()
    };
    let image = json!([{ "type": "image", "image": "https://example.com/a.png" }, { "type": "text", "text": ASK }]);
    let arguments = call("call_1", "now", &Value::String("{\"zone\":\"UTC\"}".to_owned()));
    vec![
        (
            Probe::from_user(" \n Which day? \n ").generation_prompt(),
            "white space round a user's text is treated differently",
        ),
        (saying(" \n Monday. \n "), "white space round an answer is treated differently"),
        (
            Probe::from_system(" \n Be brief. \n ").user(ASK).generation_prompt(),
            "white space round a system message is treated differently",
        ),
        (turn(reasoning.clone()), "the reasoning of earlier answers is treated differently"),
        (
            Probe::from_user(ASK).message(reasoning),
            "the reasoning of a last answer is treated differently",
        ),
        (
            saying("<think>\nYesterday was Sunday.\n</think>\n\nMonday."),
            "reasoning inside an answer's text is treated differently",
        ),
        (
            Probe::from_user(ASK).message(role("system")).user("Go on.").generation_prompt(),
            "later system messages are treated differently",
        ),
        (
            Probe::default().message(role("developer")).user(ASK).generation_prompt(),
            "developer messages are treated differently",
        ),
        (
            parts(json!([{ "type": "text", "text": ASK }, { "type": "text", "text": " Now." }])),
            "text parts are treated differently",
        ),
        (parts(image), "images are treated differently"),
        (
            Probe::from_user(ASK).calls("", &[arguments]).user("Go on.").generation_prompt(),
            "arguments of calls that are JSON text in another spacing are treated differently",
        ),
        (
            Probe::default().generation_prompt(),
            "a conversation without messages is treated differently",
        ),
    ]
}

/// What is said of these; nothing where the template refuses the conversation.
pub(super) fn differences(foreign: &ProbeRenderer<'_>, derived: &ProbeRenderer<'_>) -> Vec<String> {
    let differs = |conversation: &Probe| {
        foreign
            .prompt(conversation)
            .is_some_and(|wanted| derived.prompt(conversation) != Some(wanted))
    };
    cases()
        .into_iter()
        .filter(|(conversation, _)| differs(conversation))
        .map(|(_, words)| words.to_owned())
        .collect()
}
