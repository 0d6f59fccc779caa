//! Polyfills for a template of which only llama.cpp's nine flags are known: arguments as objects, nothing else that depends
//! on the template.

use serde_json::Value;

use super::{Polyfilled, apply};
use crate::api::Polyfills;
use crate::error::Result;
use crate::template::Caps;
use crate::template::traits::{Arguments, Details, Fate, NoContent, ReasoningFormat, TemplateCaps, Traits, WithCalls};

/// [`apply`] with what the nine flags tell; of the rest it is assumed that the template takes it as it is sent.
pub fn apply_by_caps<'a>(
    messages: &'a [Value],
    tools: Option<&'a [Value]>,
    caps: &Caps,
    options: &Polyfills,
) -> Result<Polyfilled<'a>> {
    let traits = Traits {
        caps: TemplateCaps { requires_object_arguments: caps.supports_object_arguments, ..all_supported() },
        details: Details {
            accepts_parts: true,
            requires_non_empty_content: false,
            content_ladder: Vec::new(),
            no_content: NoContent::Absent,
            no_content_beside_calls: NoContent::Absent,
            arguments: Arguments::Unknown,
            nine_character_ids: false,
            developer: Fate::Shown,
            later_system: Fate::Shown,
            needs_alternation: false,
            inline_reasoning: false,
            reasoning_with_calls: WithCalls::Both,
            reasoning_needs: None,
            reasoning_visible: Vec::new(),
            switches: Vec::new(),
            effort: None,
        },
        tool_call_example: None,
    };
    // Which form of no content the template accepts is not known.
    let options = Polyfills { null_content: false, ..options.clone() };
    apply(messages, tools, &traits, &options)
}

fn all_supported() -> TemplateCaps {
    TemplateCaps {
        supports_system_role: true,
        supports_tools: true,
        supports_tool_calls: true,
        supports_tool_responses: true,
        supports_tool_call_id: true,
        supports_parallel_tool_calls: true,
        requires_object_arguments: false,
        requires_non_null_content: false,
        requires_typed_content_blocks: false,
        supports_reasoning: true,
        reasoning_format: ReasoningFormat::ReasoningContentField,
        reasoning_requires_tools: false,
        supports_clear_thinking: false,
        supports_reasoning_without_content: true,
        supports_reasoning_with_content: true,
        respects_enable_reasoning: false,
    }
}
