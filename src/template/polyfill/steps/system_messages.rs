//! Steps for system and developer messages that a template loses or refuses: renamed, merged into
//! user messages, or moved to the start.
//!
//! By default a later message keeps its place, so that the prompt still begins with the last one.

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
/// message there, but never between calls and their results.
fn merge_into_users(conversation: &mut PolyfillConversation, choose: impl Fn(usize) -> bool) {
    let mut out: Vec<PolyfillMessage> = Vec::with_capacity(conversation.messages.len());
    // The system messages that wait for a user message.
    let mut waiting: Vec<PolyfillMessage> = Vec::new();
    let mut notes = Vec::new();
    for (position, mut message) in
        std::mem::take(&mut conversation.messages).into_iter().enumerate()
    {
        if message.has_role("system") && choose(position) {
            waiting.push(message);
            continue;
        }
        let in_exchange = message.has_role("tool")
            && out.last().is_some_and(|last| last.has_role("tool") || last.has_calls());
        if !in_exchange {
            let is_user = message.has_role("user");
            notes.extend(waiting.iter().map(|system| (system.index, is_user)));
            let system = joined(std::mem::take(&mut waiting))
                .filter(|system| system.content() != Some(&Node::literal("")));
            match (system, is_user) {
                (Some(mut user), true) => {
                    let content = content::join(user.take_content(), "\n", message.take_content());
                    message.set_content(content);
                    out.push(message);
                    continue;
                }
                (user, _) => out.extend(user),
            }
        }
        out.push(message);
    }
    notes.extend(waiting.iter().map(|system| (system.index, false)));
    out.extend(joined(waiting));
    conversation.messages = out;
    // A step added the others.
    for (index, is_joined) in notes.into_iter().filter(|(index, _)| index.is_some()) {
        let message = if is_joined {
            "the system message was sent as the beginning of the next user message"
        } else {
            "the system message was sent as a user message"
        };
        conversation.report("system_message_merged", index, message);
    }
}

