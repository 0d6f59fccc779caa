//! Makes system messages part of the following user messages, for templates that do not show system
//! messages.

use super::content;
use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::step::PolyfillStep;
use crate::error::Result;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "system_role",
    applies: |context| context.options.system_role && !context.caps.supports_system_role,
    needs: |message, _| message.role == "system",
    run,
};

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let changed = conversation.messages.iter().any(|message| message.has_role("system"));
    if changed {
        merge_into_users(conversation, |_| true);
    }
    Ok(changed)
}

/// Removes the system messages at the positions that `choose` accepts. Their content is put before
/// the content of the next user message. If another message comes first, it becomes a separate user
/// message.
pub(super) fn merge_into_users(
    conversation: &mut PolyfillConversation,
    choose: impl Fn(usize) -> bool,
) {
    let mut merged = Vec::new();
    let mut out: Vec<PolyfillMessage> = Vec::with_capacity(conversation.messages.len());
    // The content that waits for a user message, and the first message that it came from.
    let mut pending: Option<(Node, Option<usize>)> = None;
    for (position, mut message) in
        std::mem::take(&mut conversation.messages).into_iter().enumerate()
    {
        if message.has_role("system") && choose(position) {
            merged.extend(message.index);
            let content = message.take_content();
            pending = Some(match pending {
                Some((waiting, index)) => (content::join(Some(waiting), "\n", content), index),
                None => (content::join(None, "", content), message.index),
            });
            continue;
        }
        if let Some((waiting, index)) =
            pending.take().filter(|(waiting, _)| *waiting != Node::literal(""))
        {
            if message.has_role("user") {
                let content = message.take_content();
                message.set_content(content::join(Some(waiting), "\n", content));
            } else {
                out.push(PolyfillMessage::new("user", waiting, index));
            }
        }
        out.push(message);
    }
    if let Some((waiting, index)) = pending {
        out.push(PolyfillMessage::new("user", waiting, index));
    }
    conversation.messages = out;
    for index in merged {
        conversation.report(
            "system_message_merged",
            Some(index),
            "the system message was sent as part of a user message",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(before: &[(&str, Value)], merged: &[usize], after: &[(&str, Value)]) {
        let messages = |list: &[(&str, Value)]| {
            list.iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
        };
        let mut lacking = traits();
        lacking.caps.supports_system_role = false;
        let notes: Vec<_> = merged.iter().map(|index| ("system_message_merged", *index)).collect();
        let before = Value::Array(messages(before));
        PolyfillCase::new(lacking.clone(), before.clone())
            .notes(&notes)
            .check(Value::Array(messages(after)), &["system_role"]);
        PolyfillCase::new(traits(), before.clone()).unchanged();
        PolyfillCase::new(lacking, before).with(|options| options.system_role = false).unchanged();
    }

    #[test]
    fn cases() {
        let (s, u, a) = (("system", json!("S")), ("user", json!("U")), ("assistant", json!("A")));
        let own = ("user", json!("S"));
        check(&[s.clone(), u.clone()], &[0], &[("user", json!("S\nU"))]);
        check(&[s.clone(), ("user", json!(""))], &[0], std::slice::from_ref(&own));
        check(&[s.clone(), s.clone(), u.clone()], &[0, 1], &[("user", json!("S\nS\nU"))]);
        check(&[s.clone(), a.clone(), u.clone()], &[0], &[own.clone(), a.clone(), u.clone()]);
        check(&[s.clone(), ("tool", json!("R"))], &[0], &[own.clone(), ("tool", json!("R"))]);
        check(&[u.clone(), s.clone(), u.clone()], &[1], &[u.clone(), ("user", json!("S\nU"))]);
        check(&[u.clone(), a.clone(), s.clone()], &[2], &[u.clone(), a, own]);
        check(&[("system", json!("")), u.clone()], &[0], &[u]);
    }

    #[test]
    fn an_assistant_without_content_follows() {
        let mut lacking = traits();
        lacking.caps.supports_system_role = false;
        let silent = json!({"role": "assistant", "reasoning_content": "R"});
        PolyfillCase::new(lacking, json!([{"role": "system", "content": "S"}, silent]))
            .notes(&[("system_message_merged", 0)])
            .check(json!([{"role": "user", "content": "S"}, silent]), &["system_role"]);
    }

    #[test]
    fn lists_stay_lists() {
        let part = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        check(
            &[("system", json!("S")), ("user", json!([part("U"), image]))],
            &[0],
            &[("user", json!([part("S"), part("U"), image]))],
        );
        check(
            &[("system", json!([part("S")])), ("user", json!("U"))],
            &[0],
            &[("user", json!([part("S"), part("U")]))],
        );
    }
}
