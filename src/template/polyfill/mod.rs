//! Polyfills adapt OpenAI's messages to what a template accepts, in steps with names.
//!
//! In: messages, tools, the traits of the template, the switches. Out: the messages, borrowed if
//! nothing changed; the names of the steps that changed them; diagnostics about anything lost,
//! moved or renamed; and for every string of the result the request member that it came from. The
//! caller's data is never changed, and nothing is rendered.

mod call_writer;
mod checks;
mod content;
mod conversation;
mod dump;
mod node;
mod polyfilled;
mod segmented_text;
mod step;
mod steps;
mod tool_exchanges;

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
use steps::STEPS;

/// What the messages are adapted to.
#[derive(Clone, Copy)]
pub struct PolyfillTarget<'a> {
    /// What the template can carry.
    pub traits: &'a Traits,
    /// Writes calls for a template that does not show them. Without it they become JSON.
    pub call_writer: Option<&'a dyn CallWriter>,
    /// Whether the model answers next. Calls of the last message then lack their results.
    pub is_answered_next: bool,
    /// The schema of the reply that the prompt shows.
    pub schema: Option<&'a Value>,
    /// Whether the call is over. Asked for each message and each step.
    pub is_over: &'a dyn Fn() -> bool,
}

impl<'a> From<&'a Traits> for PolyfillTarget<'a> {
    fn from(traits: &'a Traits) -> Self {
        PolyfillTarget {
            traits,
            call_writer: None,
            is_answered_next: false,
            schema: None,
            is_over: &|| false,
        }
    }
}

/// Applies the steps that a template needs and `options` allows.
///
/// The declared tools do not change. A template that does not show them also gets them as text.
/// Applying the steps to their own result, without tools and schema, changes nothing. `INVALID_REQUEST` names
/// the JSON path of anything that the template cannot take in any form. `CANCELLED` if the call is
/// over.
pub fn apply<'a, 't>(
    messages: &'a [Value],
    tools: Option<&'a [Value]>,
    target: impl Into<PolyfillTarget<'t>>,
    options: &Polyfills,
) -> Result<Polyfilled<'a>> {
    if !options.apply_polyfills {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    checks::messages(messages)?;
    let PolyfillTarget { traits, call_writer, is_answered_next, schema, is_over } = target.into();
    let context = PolyfillContext {
        caps: match &options.caps_override {
            Some(overrides) => checks::caps(traits.caps, overrides)?,
            None => traits.caps,
        },
        details: &traits.details,
        tool_call_example: traits.tool_call_example.as_deref(),
        options,
        call_writer,
        is_answered_next,
        schema,
        tools: tools.unwrap_or_default(),
    };
    let steps: Vec<&PolyfillStep> = STEPS.iter().filter(|step| (step.applies)(&context)).collect();
    // Most conversations need no step. This check copies nothing.
    let needs_a_step =
        |message: &SentMessage| steps.iter().any(|step| (step.needs)(message, &context));
    if !messages.is_empty() && !SentMessage::all(messages).any(|message| needs_a_step(&message)) {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    let mut conversation = PolyfillConversation::of(messages, is_over)?;
    let mut applied = Vec::new();
    for step in steps {
        conversation::check(is_over)?;
        if (step.run)(&mut conversation, &context)? {
            applied.push(step.name);
        }
    }
    Ok(Polyfilled::of(messages, conversation, applied))
}
