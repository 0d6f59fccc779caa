//! What lies beyond the parts: conversations that no part is held to, since blocks have few words
//! for them, and what is said when a derived template renders one differently.

use serde_json::{Value, json};

use super::conversation::{Conversation, call};
use super::renderer::Renderer;

const ASK: &str = "Which day is it?";
const ANSWER: &str = "It is Monday.";

fn cases() -> Vec<(Conversation, &'static str)> {
    let turn = |answer: Value| Conversation::asking(ASK).message(answer).user("And now?").prompt();
    let saying = |text: &str| turn(json!({ "role": "assistant", "content": text }));
    let reasoning = json!({ "role": "assistant", "content": ANSWER, "reasoning_content": "Yesterday was Sunday." });
    let role = |name: &str| json!({ "role": name, "content": "Use English." });
    let parts = |parts: Value| {
        Conversation::default().message(json!({ "role": "user", "content": parts })).prompt()
    };
    let image = json!([{ "type": "image", "image": "https://example.com/a.png" }, { "type": "text", "text": ASK }]);
    let arguments = call("call_1", "now", &Value::String("{\"zone\":\"UTC\"}".to_owned()));
    vec![
        (
            Conversation::asking(" \n Which day? \n ").prompt(),
            "white space round a user's text is treated differently",
        ),
        (saying(" \n Monday. \n "), "white space round an answer is treated differently"),
        (
            Conversation::instructed(" \n Be brief. \n ").user(ASK).prompt(),
            "white space round a system message is treated differently",
        ),
        (turn(reasoning.clone()), "the reasoning of earlier answers is treated differently"),
        (
            Conversation::asking(ASK).message(reasoning),
            "the reasoning of a last answer is treated differently",
        ),
        (
            saying("<think>\nYesterday was Sunday.\n</think>\n\nMonday."),
            "reasoning inside an answer's text is treated differently",
        ),
        (
            Conversation::asking(ASK).message(role("system")).user("Go on.").prompt(),
            "later system messages are treated differently",
        ),
        (
            Conversation::default().message(role("developer")).user(ASK).prompt(),
            "developer messages are treated differently",
        ),
        (
            parts(json!([{ "type": "text", "text": ASK }, { "type": "text", "text": " Now." }])),
            "text parts are treated differently",
        ),
        (parts(image), "images are treated differently"),
        (
            Conversation::asking(ASK).calling("", &[arguments]).user("Go on.").prompt(),
            "arguments of calls that are JSON text in another spacing are treated differently",
        ),
        (
            Conversation::default().prompt(),
            "a conversation without messages is treated differently",
        ),
    ]
}

/// What is said of these; nothing where the template refuses the conversation.
pub(super) fn differences(foreign: &dyn Renderer, derived: &dyn Renderer) -> Vec<String> {
    let differs = |conversation: &Conversation| {
        foreign
            .render(conversation)
            .is_some_and(|wanted| derived.render(conversation) != Some(wanted))
    };
    cases()
        .into_iter()
        .filter(|(conversation, _)| differs(conversation))
        .map(|(_, words)| words.to_owned())
        .collect()
}
