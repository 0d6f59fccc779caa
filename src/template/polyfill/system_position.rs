//! System messages that are not the first message, where the template loses or refuses them.

use super::conversation::{PolyfillContext, PolyfillConversation, PolyfillMessage};
use super::{content, system_role};
use crate::api::SystemPosition;
use crate::error::Result;
use crate::template::probe::traits::Fate;

pub(super) fn wanted(context: &PolyfillContext) -> bool {
    context.options.system_role
        && context.caps.supports_system_role
        && context.details.later_system != Fate::Shown
}

pub(super) fn run(
    conversation: &mut PolyfillConversation,
    context: &PolyfillContext,
) -> Result<bool> {
    let mut later = conversation.messages.iter().skip(1).filter(|message| message.is("system"));
    if !wanted(context) || later.next().is_none() {
        return Ok(false);
    }
    match context.options.system_position {
        SystemPosition::Hoist => hoist(conversation),
        SystemPosition::User => {
            for index in system_role::fold(conversation, |position| position > 0) {
                conversation.note(
                    "system_message_merged",
                    Some(index),
                    "the system message was sent as part of a user message",
                );
            }
        }
        SystemPosition::Keep => {
            let lost: Vec<_> = conversation
                .messages
                .iter()
                .skip(1)
                .filter(|message| message.is("system"))
                .collect();
            let lost: Vec<_> = lost.into_iter().map(|message| message.index).collect();
            for index in lost.into_iter().filter(|_| context.details.later_system == Fate::Lost) {
                conversation.note(
                    "system_message_not_rendered",
                    index,
                    "the template does not show a later system message",
                );
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Appends later system messages to the first message, which becomes a system message if it is
/// none.
fn hoist(conversation: &mut PolyfillConversation) {
    let mut messages = std::mem::take(&mut conversation.messages).into_iter().peekable();
    let first = messages.next_if(|message| message.is("system"));
    let (later, rest): (Vec<PolyfillMessage>, Vec<PolyfillMessage>) =
        messages.partition(|message| message.is("system"));
    let mut first = first;
    for mut message in later {
        conversation.note(
            "system_message_moved",
            message.index,
            "the system message was sent with the first one",
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
    use crate::template::probe::traits::{Fate, Traits};
    use serde_json::{Value, json};

    fn losing() -> Traits {
        let mut traits = traits();
        traits.details.later_system = Fate::Lost;
        traits
    }

    fn messages(list: &[(&str, &str)]) -> Value {
        list.iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }

    #[test]
    fn hoist() {
        let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
        for fate in [Fate::Lost, Fate::Refused] {
            let mut traits = losing();
            traits.details.later_system = fate;
            PolyfillCase::new(traits, sent.clone()).notes(&[("system_message_moved", 2)]).check(
                messages(&[("system", "S\n\nT"), ("user", "U"), ("user", "V")]),
                &["system_position"],
            );
        }
        PolyfillCase::new(losing(), messages(&[("user", "U"), ("system", "S"), ("system", "T")]))
            .notes(&[("system_message_moved", 1), ("system_message_moved", 2)])
            .check(messages(&[("system", "S\n\nT"), ("user", "U")]), &["system_position"]);
        PolyfillCase::new(losing(), messages(&[("system", "S"), ("user", "U")])).unchanged();
        PolyfillCase::new(traits(), sent.clone()).unchanged();
        PolyfillCase::new(losing(), sent).with(|options| options.system_role = false).unchanged();
    }

    #[test]
    fn user_and_keep() {
        let sent = messages(&[("system", "S"), ("user", "U"), ("system", "T"), ("user", "V")]);
        PolyfillCase::new(losing(), sent.clone())
            .with(|options| options.system_position = SystemPosition::User)
            .notes(&[("system_message_merged", 2)])
            .check(
                messages(&[("system", "S"), ("user", "U"), ("user", "T\nV")]),
                &["system_position"],
            );
        PolyfillCase::new(losing(), sent)
            .with(|options| options.system_position = SystemPosition::Keep)
            .notes(&[("system_message_not_rendered", 2)])
            .unchanged();
    }
}
