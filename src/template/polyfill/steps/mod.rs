//! The steps, and their order. Each step is a constant with the name that replies report.

mod calls;
mod content_form;
mod object_arguments;
mod reasoning;
mod result_order;
mod same_role_merge;
mod schema_as_text;
mod system_messages;
mod tool_call_ids;
mod tools_as_text;

use super::step::PolyfillStep;

/// The steps in the order in which they run. minja's seven steps keep their relative order.
pub(super) const STEPS: &[PolyfillStep] = &[
    content_form::TOOL_CONTENT,
    content_form::NULL_MEMBERS,
    calls::EMPTY_TOOL_CALLS,
    calls::CALL_TYPE,
    reasoning::REASONING_ALIAS,
    system_messages::DEVELOPER_ROLE,
    tools_as_text::TOOLS,
    schema_as_text::SCHEMA_IN_PROMPT,
    object_arguments::OBJECT_ARGUMENTS,
    result_order::RESULT_ORDER,
    calls::PARALLEL_CALLS,
    tools_as_text::TOOL_CALLS,
    tools_as_text::TOOL_RESPONSES,
    tool_call_ids::TOOL_CALL_IDS,
    reasoning::REASONING,
    system_messages::SYSTEM_ROLE,
    system_messages::SYSTEM_POSITION,
    same_role_merge::SAME_ROLE_MERGE,
    content_form::TYPED_CONTENT,
    content_form::NULL_CONTENT,
];
