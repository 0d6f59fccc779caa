//! An empty list of calls is left out: templates take the member for a call.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use crate::error::Result;

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    let mut changed = false;
    if context.options.empty_tool_calls {
        for message in &mut conversation.messages {
            changed |= message.members.retain(|name, node| {
                name != "tool_calls" || !matches!(node, Node::List(calls) if calls.is_empty())
            });
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use serde_json::json;

    #[test]
    fn cases() {
        let empty = json!([{"role": "assistant", "content": "A", "tool_calls": []}]);
        PolyfillCase::new(traits(), empty.clone())
            .check(json!([{"role": "assistant", "content": "A"}]), &["empty_tool_calls"]);
        PolyfillCase::new(traits(), empty)
            .with(|options| options.empty_tool_calls = false)
            .unchanged();
    }
}
