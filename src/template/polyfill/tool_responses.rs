//! Rewrites tool results for templates that do not show them: as messages of the template's own
//! role for results, or as JSON text in user messages. The shape of the JSON is minja's.

use super::call_writer::CallWriter;
use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::{Node, NodeMembers};
use super::step::PolyfillStep;
use super::{content, dump};
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "tool_responses",
    applies: |context| context.options.tool_responses && !context.caps.supports_tool_responses,
    needs: |message, _| message.role == "tool",
    run,
};

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    let messages = || conversation.messages.iter().any(|message| message.has_role("tool"));
    let role = context.call_writer.filter(|_| messages()).and_then(CallWriter::result_role);
    for message in conversation.messages.iter_mut().filter(|message| message.has_role("tool")) {
        changed = true;
        if let Some(role) = role {
            message.members.set("role", Node::literal(role));
            continue;
        }
        let mut response = NodeMembers::default();
        if let Some(name) = message.members.remove("name") {
            response.set("tool", name);
        }
        let content = content::compact(message.content()).unwrap_or_else(|| Node::literal(""));
        response.set("content", content);
        if let Some(id) = message.members.get("tool_call_id") {
            response.set("tool_call_id", id.clone());
        }
        let object = Node::map([("tool_response", Node::Map(response))]);
        message.members.set("role", Node::literal("user"));
        message.set_content(Node::Text(dump::indented(&object)));
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let mut lacking = traits();
        lacking.caps.supports_tool_responses = false;
        let sent =
            json!([{"role": "tool", "name": "f", "content": "R\"", "tool_call_id": "x", "y": 1}]);
        let text = "{\n  \"tool_response\": {\n    \"tool\": \"f\",\n    \"content\": \"R\\\"\",\n    \"tool_call_id\": \"x\"\n  }\n}";
        PolyfillCase::new(lacking.clone(), sent.clone()).check(
            json!([{"role": "user", "content": text, "tool_call_id": "x", "y": 1}]),
            &["tool_responses"],
        );
        let text = "{\n  \"tool_response\": {\n    \"content\": \"a\\nb\"\n  }\n}";
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        PolyfillCase::new(lacking.clone(), json!([{"role": "tool", "content": parts}]))
            .check(json!([{"role": "user", "content": text}]), &["tool_responses"]);
        PolyfillCase::new(lacking, sent.clone())
            .with(|options| options.tool_responses = false)
            .unchanged();
        PolyfillCase::new(traits(), sent).unchanged();
    }
}
