//! `caps_override`: flags that replace the probed flags, for tests.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::template::probe::traits::{ReasoningFormat, TemplateCaps};

const FORMATS: [ReasoningFormat; 9] = [
    ReasoningFormat::ReasoningContentField,
    ReasoningFormat::ThoughtField,
    ReasoningFormat::ThinkingField,
    ReasoningFormat::ToolPlanField,
    ReasoningFormat::ThinkingContentBlock,
    ReasoningFormat::ThoughtsContentBlock,
    ReasoningFormat::ReasoningField,
    ReasoningFormat::BlocksMapping,
    ReasoningFormat::None,
];

/// Replaces flags by their published names.
pub(super) fn apply(
    mut caps: TemplateCaps,
    overrides: &Map<String, Value>,
) -> Result<TemplateCaps> {
    for (name, value) in overrides {
        let path = || format!("polyfills.caps_override.{name}");
        if name == "reasoning_format" {
            let format = FORMATS.into_iter().find(|format| value == format.as_str());
            caps.reasoning_format =
                format.ok_or_else(|| Error::invalid(path(), format!("unknown format {value}")))?;
            continue;
        }
        let flag = flag(&mut caps, name).ok_or_else(|| Error::invalid(path(), "unknown flag"))?;
        *flag = value.as_bool().ok_or_else(|| {
            Error::invalid(path(), format!("expected true or false, got {value}"))
        })?;
    }
    Ok(caps)
}

fn flag<'a>(caps: &'a mut TemplateCaps, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "supports_system_role" => &mut caps.supports_system_role,
        "supports_tools" => &mut caps.supports_tools,
        "supports_tool_calls" => &mut caps.supports_tool_calls,
        "supports_tool_responses" => &mut caps.supports_tool_responses,
        "supports_tool_call_id" => &mut caps.supports_tool_call_id,
        "supports_parallel_tool_calls" => &mut caps.supports_parallel_tool_calls,
        "requires_object_arguments" => &mut caps.requires_object_arguments,
        "requires_non_null_content" => &mut caps.requires_non_null_content,
        "requires_typed_content_blocks" => &mut caps.requires_typed_content_blocks,
        "supports_reasoning" => &mut caps.supports_reasoning,
        "reasoning_requires_tools" => &mut caps.reasoning_requires_tools,
        "supports_clear_thinking" => &mut caps.supports_clear_thinking,
        "supports_reasoning_without_content" => &mut caps.supports_reasoning_without_content,
        "supports_reasoning_with_content" => &mut caps.supports_reasoning_with_content,
        "respects_enable_reasoning" => &mut caps.respects_enable_reasoning,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::case::traits;
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_refused(given: Value, problem: &str) {
        let error =
            apply(traits().caps, given.as_object().expect("an object")).expect_err("refused");
        assert_eq!(error.message(), problem);
    }

    #[test]
    fn every_published_name_can_be_replaced() {
        let mut flipped = traits().caps.to_json();
        for (_, value) in flipped.as_object_mut().expect("an object") {
            *value = match &*value {
                Value::Bool(flag) => (!*flag).into(),
                _ => "TOOL_PLAN_FIELD".into(),
            };
        }
        let caps =
            apply(traits().caps, flipped.as_object().expect("an object")).expect("known names");
        assert_eq!(caps.to_json(), flipped);
        for format in FORMATS {
            let given = json!({"reasoning_format": format.as_str()});
            let caps = apply(traits().caps, given.as_object().expect("an object"))
                .expect("a known format");
            assert_eq!(caps.reasoning_format, format);
        }
    }

    #[test]
    fn wrong_names_and_values() {
        check_refused(
            json!({"supports_everything": true}),
            "polyfills.caps_override.supports_everything: unknown flag",
        );
        check_refused(
            json!({"supports_tools": 1}),
            "polyfills.caps_override.supports_tools: expected true or false, got 1",
        );
        check_refused(
            json!({"reasoning_format": "X"}),
            "polyfills.caps_override.reasoning_format: unknown format \"X\"",
        );
    }
}
