//! `caps_override`: flags that replace the probed flags, for tests.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::template::probe::traits::{ReasoningFormat, TemplateCaps};

/// Replaces flags by their published names.
pub(super) fn apply(caps: TemplateCaps, overrides: &Map<String, Value>) -> Result<TemplateCaps> {
    let mut flags = caps.to_json();
    for (name, value) in overrides {
        let invalid = |problem: String| {
            Err(Error::invalid(format!("polyfills.caps_override.{name}"), problem))
        };
        let Some(flag) = flags.get_mut(name) else { return invalid("unknown flag".to_owned()) };
        if name == "reasoning_format" {
            if value.as_str().and_then(ReasoningFormat::parse).is_none() {
                return invalid(format!("unknown format {value}"));
            }
        } else if !value.is_boolean() {
            return invalid(format!("expected true or false, got {value}"));
        }
        flag.clone_from(value);
    }
    Ok(serde_json::from_value(flags).expect("every flag has a value of its type"))
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
        for format in ReasoningFormat::ALL {
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
