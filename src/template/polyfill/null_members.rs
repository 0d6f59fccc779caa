//! Members that are null are left out, for templates that ask whether a member is there. What a
//! null content becomes is `null_content`'s business.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use crate::error::Result;

pub(super) fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
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
