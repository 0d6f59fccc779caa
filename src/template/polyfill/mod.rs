//! Polyfills adapt OpenAI's messages to what a template accepts. Each step has its own file and is
//! reported by name.
//!
//! In: messages, tools, the traits of the template, the switches. Out: the messages, borrowed if
//! nothing changed; the names of the steps that changed them; diagnostics about anything lost,
//! moved or renamed; and for every string of the result the request member that it came from. The
//! caller's data is never changed, and nothing is rendered.

mod call_type;
mod call_writer;
mod caps_override;
mod content;
mod conversation;
mod developer_role;
mod dump;
mod empty_tool_calls;
mod node;
mod null_content;
mod null_members;
mod object_arguments;
mod parallel_calls;
mod polyfilled;
mod reasoning;
mod reasoning_alias;
mod same_role_merge;
mod segmented_text;
mod step;
mod system_position;
mod system_role;
mod tool_call_ids;
mod tool_calls;
mod tool_content;
mod tool_responses;
mod tools;
mod typed_content;
mod validate;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use call_writer::{CallWriter, MemberBytes, SentCall, WrittenCalls};
pub use polyfilled::Polyfilled;

pub(super) use conversation::PolyfillMessage;
pub(super) use node::{Node, NodeMember, NodeMembers};

use super::probe::traits::Traits;
use crate::api::Polyfills;
use crate::error::Result;
use conversation::{PolyfillContext, PolyfillConversation};
use step::{PolyfillStep, SentMessage};

/// The steps in the order in which they run. minja's seven steps keep their relative order.
const STEPS: &[PolyfillStep] = &[
    tool_content::STEP,
    null_members::STEP,
    empty_tool_calls::STEP,
    call_type::STEP,
    reasoning_alias::STEP,
    developer_role::STEP,
    tools::STEP,
    object_arguments::STEP,
    parallel_calls::STEP,
    tool_calls::STEP,
    tool_responses::STEP,
    tool_call_ids::STEP,
    reasoning::STEP,
    system_role::STEP,
    system_position::STEP,
    same_role_merge::STEP,
    typed_content::STEP,
    null_content::STEP,
];

/// What the messages are adapted to.
#[derive(Clone, Copy)]
pub struct PolyfillTarget<'a> {
    /// What the template can carry.
    pub traits: &'a Traits,
    /// Writes calls for a template that does not show them. Without it they become JSON.
    pub call_writer: Option<&'a dyn CallWriter>,
}

impl<'a> From<&'a Traits> for PolyfillTarget<'a> {
    fn from(traits: &'a Traits) -> Self {
        PolyfillTarget { traits, call_writer: None }
    }
}

/// Applies the steps that a template needs and `options` allows.
///
/// The declared tools do not change. A template that does not show them also gets them as text.
/// Applying the steps to their own result, without tools, changes nothing. `INVALID_REQUEST` names
/// the JSON path of anything that the template cannot take in any form.
pub fn apply<'a, 't>(
    messages: &'a [Value],
    tools: Option<&'a [Value]>,
    target: impl Into<PolyfillTarget<'t>>,
    options: &Polyfills,
) -> Result<Polyfilled<'a>> {
    if !options.apply_polyfills {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    validate::check(messages)?;
    let PolyfillTarget { traits, call_writer } = target.into();
    let context = PolyfillContext {
        caps: match &options.caps_override {
            Some(overrides) => caps_override::apply(traits.caps, overrides)?,
            None => traits.caps,
        },
        details: &traits.details,
        tool_call_example: traits.tool_call_example.as_deref(),
        options,
        call_writer,
        tools: tools.unwrap_or_default(),
    };
    let steps: Vec<&PolyfillStep> = STEPS.iter().filter(|step| (step.applies)(&context)).collect();
    // Most conversations need no step. This check copies nothing.
    let needs_a_step =
        |message: &SentMessage| steps.iter().any(|step| (step.needs)(message, &context));
    if !messages.is_empty() && !SentMessage::all(messages).any(|message| needs_a_step(&message)) {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    let mut conversation = PolyfillConversation::of(messages);
    let mut applied = Vec::new();
    for step in steps {
        if (step.run)(&mut conversation, &context)? {
            applied.push(step.name);
        }
    }
    Ok(Polyfilled::of(messages, conversation, applied))
}
