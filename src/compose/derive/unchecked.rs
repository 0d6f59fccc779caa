//! Conversations that do not belong to any part, because components can express little about
//! them. Differences are only reported as residuals.

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
            "whitespace around a user message renders differently",
        ),
        (saying(" \n Monday. \n "), "whitespace around an answer renders differently"),
        (
            Probe::from_system(" \n Be brief. \n ").user(ASK).generation_prompt(),
            "whitespace around a system message renders differently",
        ),
        (turn(reasoning.clone()), "the reasoning of earlier answers renders differently"),
        (
            Probe::from_user(ASK).message(reasoning),
            "the reasoning of a last answer renders differently",
        ),
        (
            saying("<think>\nYesterday was Sunday.\n</think>\n\nMonday."),
            "reasoning inside an answer's text renders differently",
        ),
        (
            Probe::from_user(ASK).message(role("system")).user("Go on.").generation_prompt(),
            "later system messages render differently",
        ),
        (
            Probe::default().message(role("developer")).user(ASK).generation_prompt(),
            "developer messages render differently",
        ),
        (
            parts(json!([{ "type": "text", "text": ASK }, { "type": "text", "text": " Now." }])),
            "text parts render differently",
        ),
        (parts(image), "images render differently"),
        (
            Probe::from_user(ASK).calls("", &[arguments]).user("Go on.").generation_prompt(),
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
    cases()
        .into_iter()
        .filter(|(conversation, _)| differs(conversation))
        .map(|(_, words)| words)
        .collect()
}
