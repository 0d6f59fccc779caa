//! The step that shows the schema of the reply to the model. Requests ask for it: a grammar
//! enforces the schema in any case, but cannot tell what its members are for.

use super::super::content;
use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::dump;
use super::super::node::Node;
use super::super::segmented_text::SegmentedText;
use super::super::step::PolyfillStep;
use crate::error::Result;

const INTRODUCTION: &str = "Answer with JSON that matches this JSON Schema:\n\n";
const PATH: &str = "response_format.json_schema.schema";

/// Appends the schema to the last user message, where it changes the least of a cached prompt. A
/// conversation without one gets a system message.
pub(super) const SCHEMA_IN_PROMPT: PolyfillStep = PolyfillStep {
    name: "schema_in_prompt",
    applies: |context| context.schema.is_some(),
    needs: |_, _| true,
    run: add_schema,
};

fn add_schema(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let Some(schema) = context.schema else { return Ok(false) };
    let mut text = SegmentedText::literal(INTRODUCTION);
    text.push(&dump::plain(&Node::from_member(schema, PATH)));
    let text = Some(Node::Text(text));
    let messages = &mut conversation.messages;
    match messages.iter_mut().rev().find(|message| message.has_role("user")) {
        Some(user) => {
            let joined = content::join(user.take_content(), "\n\n", text);
            user.set_content(joined);
        }
        None => {
            let system = PolyfillMessage::new("system", content::join(None, "", text), None);
            messages.insert(0, system);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::template::polyfill::tests::case::{PolyfillCase, traits};

    const TEXT: &str = "Answer with JSON that matches this JSON Schema:\n\n\
                        {\"type\": \"object\", \"title\": \"é\"}";

    #[test]
    fn cases() {
        let schema = json!({"type": "object", "title": "é"});
        let (user, reply) =
            (json!({"role": "user", "content": "U"}), json!({"role": "assistant", "content": "A"}));
        let shown = json!({"role": "user", "content": format!("U\n\n{TEXT}")});
        let case = |messages| PolyfillCase::new(traits(), messages).schema(schema.clone());
        case(json!([user, reply, user])).check(json!([user, reply, shown]), &["schema_in_prompt"]);
        case(json!([user, reply])).check(json!([shown, reply]), &["schema_in_prompt"]);
        let parts = json!([{"type": "text", "text": "U"}]);
        case(json!([{"role": "user", "content": parts}])).check(
            json!([{"role": "user", "content": [
                {"type": "text", "text": "U"}, {"type": "text", "text": TEXT},
            ]}]),
            &["schema_in_prompt"],
        );
        case(json!([reply]))
            .check(json!([{"role": "system", "content": TEXT}, reply]), &["schema_in_prompt"]);
        case(json!([user])).with(|options| options.apply_polyfills = false).unchanged();
        PolyfillCase::new(traits(), json!([user])).unchanged();
    }
}
