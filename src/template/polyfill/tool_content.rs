//! Turns a tool result of any shape into text. An object, a number, or a list of anything but
//! content parts becomes JSON; null becomes "".

use serde_json::Value;

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::dump;
use super::node::Node;
use super::step::{PolyfillStep, SentMessage, always};
use crate::error::Result;

pub(super) const STEP: PolyfillStep =
    PolyfillStep { name: "tool_content", applies: always, needs, run };

fn needs(message: &SentMessage, _: &PolyfillContext) -> bool {
    let is_part = |part: &Value| part.get("type").is_some_and(Value::is_string);
    message.role == "tool"
        && match message.content {
            Some(Value::String(_)) | None => false,
            Some(Value::Array(parts)) => !parts.iter().all(is_part),
            Some(_) => true,
        }
}

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in conversation.messages.iter_mut().filter(|message| message.has_role("tool")) {
        let text = match message.members.get("content") {
            Some(Node::Text(_)) | None => continue,
            Some(Node::List(parts)) if parts.iter().all(is_part) => continue,
            Some(Node::Null) => Node::literal(""),
            Some(result) => Node::Text(dump::plain(result)),
        };
        message.set_content(text);
        changed = true;
    }
    Ok(changed)
}

/// Whether the value is a content part, which has a type as in OpenAI's API.
fn is_part(node: &Node) -> bool {
    node.as_map().is_some_and(|part| part.text("type").is_some())
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(content: Value, text: &str) {
        let result =
            |content: Value| json!([{"role": "tool", "tool_call_id": "1", "content": content}]);
        PolyfillCase::new(traits(), result(content)).check(result(json!(text)), &["tool_content"]);
    }

    #[test]
    fn cases() {
        check(json!({"temp": 21.5, "note": "é \"x\""}), r#"{"temp": 21.5, "note": "é \"x\""}"#);
        check(json!([1, {"a": null}]), r#"[1, {"a": null}]"#);
        check(json!(7), "7");
        check(json!(false), "false");
        check(json!(null), "");
        for content in [json!("{}"), json!([{"type": "text", "text": "R"}])] {
            PolyfillCase::new(
                traits(),
                json!([{"role": "tool", "tool_call_id": "1", "content": content}]),
            )
            .unchanged();
        }
        PolyfillCase::new(traits(), json!([{"role": "user", "content": {"a": 1}}])).unchanged();
    }
}
