//! Adds the declared tools to the first system message as text, for templates that do not show
//! them.
//!
//! The text is minja's. The example of a call is the template's own rendering of one.

use super::content;
use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::dump;
use super::node::Node;
use super::segmented_text::SegmentedText;
use super::step::PolyfillStep;
use crate::error::Result;

const INTRODUCTION: &str =
    "You can call any of the following tools to satisfy the user's requests: ";

pub(super) const STEP: PolyfillStep =
    PolyfillStep { name: "tools", applies, needs: |_, _| true, run };

fn applies(context: &PolyfillContext) -> bool {
    context.options.tools && !context.caps.supports_tools && !context.tools.is_empty()
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    if context.options.tool_call_examples && context.tool_call_example.is_none() {
        let message = "the tools were sent without an example of a call: the template writes none";
        conversation.report("tool_call_example_missing", None, message);
    }
    let text = Some(Node::Text(text(context)));
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

fn text(context: &PolyfillContext) -> SegmentedText {
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

#[cfg(test)]
mod tests {
    use super::super::tests::case::{NO_MESSAGE, PolyfillCase, traits};
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
