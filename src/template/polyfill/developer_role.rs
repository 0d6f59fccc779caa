//! Turns developer messages into system messages, for templates that lose or refuse them but show
//! system messages, natively or by `system_role`.

use super::conversation::{PolyfillContext, PolyfillConversation};
use super::node::Node;
use super::step::PolyfillStep;
use crate::error::Result;
use crate::template::probe::traits::RoleSupport;

pub(super) const STEP: PolyfillStep = PolyfillStep {
    name: "developer_role",
    applies,
    needs: |message, _| message.role == "developer",
    run,
};

fn applies(context: &PolyfillContext) -> bool {
    let shows_system = context.caps.supports_system_role || context.options.system_role;
    context.options.developer_role
        && context.details.developer != RoleSupport::Shown
        && shows_system
}

fn run(conversation: &mut PolyfillConversation, _: &PolyfillContext) -> Result<bool> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::case::{PolyfillCase, traits};
    use crate::template::probe::traits::RoleSupport;
    use serde_json::json;

    #[test]
    fn cases() {
        let sent = json!([{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}]);
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
