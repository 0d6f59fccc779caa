//! Steps that write tools, calls and results as text, for templates that do not show them.

use serde_json::Value;

use super::super::call_writer::{CallWriter, SentCall};
use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::node::{Node, NodeMembers};
use super::super::segmented_text::SegmentedText;
use super::super::step::PolyfillStep;
use super::super::{content, dump};
use crate::error::Result;
use crate::json;

const INTRODUCTION: &str =
    "You can call any of the following tools to satisfy the user's requests: ";

/// Adds the declared tools to the first system message as text, for templates that do not show
/// them. The text is minja's. The example of a call is the template's own rendering of one.
pub(super) const TOOLS: PolyfillStep = PolyfillStep {
    name: "tools",
    applies: |context| {
        context.options.tools && !context.caps.supports_tools && !context.tools.is_empty()
    },
    needs: |_, _| true,
    run: add_tools,
};

fn add_tools(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    if context.options.tool_call_examples && context.tool_call_example.is_none() {
        let message = "the tools were sent without an example of a call: the template writes none";
        conversation.report("tool_call_example_missing", None, message);
    }
    let text = Some(Node::Text(tools_text(context)));
    match conversation.messages.first_mut() {
        Some(first) if first.has_role("system") => {
            let joined = content::join(first.take_content(), "\n\n", text);
            first.set_content(joined);
        }
        _ => {
            let system = PolyfillMessage::new("system", content::join(None, "", text), None);
            conversation.messages.insert(0, system);
        }
    }
    Ok(true)
}

fn tools_text(context: &PolyfillContext) -> SegmentedText {
    let tools = context.tools.iter().enumerate();
    let tools = Node::List(
        tools.map(|(index, tool)| Node::from_member(tool, &format!("tools[{index}]"))).collect(),
    );
    let mut text = SegmentedText::literal(INTRODUCTION);
    text.push(&dump::indented(&tools));
    if let Some(example) = context.tool_call_example.filter(|_| context.options.tool_call_examples)
    {
        text.push_str("\n\nExample tool call syntax:\n\n");
        text.push_str(example);
        text.push_str("\n\n");
    }
    text
}

/// Turns calls into text of their message, for templates that do not show calls. The text is in the
/// model's format if that is known, else JSON in minja's shape.
pub(super) const TOOL_CALLS: PolyfillStep = PolyfillStep {
    name: "tool_calls",
    applies: |context| context.options.tool_calls && !context.caps.supports_tool_calls,
    needs: |message, _| message.calls.is_some(),
    run: |conversation, context| {
        Ok(conversation.change_each(|message| calls_to_text(message, context)))
    },
};

