//! Turns calls into text of their message, for templates that do not show calls. The text is in the
//! model's format if that is known, else JSON in minja's shape.

use serde_json::Value;

use super::call_writer::{CallWriter, SentCall};
use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::{Node, NodeMembers};
use super::segmented_text::SegmentedText;
use super::step::PolyfillStep;
use super::{content, dump};
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "tool_calls",
    applies: |context| context.options.tool_calls && !context.caps.supports_tool_calls,
    needs: |message, _| message.calls.is_some(),
    run,
};

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in conversation.messages.iter_mut().filter(|message| message.has_calls()) {
        let written = context.call_writer.and_then(|writer| native(message, writer));
        let content = written.unwrap_or_else(|| Node::Text(dump::indented(&envelope(message))));
        message.set_content(content);
        message.members.remove("tool_calls");
        changed = true;
    }
    Ok(changed)
}

/// The content and the calls in the model's format. `None` if a call's arguments are not an object.
fn native(message: &PolyfillMessage, writer: &dyn CallWriter) -> Option<Node> {
    let shapes: Vec<NodeMembers> = message.calls().iter().map(shape).collect();
    let arguments: Vec<Value> = shapes.iter().map(arguments).collect::<Option<_>>()?;
    let calls: Vec<SentCall<'_>> = shapes
        .iter()
        .zip(&arguments)
        .map(|(call, arguments)| {
            let text = |name| call.str(name).unwrap_or_default();
            SentCall { name: text("name"), arguments, id: text("id") }
        })
        .collect();
    let path = message.path();
    let text = SegmentedText::from_calls(writer.write(&calls)?, &path);
    let Some(content) = message.content() else { return Some(Node::Text(text)) };
    Some(content::join(Some(content.clone()), "\n", Some(Node::Text(text))))
}

/// A call's arguments. Some clients send them as JSON text.
fn arguments(call: &NodeMembers) -> Option<Value> {
    let arguments = match call.get("arguments") {
        Some(Node::Text(text)) => serde_json::from_str(text.as_str()).ok()?,
        Some(node) => node.to_json(),
        None => Value::Object(serde_json::Map::new()),
    };
    arguments.is_object().then_some(arguments)
}

/// Builds `{"tool_calls": […], "content"?}`.
fn envelope(message: &PolyfillMessage) -> Node {
    let calls = message.calls().iter().map(|call| Node::Map(shape(call))).collect();
    let mut object = NodeMembers::of([("tool_calls", Node::List(calls))]);
    if let Some(content) = content::compact(message.content()) {
        object.set("content", content);
    }
    Node::Map(object)
}

/// Builds `{"name","arguments","id"?}`.
fn shape(call: &Node) -> NodeMembers {
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
    out
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
