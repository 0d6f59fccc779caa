//! Steps for system and developer messages that a template loses or refuses: renamed, merged into
//! user messages, or moved to the start.

use super::super::content;
use super::super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::super::node::Node;
use super::super::step::PolyfillStep;
use crate::api::SystemPosition;
use crate::error::Result;
use crate::template::probe::traits::RoleSupport;

/// Turns developer messages into system messages, for templates that lose or refuse them but show
/// system messages, natively or by [`SYSTEM_ROLE`].
pub(super) const DEVELOPER_ROLE: PolyfillStep = PolyfillStep {
    name: "developer_role",
    applies: |context| {
        let shows_system = context.caps.supports_system_role || context.options.system_role;
        context.options.developer_role
            && context.details.developer != RoleSupport::Shown
            && shows_system
    },
    needs: |message, _| message.role == "developer",
    run: rename_developer,
};

fn rename_developer(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
    let mut renamed = Vec::new();
    for message in conversation.messages.iter_mut().filter(|message| message.has_role("developer"))
    {
        message.members.set("role", Node::literal("system"));
        renamed.push(message.index);
    }
    for index in &renamed {
        conversation.report(
            "developer_message_renamed",
            *index,
            "the developer message was sent as a system message",
        );
    }
    Ok(!renamed.is_empty())
}

/// Makes system messages part of the following user messages, for templates that do not show system
/// messages.
pub(super) const SYSTEM_ROLE: PolyfillStep = PolyfillStep {
    name: "system_role",
    applies: |context| context.options.system_role && !context.caps.supports_system_role,
    needs: |message, _| message.role == "system",
    run: |conversation, _| {
        let changed = conversation.messages.iter().any(|message| message.has_role("system"));
        if changed {
            merge_into_users(conversation, |_| true);
        }
        Ok(changed)
    },
};

