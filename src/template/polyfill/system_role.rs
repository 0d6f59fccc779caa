//! System messages as part of the user messages that follow them, for templates that do not show
//! system messages.

use super::content;
use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::node::Node;
use crate::error::Result;

pub(super) fn wanted(context: &PolyfillContext) -> bool {
    context.options.system_role && !context.caps.supports_system_role
}

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    if !wanted(context) || !conversation.messages.iter().any(|message| message.is("system")) {
        return Ok(false);
    }
    let folded = fold(conversation, |_| true);
    for index in folded {
        conversation.note(
            "system_message_merged",
            Some(index),
            "the system message was sent as part of a user message",
        );
    }
    Ok(true)
}

/// Takes out the system messages at the positions that `choose` names, and puts their content in
/// front of the next user message, or into a user message of its own where another message comes
/// first. Returns which they were in the request.
pub(super) fn fold(
    conversation: &mut PolyfillConversation,
    choose: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut folded = Vec::new();
    let mut out: Vec<PolyfillMessage> = Vec::with_capacity(conversation.messages.len());
    // The content that waits, and the first message it came from.
    let mut pending: Option<(Node, Option<usize>)> = None;
    for (position, mut message) in
        std::mem::take(&mut conversation.messages).into_iter().enumerate()
    {
        if message.is("system") && choose(position) {
            folded.extend(message.index);
            let content = message.take_content();
            pending = Some(match pending {
                Some((waiting, index)) => (content::join(Some(waiting), "\n", content), index),
                None => (content::join(None, "", content), message.index),
            });
            continue;
        }
        if let Some((waiting, index)) =
            pending.take().filter(|(waiting, _)| *waiting != Node::own(""))
        {
            if message.is("user") {
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
    folded
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
    fn an_assistant_without_content_comes_behind() {
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
