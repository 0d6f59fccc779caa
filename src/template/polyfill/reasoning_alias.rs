//! Unifies the names of an assistant's reasoning. `reasoning_content` becomes the first of itself,
//! `thinking` and `reasoning` that is not null, as in transformers 5.23.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::step::{PolyfillStep, always};
use crate::error::Result;

const ALIASES: [&str; 2] = ["thinking", "reasoning"];

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "reasoning_alias",
    applies: always,
    needs: |message, _| {
        message.role == "assistant"
            && !message.has_text("reasoning_content")
            && ALIASES.iter().any(|name| message.has_text(name))
    },
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut changed = false;
    for message in conversation.messages.iter_mut().filter(|message| message.has_role("assistant"))
    {
        if message.members.text("reasoning_content").is_some() {
            continue;
        }
        let alias = ALIASES.into_iter().find(|name| message.members.text(name).is_some());
        if let Some(node) = alias.and_then(|name| message.members.get(name)).cloned() {
            message.members.set("reasoning_content", node);
            changed = true;
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
        PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R"}])).check(
            json!([{"role": "assistant", "content": "A", "reasoning": "R", "reasoning_content": "R"}]),
            &["reasoning_alias"],
        );
        PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R", "thinking": "T"}])).check(
            json!([{"role": "assistant", "content": "A", "reasoning": "R", "thinking": "T", "reasoning_content": "T"}]),
            &["reasoning_alias"],
        );
        PolyfillCase::new(traits(), json!([{"role": "assistant", "content": "A", "reasoning": "R", "reasoning_content": "C"}]))
            .unchanged();
        PolyfillCase::new(traits(), json!([{"role": "user", "content": "A", "reasoning": "R"}]))
            .unchanged();
    }
}
