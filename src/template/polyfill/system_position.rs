//! Moves system messages after the first message, for templates that lose or refuse them.

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::step::PolyfillStep;
use super::{content, system_role};
use crate::api::SystemPosition;
use crate::error::Result;
use crate::template::probe::traits::RoleSupport;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "system_position",
    applies,
    needs: |message, _| message.index > 0 && message.role == "system",
    run,
};

fn applies(context: &PolyfillContext) -> bool {
    context.options.system_role
        && context.caps.supports_system_role
        && context.details.later_system != RoleSupport::Shown
}

fn run(conversation: &mut PolyfillConversation, context: &PolyfillContext) -> Result<bool> {
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
        SystemPosition::User => system_role::merge_into_users(conversation, |index| index > 0),
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
    use super::super::tests::case::{PolyfillCase, traits};
    use crate::api::SystemPosition;
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
            PolyfillCase::new(traits, sent.clone()).notes(&[("system_message_moved", 2)]).check(
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