fn calls_to_text(message: &mut PolyfillMessage, context: &PolyfillContext) -> bool {
    if !message.has_calls() {
        return false;
    }
    let written = context.call_writer.and_then(|writer| native(message, writer));
    let content = written.unwrap_or_else(|| Node::Text(dump::indented(&envelope(message))));
    message.set_content(content);
    message.members.remove("tool_calls");
    true
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
        Some(Node::Text(text)) => json::value(text.as_str()).ok()?,
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

/// Rewrites tool results for templates that do not show them: as messages of the template's own
/// role for results, or as JSON text in user messages. The shape of the JSON is minja's.
pub(super) const TOOL_RESPONSES: PolyfillStep = PolyfillStep {
    name: "tool_responses",
    applies: |context| context.options.tool_responses && !context.caps.supports_tool_responses,
    needs: |message, _| message.role == "tool",
    run: |conversation, context| {
        Ok(conversation.change_each(|message| result_to_message(message, context)))
    },
};

fn result_to_message(message: &mut PolyfillMessage, context: &PolyfillContext) -> bool {
    if !message.has_role("tool") {
        return false;
    }
    if let Some(role) = context.call_writer.and_then(CallWriter::result_role) {
        message.members.set("role", Node::literal(role));
        return true;
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
    true
}

#[cfg(test)]
mod tests {
    mod tools {
        use crate::template::polyfill::tests::case::{NO_MESSAGE, PolyfillCase, traits};
        use crate::template::probe::traits::Traits;
        use serde_json::json;

        const TEXT: &str = "You can call any of the following tools to satisfy the user's requests: [\n  {\n    \"type\": \"function\",\n    \
                            \"function\": {\n      \"name\": \"f\",\n      \"description\": \"é\",\n      \"parameters\": {}\n    }\n  }\n]";

        fn lacking() -> Traits {
            let mut traits = traits();
            traits.caps.supports_tools = false;
            traits
        }

        #[test]
        fn cases() {
            let tools = json!([{"type": "function", "function": {"name": "f", "description": "é", "parameters": {}}}]);
            let user = json!({"role": "user", "content": "U"});
            let case = |traits, messages| PolyfillCase::new(traits, messages).tools(tools.clone());
            let missing = [("tool_call_example_missing", NO_MESSAGE)];
            let without = |messages| case(lacking(), messages).notes(&missing);
            without(json!([user]))
                .check(json!([{"role": "system", "content": TEXT}, user]), &["tools"]);
            without(json!([{"role": "system", "content": "S"}, user])).check(
                json!([{"role": "system", "content": format!("S\n\n{TEXT}")}, user]),
                &["tools"],
            );
            let parts = json!([{"type": "text", "text": "S"}]);
            without(json!([{"role": "system", "content": parts}, user])).check(
                json!([{"role": "system", "content": [{"type": "text", "text": "S"}, {"type": "text", "text": TEXT}]}, user]),
                &["tools"],
            );
            let mut example = lacking();
            example.tool_call_example = Some("<call>".to_owned());
            let text = format!("{TEXT}\n\nExample tool call syntax:\n\n<call>\n\n");
            case(example.clone(), json!([user]))
                .check(json!([{"role": "system", "content": text}, user]), &["tools"]);
            case(example, json!([user]))
                .with(|options| options.tool_call_examples = false)
                .check(json!([{"role": "system", "content": TEXT}, user]), &["tools"]);
            case(lacking(), json!([user])).with(|options| options.tools = false).unchanged();
            case(traits(), json!([user])).unchanged();
            PolyfillCase::new(lacking(), json!([user])).tools(json!([])).unchanged();
            let mut neither = lacking();
            neither.caps.supports_system_role = false;
            case(neither, json!([user])).notes(&missing).check(
                json!([{"role": "user", "content": format!("{TEXT}\nU")}]),
                &["tools", "system_role"],
            );
        }
    }

    mod tool_calls {
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
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

    mod tool_responses {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::json;

        #[test]
        fn cases() {
            let mut lacking = traits();
            lacking.caps.supports_tool_responses = false;
            let sent = json!([{"role": "tool", "name": "f", "content": "R\"", "tool_call_id": "x", "y": 1}]);
            let text = "{\n  \"tool_response\": {\n    \"tool\": \"f\",\n    \"content\": \"R\\\"\",\n    \"tool_call_id\": \"x\"\n  }\n}";
            PolyfillCase::new(lacking.clone(), sent.clone()).part().check(
                json!([{"role": "user", "content": text, "tool_call_id": "x", "y": 1}]),
                &["tool_responses"],
            );
            let text = "{\n  \"tool_response\": {\n    \"content\": \"a\\nb\"\n  }\n}";
            let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
            PolyfillCase::new(lacking.clone(), json!([{"role": "tool", "content": parts}]))
                .part()
                .check(json!([{"role": "user", "content": text}]), &["tool_responses"]);
            PolyfillCase::new(lacking, sent.clone())
                .part()
                .with(|options| options.tool_responses = false)
                .unchanged();
            PolyfillCase::new(traits(), sent).part().unchanged();
        }
    }
}
