//! Merges consecutive messages of the same role, for templates that require user and assistant to
//! alternate.

use super::super::content;
use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::node::Node;
use super::super::step::PolyfillStep;
use crate::error::Result;

/// Members that are joined like content. For other members, the first message's value is kept.
const JOINED: [&str; 4] = ["reasoning_content", "thinking", "reasoning", "thought"];

pub(super) const SAME_ROLE_MERGE: PolyfillStep = PolyfillStep {
    name: "same_role_merge",
    applies: |context| context.options.same_role_merge && context.details.needs_alternation,
    needs: |message, _| message.previous_role == Some(message.role),
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut out: Vec<PolyfillMessage> = Vec::with_capacity(conversation.messages.len());
    let mut merged = Vec::new();
    for message in std::mem::take(&mut conversation.messages) {
        match out.last_mut() {
            Some(last) if can_merge(last, &message) => {
                merged.push(message.index);
                append(last, message);
            }
            _ => out.push(message),
        }
    }
    conversation.messages = out;
    for index in merged.iter().filter(|index| index.is_some()) {
        conversation.report(
            "message_merged",
            *index,
            "the message was appended to the previous one, which has the same role",
        );
    }
    Ok(!merged.is_empty())
}

fn can_merge(first: &PolyfillMessage, second: &PolyfillMessage) -> bool {
    let mapping = |message: &PolyfillMessage| matches!(message.content(), Some(Node::Map(_)));
    if mapping(first) || mapping(second) {
        return false;
    }
    let assistants = first.has_role("assistant")
        && second.has_role("assistant")
        && !first.has_calls()
        && !second.has_calls();
    assistants || (first.has_role("user") && second.has_role("user"))
}

fn append(first: &mut PolyfillMessage, mut second: PolyfillMessage) {
    if first.content().is_some() || second.content().is_some() {
        let joined = content::join(first.take_content(), "\n\n", second.take_content());
        first.set_content(joined);
    }
    for member in second.members.iter() {
        let name = member.name.as_str();
        match (first.members.get(name), &member.node) {
            (None | Some(Node::Null), _) if name != "content" => {
                first.members.replace(member.clone())
            }
            (Some(Node::Text(text)), Node::Text(more)) if JOINED.contains(&name) => {
                let joined = text.clone().followed_by("\n\n", more);
                first.members.set(name, Node::Text(joined));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let mut alternating = traits();
        alternating.details.needs_alternation = true;
        let user = |text: &str| json!({"role": "user", "content": text});
        let assistant = |text: &str| json!({"role": "assistant", "content": text});
        let sent =
            json!([user("U"), user("V"), user("W"), assistant("A"), assistant("B"), user("X")]);
        PolyfillCase::new(alternating.clone(), sent.clone())
            .notes(&[("message_merged", 1), ("message_merged", 2), ("message_merged", 4)])
            .check(
                json!([user("U\n\nV\n\nW"), assistant("A\n\nB"), user("X")]),
                &["same_role_merge"],
            );
        PolyfillCase::new(alternating.clone(), sent.clone())
            .with(|options| options.same_role_merge = false)
            .unchanged();
        PolyfillCase::new(traits(), sent).unchanged();

        let calls =
            json!({"role": "assistant", "content": "C", "tool_calls": [call("1", "f", json!({}))]});
        PolyfillCase::new(alternating.clone(), json!([assistant("A"), calls])).unchanged();

        let part = |text: &str| json!({"type": "text", "text": text});
        PolyfillCase::new(
            alternating.clone(),
            json!([user("U"), {"role": "user", "content": [part("V")], "name": "n"}]),
        )
        .notes(&[("message_merged", 1)])
        .check(
            json!([{"role": "user", "content": [part("U"), part("V")], "name": "n"}]),
            &["same_role_merge"],
        );
        PolyfillCase::new(
            alternating.clone(),
            json!([{"role": "assistant", "reasoning_content": "R"}, {"role": "assistant", "content": "A", "reasoning_content": "S"}]),
        )
        .notes(&[("message_merged", 1)])
        .check(json!([{"role": "assistant", "content": "A", "reasoning_content": "R\n\nS"}]), &["same_role_merge"]);

        // Adjacent messages of one role that polyfills created.
        alternating.caps.supports_tool_responses = false;
        let response = "{\n  \"tool_response\": {\n    \"content\": \"R\"\n  }\n}";
        PolyfillCase::new(alternating, json!([{"role": "tool", "content": "R"}, user("U")]))
            .part()
            .notes(&[("message_merged", 1)])
            .check(
                json!([user(&format!("{response}\n\nU"))]),
                &["tool_responses", "same_role_merge"],
            );
    }
}
