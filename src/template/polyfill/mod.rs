//! Messages as OpenAI has them -> messages as a template takes them. One file a step: pure,
//! idempotent, reported by name.
//!
//! In: messages, tools, what is known of the template, which switches are on. Out: the messages,
//! borrowed where nothing changed; the names of the steps that changed them; what was lost, moved
//! or renamed; and for every string of the result which member of the request it came from. Never
//! changes the caller's data and never renders.

mod call_type;
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
mod scan;
mod segmented_text;
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

pub use polyfilled::{Polyfilled, StringVisitor};
pub use segmented_text::Segment;

use super::probe::traits::Traits;
use crate::api::Polyfills;
use crate::error::Result;
use conversation::{PolyfillContext, PolyfillConversation};

type Step = fn(&mut PolyfillConversation, &PolyfillContext) -> Result<bool>;

/// The steps in their order. The relative order of minja's seven is minja's.
const STEPS: [(&str, Step); 18] = [
    ("tool_content", tool_content::run),
    ("null_members", null_members::run),
    ("empty_tool_calls", empty_tool_calls::run),
    ("call_type", call_type::run),
    ("reasoning_alias", reasoning_alias::run),
    ("developer_role", developer_role::run),
    ("tools", tools::run),
    ("object_arguments", object_arguments::run),
    ("parallel_calls", parallel_calls::run),
    ("tool_calls", tool_calls::run),
    ("tool_responses", tool_responses::run),
    ("tool_call_ids", tool_call_ids::run),
    ("reasoning", reasoning::run),
    ("system_role", system_role::run),
    ("system_position", system_position::run),
    ("same_role_merge", same_role_merge::run),
    ("typed_content", typed_content::run),
    ("null_content", null_content::run),
];

/// Applies what a template needs and `options` allows.
///
/// The declared tools stay what they are; a template that does not show them gets them as text
/// besides. Applied to its own result, without tools, it changes nothing. `INVALID_REQUEST` with
/// the JSON path of what cannot be carried.
pub fn apply<'a>(
    messages: &'a [Value],
    tools: Option<&'a [Value]>,
    traits: &Traits,
    options: &Polyfills,
) -> Result<Polyfilled<'a>> {
    if !options.apply_polyfills {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    validate::check(messages)?;
    let context = PolyfillContext {
        caps: match &options.caps_override {
            Some(given) => caps_override::apply(traits.caps, given)?,
            None => traits.caps,
        },
        details: &traits.details,
        tool_call_example: traits.tool_call_example.as_deref(),
        options,
        tools: tools.unwrap_or_default(),
    };
    if scan::nothing_to_do(messages, &context) {
        return Ok(Polyfilled::untouched(messages, Vec::new()));
    }
    let mut conversation = PolyfillConversation::of(messages);
    let mut applied = Vec::new();
    for (name, run) in STEPS {
        if run(&mut conversation, &context)? {
            applied.push(name);
        }
    }
    Ok(Polyfilled::of(messages, conversation, applied))
}
