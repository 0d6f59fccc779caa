//! Removes empty lists of calls, because templates mistake the member for a call.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use super::step::PolyfillStep;
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "empty_tool_calls",
    applies: |context| context.options.empty_tool_calls,
    needs: |message, _| message.calls.is_some_and(<[_]>::is_empty),
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in &mut conversation.messages {
        changed |= message.members.retain(|name, node| {
            name != "tool_calls" || !matches!(node, Node::List(calls) if calls.is_empty())
        });
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