/// Removes the system messages at the positions that `choose` accepts. Their content is put before
/// the content of the next user message. If another message comes first, it becomes a separate user
/// message.
fn merge_into_users(conversation: &mut PolyfillConversation, choose: impl Fn(usize) -> bool) {
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

/// Moves system messages after the first message, for templates that lose or refuse them.
pub(super) const SYSTEM_POSITION: PolyfillStep = PolyfillStep {
    name: "system_position",
    applies: |context| {
        context.options.system_role
            && context.caps.supports_system_role
            && context.details.later_system != RoleSupport::Shown
    },
    needs: |message, _| message.index > 0 && message.role == "system",
    run: move_later,
};

fn move_later(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
    let later: Vec<_> = conversation
        .messages
        .iter()
        .skip(1)
        .filter(|message| message.has_role("system"))
        .map(|message| message.index)
        .collect();
    match context.options.system_position {
        _ if later.is_empty() => return Ok(false),
        SystemPosition::Hoist => hoist(conversation),
        SystemPosition::User => merge_into_users(conversation, |index| index > 0),
        SystemPosition::Keep => {
            if context.details.later_system == RoleSupport::Lost {
                for index in later {
                    conversation.report(
                        "system_message_not_rendered",
                        index,
                        "the template does not show a system message after the first message",
                    );
                }
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Appends later system messages to the first message if that is a system message. Otherwise puts
/// them first.
fn hoist(conversation: &mut PolyfillConversation) {
    let mut messages = std::mem::take(&mut conversation.messages).into_iter().peekable();
    let mut first = messages.next_if(|message| message.has_role("system"));
    let (later, rest): (Vec<PolyfillMessage>, Vec<PolyfillMessage>) =
        messages.partition(|message| message.has_role("system"));
    for mut message in later {
        conversation.report(
            "system_message_moved",
            message.index,
            "the system message was moved to the start of the conversation",
        );
        first = Some(match first {
            Some(mut first) => {
                let joined = content::join(first.take_content(), "\n\n", message.take_content());
                first.set_content(joined);
                first
            }
            None => message,
        });
    }
    conversation.messages.extend(first);
    conversation.messages.extend(rest);
}

#[cfg(test)]
mod tests {
    mod developer_role {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use crate::template::probe::traits::RoleSupport;
        use serde_json::json;

        #[test]
        fn cases() {
            let sent =
                json!([{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}]);
            let mut lost = traits();
            lost.details.developer = RoleSupport::Lost;
            PolyfillCase::new(lost.clone(), sent.clone())
                .notes(&[("developer_message_renamed", 0)])
                .check(
                    json!([{"role": "system", "content": "D"}, {"role": "user", "content": "U"}]),
                    &["developer_role"],
                );
            PolyfillCase::new(lost.clone(), sent.clone())
                .with(|options| options.developer_role = false)
                .unchanged();
            PolyfillCase::new(traits(), sent.clone()).unchanged();
            lost.caps.supports_system_role = false;
            lost.details.developer = RoleSupport::Refused;
            PolyfillCase::new(lost.clone(), sent.clone())
                .notes(&[("developer_message_renamed", 0), ("system_message_merged", 0)])
                .check(
                    json!([{"role": "user", "content": "D\nU"}]),
                    &["developer_role", "system_role"],
                );
            PolyfillCase::new(lost, sent).with(|options| options.system_role = false).unchanged();
        }
    }

    mod system_role {
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use serde_json::{Value, json};

        #[track_caller]
        fn check(before: &[(&str, Value)], merged: &[usize], after: &[(&str, Value)]) {
            let messages = |list: &[(&str, Value)]| {
                list.iter()
                    .map(|(role, content)| json!({"role": role, "content": content}))
                    .collect()
            };
            let mut lacking = traits();
            lacking.caps.supports_system_role = false;
            let notes: Vec<_> =
                merged.iter().map(|index| ("system_message_merged", *index)).collect();
            let before = Value::Array(messages(before));
            PolyfillCase::new(lacking.clone(), before.clone())
                .notes(&notes)
                .check(Value::Array(messages(after)), &["system_role"]);
            PolyfillCase::new(traits(), before.clone()).unchanged();
            PolyfillCase::new(lacking, before)
                .with(|options| options.system_role = false)
                .unchanged();
        }

        #[test]
        fn cases() {
            let (s, u, a) =
                (("system", json!("S")), ("user", json!("U")), ("assistant", json!("A")));
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

    mod system_position {
        use crate::api::SystemPosition;
        use crate::template::polyfill::tests::case::{PolyfillCase, traits};
        use crate::template::probe::traits::{RoleSupport, Traits};
        use serde_json::{Value, json};

        fn loses_later_system() -> Traits {
            let mut traits = traits();
            traits.details.later_system = RoleSupport::Lost;
            traits
        }

        fn messages(list: &[(&str, &str)]) -> Value {
            list.iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
        }

        #[test]
        fn hoist() {
            let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
            for fate in [RoleSupport::Lost, RoleSupport::Refused] {
                let mut traits = loses_later_system();
                traits.details.later_system = fate;
                PolyfillCase::new(traits, sent.clone())
                    .notes(&[("system_message_moved", 2)])
                    .check(
                        messages(&[("system", "S\n\nT"), ("user", "U"), ("user", "V")]),
                        &["system_position"],
                    );
            }
            PolyfillCase::new(
                loses_later_system(),
                messages(&[("user", "U"), ("system", "S"), ("system", "T")]),
            )
            .notes(&[("system_message_moved", 1), ("system_message_moved", 2)])
            .check(messages(&[("system", "S\n\nT"), ("user", "U")]), &["system_position"]);
            PolyfillCase::new(loses_later_system(), messages(&[("system", "S"), ("user", "U")]))
                .unchanged();
            PolyfillCase::new(traits(), sent.clone()).unchanged();
            PolyfillCase::new(loses_later_system(), sent)
                .with(|options| options.system_role = false)
                .unchanged();
        }

        #[test]
        fn user_and_keep_options() {
            let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
            PolyfillCase::new(loses_later_system(), sent.clone())
                .with(|options| options.system_position = SystemPosition::User)
                .notes(&[("system_message_merged", 2)])
                .check(
                    messages(&[("system", "S"), ("user", "U"), ("user", "T\nV")]),
                    &["system_position"],
                );
            PolyfillCase::new(loses_later_system(), sent)
                .with(|options| options.system_position = SystemPosition::Keep)
                .notes(&[("system_message_not_rendered", 2)])
                .unchanged();
        }
    }
}