/// One user message with the content of these system messages; `None` if there are none.
fn joined(systems: Vec<PolyfillMessage>) -> Option<PolyfillMessage> {
    let index = systems.first()?.index;
    let content = systems.into_iter().fold(None, |joined: Option<Node>, mut system| {
        Some(match joined {
            Some(joined) => content::join(Some(joined), "\n", system.take_content()),
            None => content::join(None, "", system.take_content()),
        })
    })?;
    Some(PolyfillMessage::new("user", content, index))
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
        SystemPosition::Hoist => hoist(conversation, |_| true),
        SystemPosition::User => {
            let at_start = conversation
                .messages
                .iter()
                .take_while(|message| message.has_role("system"))
                .count();
            let no_place = if context.details.refuses_user_after_result {
                systems_after_results(&conversation.messages)
            } else {
                Vec::new()
            };
            hoist(conversation, |position| position < at_start || no_place.contains(&position));
            merge_into_users(conversation, |position| position > 0);
        }
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

/// The positions of system messages that follow a result, and that no user message follows.
fn systems_after_results(messages: &[PolyfillMessage]) -> Vec<usize> {
    let mut positions = Vec::new();
    let mut start = 0;
    for run in messages.chunk_by(|a, b| a.has_role("system") == b.has_role("system")) {
        let range = start..start + run.len();
        start = range.end;
        let follows_result = range.start > 0 && messages[range.start - 1].has_role("tool");
        let user_follows = messages.get(range.end).is_some_and(|next| next.has_role("user"));
        if run[0].has_role("system") && follows_result && !user_follows {
            positions.extend(range);
        }
    }
    positions
}

/// Appends the later system messages at the positions that `choose` accepts to the first message if
/// that is a system message. Otherwise puts them first.
fn hoist(conversation: &mut PolyfillConversation, choose: impl Fn(usize) -> bool) {
    let mut first: Option<PolyfillMessage> = None;
    let mut others = Vec::with_capacity(conversation.messages.len());
    for (position, mut message) in
        std::mem::take(&mut conversation.messages).into_iter().enumerate()
    {
        if !message.has_role("system") || position > 0 && !choose(position) {
            others.push(message);
            continue;
        }
        if position > 0 {
            conversation.report(
                "system_message_moved",
                message.index,
                "the system message was moved to the start of the conversation",
            );
        }
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
    conversation.messages.extend(others);
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
                .part()
                .notes(&notes)
                .check(Value::Array(messages(after)), &["system_role"]);
            PolyfillCase::new(traits(), before.clone()).part().unchanged();
            PolyfillCase::new(lacking, before)
                .part()
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
        use crate::template::polyfill::tests::case::{PolyfillCase, call, traits};
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
        fn the_beginning_of_the_prompt_stays() {
            let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
            let after = messages(&[("system", "S"), ("user", "U"), ("user", "T\nV")]);
            for fate in [RoleSupport::Lost, RoleSupport::Refused] {
                let mut traits = loses_later_system();
                traits.details.later_system = fate;
                PolyfillCase::new(traits, sent.clone())
                    .notes(&[("system_message_merged", 2)])
                    .check(after.clone(), &["system_position"]);
            }
            // Before an answer, or at the end, it is a user message of its own.
            PolyfillCase::new(
                loses_later_system(),
                messages(&[("user", "U"), ("system", "S"), ("assistant", "A"), ("system", "T")]),
            )
            .notes(&[("system_message_merged", 1), ("system_message_merged", 3)])
            .check(
                messages(&[("user", "U"), ("user", "S"), ("assistant", "A"), ("user", "T")]),
                &["system_position"],
            );
            // System messages at the start are one.
            PolyfillCase::new(
                loses_later_system(),
                messages(&[("system", "S"), ("system", "T"), ("user", "U"), ("system", "X")]),
            )
            .notes(&[("system_message_moved", 1), ("system_message_merged", 3)])
            .check(
                messages(&[("system", "S\n\nT"), ("user", "U"), ("user", "X")]),
                &["system_position"],
            );
            PolyfillCase::new(loses_later_system(), messages(&[("system", "S"), ("user", "U")]))
                .unchanged();
            PolyfillCase::new(traits(), sent.clone()).unchanged();
            PolyfillCase::new(loses_later_system(), sent)
                .with(|options| options.system_role = false)
                .unchanged();
        }

        #[test]
        fn results_stay_next_to_their_calls() {
            let user = json!({"role": "user", "content": "U"});
            let system = json!({"role": "system", "content": "S"});
            let calls = json!({"role": "assistant", "content": "A", "tool_calls": [call("a", "f", json!({})), call("b", "f", json!({}))]});
            let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
            let own = json!({"role": "user", "content": "S"});
            PolyfillCase::new(
                loses_later_system(),
                json!([user, calls, result("a"), system, result("b")]),
            )
            .part()
            .notes(&[("system_message_merged", 3)])
            .check(json!([user, calls, result("a"), result("b"), own]), &["system_position"]);
            let sent = json!([user, calls, result("a"), result("b"), system]);
            PolyfillCase::new(loses_later_system(), sent.clone())
                .notes(&[("system_message_merged", 4)])
                .check(json!([user, calls, result("a"), result("b"), own]), &["system_position"]);
            // The template has no place for a user message there.
            let mut strict = loses_later_system();
            strict.details.refuses_user_after_result = true;
            PolyfillCase::new(strict.clone(), sent).notes(&[("system_message_moved", 4)]).check(
                json!([system, user, calls, result("a"), result("b")]),
                &["system_position"],
            );
            PolyfillCase::new(strict, json!([user, calls, result("a"), result("b"), user, system]))
                .notes(&[("system_message_merged", 5)])
                .check(
                    json!([user, calls, result("a"), result("b"), user, own]),
                    &["system_position"],
                );
        }

        #[test]
        fn hoist_and_keep_options() {
            let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
            PolyfillCase::new(loses_later_system(), sent.clone())
                .with(|options| options.system_position = SystemPosition::Hoist)
                .notes(&[("system_message_moved", 2)])
                .check(
                    messages(&[("system", "S\n\nT"), ("user", "U"), ("user", "V")]),
                    &["system_position"],
                );
            PolyfillCase::new(
                loses_later_system(),
                messages(&[("user", "U"), ("system", "S"), ("system", "T")]),
            )
            .with(|options| options.system_position = SystemPosition::Hoist)
            .notes(&[("system_message_moved", 1), ("system_message_moved", 2)])
            .check(messages(&[("system", "S\n\nT"), ("user", "U")]), &["system_position"]);
            PolyfillCase::new(loses_later_system(), sent)
                .with(|options| options.system_position = SystemPosition::Keep)
                .notes(&[("system_message_not_rendered", 2)])
                .unchanged();
        }
    }
}
