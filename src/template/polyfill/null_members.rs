//! Removes null members, for templates that test whether a member is present. Null content is left
//! to `null_content`.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use super::step::{PolyfillStep, always};
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "null_members",
    applies: always,
    needs: |message, _| message.members().any(|(name, value)| value.is_null() && name != "content"),
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in &mut conversation.messages {
        changed |= message.members.retain(|name, node| name == "content" || *node != Node::Null);
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        PolyfillCase::new(
            traits(),
            json!([{"role": "user", "content": "U", "name": null, "x": 1}]),
        )
        .check(json!([{"role": "user", "content": "U", "x": 1}]), &["null_members"]);
        PolyfillCase::new(
            traits(),
            json!([{"role": "assistant", "content": "A", "tool_calls": null}]),
        )
        .check(json!([{"role": "assistant", "content": "A"}]), &["null_members"]);
    }
}
