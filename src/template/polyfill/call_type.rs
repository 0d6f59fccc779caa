//! Adds the type `function` to calls without a type. Templates print the member, or skip calls of
//! other types.

use serde_json::Value;

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use super::step::{PolyfillStep, SentMessage, always};
use crate::error::Result;

pub(super) const STEP: PolyfillStep =
    PolyfillStep { name: "call_type", applies: always, needs, run };

fn needs(message: &SentMessage, _: &PolyfillContext) -> bool {
    message.each_call().any(|call| {
        call.get("function").is_some() && !call.get("type").is_some_and(Value::is_string)
    })
}

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for call in conversation.messages.iter_mut().flat_map(|message| message.calls_mut()) {
        if let Some(call) = call.as_map_mut()
            && call.get("function").is_some()
            && call.text("type").is_none()
        {
            call.set_before("function", "type", Node::literal("function"));
            changed = true;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, call, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let with = |calls: serde_json::Value| json!([{"role": "assistant", "content": "A", "tool_calls": calls}]);
        let whole =
            json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}});
        PolyfillCase::new(
            traits(),
            with(json!([{"id": "1", "function": {"name": "f", "arguments": {}}}])),
        )
        .check(with(json!([whole])), &["call_type"]);
        PolyfillCase::new(
            traits(),
            with(json!([{"id": "1", "type": null, "function": {"name": "f", "arguments": {}}}])),
        )
        .check(with(json!([whole])), &["call_type"]);
        PolyfillCase::new(traits(), with(json!([call("1", "f", json!({}))]))).unchanged();
        // This is not OpenAI's shape, and no step guesses what it means.
        PolyfillCase::new(traits(), with(json!([{"name": "f", "arguments": {}}]))).unchanged();
    }
}
