//! Calls become JSON text of their message, for templates that do not show calls. The shape is
//! minja's.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::{Node, NodeMembers};
use super::step::PolyfillStep;
use super::{content, dump};
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "tool_calls",
    applies: |context| context.options.tool_calls && !context.caps.supports_tool_calls,
    needs: |message, _| message.calls.is_some(),
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in conversation.messages.iter_mut().filter(|message| message.has_calls()) {
        let calls = Node::List(message.calls().iter().map(shape).collect());
        let mut object = NodeMembers::of([("tool_calls", calls)]);
        if let Some(content) = content::compact(message.content()) {
            object.set("content", content);
        }
        message.set_content(Node::Text(dump::indented(&Node::Map(object))));
        message.members.remove("tool_calls");
        changed = true;
    }
    Ok(changed)
}

/// `{"name","arguments","id"?}`.
fn shape(call: &Node) -> Node {
    let mut out = NodeMembers::default();
    let call = call.as_map();
    // Some clients put name and arguments into the call itself.
    let function = call.and_then(|call| call.get("function")).and_then(Node::as_map).or(call);
    for name in ["name", "arguments"] {
        if let Some(node) = function.and_then(|function| function.get(name)) {
            out.set(name, node.clone());
        }
    }
    if let Some(id) = call.and_then(|call| call.text("id")) {
        out.set("id", Node::Text(id.clone()));
    }
    Node::Map(out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, call, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let mut lacking = traits();
        lacking.caps.supports_tool_calls = false;
        let sent = |content: serde_json::Value| json!([{"role": "assistant", "content": content, "tool_calls": [call("x", "f", json!("{\"a\":1}"))]}]);
        let text = "{\n  \"tool_calls\": [\n    {\n      \"name\": \"f\",\n      \"arguments\": {\n        \"a\": 1\n      },\n      \
                    \"id\": \"x\"\n    }\n  ]";
        let applied = ["object_arguments", "tool_calls"];
        let said = |text: String| json!([{"role": "assistant", "content": text}]);
        for nothing in [json!(null), json!("")] {
            PolyfillCase::new(lacking.clone(), sent(nothing))
                .check(said(format!("{text}\n}}")), &applied);
        }
        for something in [json!("C"), json!([{"type": "text", "text": "C"}])] {
            PolyfillCase::new(lacking.clone(), sent(something))
                .check(said(format!("{text},\n  \"content\": \"C\"\n}}")), &applied);
        }
        let bare = json!([{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]);
        let text = "{\n  \"tool_calls\": [\n    {\n      \"name\": \"f\",\n      \"arguments\": {}\n    }\n  ]\n}";
        PolyfillCase::new(lacking.clone(), bare).check(said(text.to_owned()), &["tool_calls"]);
        PolyfillCase::new(lacking, sent(json!("C")))
            .with(|options| options.tool_calls = false)
            .unchanged();
        PolyfillCase::new(traits(), sent(json!("C"))).unchanged();
    }
}
