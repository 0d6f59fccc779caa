//! Checks what every step relies on: a message is an object with a role, and with content, calls or
//! reasoning; a call is a call of a function; a flag of `caps_override` has a known name.

use std::fmt::Display;

use serde_json::{Map, Value};

use crate::api::member;
use crate::error::{Error, Result};
use crate::template::probe::traits::{ReasoningFormat, TemplateCaps};

/// The members of an assistant message that may carry reasoning: the canonical one, and those that
/// templates use.
const REASONING: [&str; 5] = ["reasoning_content", "thinking", "reasoning", "thought", "tool_plan"];

/// `INVALID_REQUEST` with the JSON path of the first fault.
pub(super) fn messages(messages: &[Value]) -> Result<()> {
    for (index, message) in messages.iter().enumerate() {
        let path = format_args!("messages[{index}]");
        let Some(members) = message.as_object() else {
            return Err(Error::invalid(path, "is not an object"));
        };
        if !member(members, "role").is_some_and(Value::is_string) {
            return Err(Error::invalid(format!("{path}.role"), "is not a string"));
        }
        let has = |name: &str| member(members, name).is_some();
        if !(has("content") || has("tool_calls") || REASONING.into_iter().any(has)) {
            return Err(Error::invalid(
                format!("{path}.content"),
                "missing; a message needs content, tool_calls or reasoning",
            ));
        }
        match member(members, "tool_calls") {
            None | Some(Value::Null) => {}
            Some(Value::Array(calls)) => {
                for (number, call) in calls.iter().enumerate() {
                    check_call(format_args!("{path}.tool_calls[{number}]"), call)?;
                }
            }
            Some(_) => return Err(Error::invalid(format!("{path}.tool_calls"), "is not an array")),
        }
    }
    Ok(())
}

fn check_call(path: impl Display, call: &Value) -> Result<()> {
    if !call.is_object() {
        return Err(Error::invalid(path, "is not an object"));
    }
    match call.get("type") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(kind)) if kind == "function" => Ok(()),
        Some(kind) => Err(Error::invalid(
            format!("{path}.type"),
            format!("unknown type {kind}; the only type is \"function\""),
        )),
    }
}

/// Replaces the probed flags by those of `caps_override`, which tests use.
pub(super) fn caps(caps: TemplateCaps, overrides: &Map<String, Value>) -> Result<TemplateCaps> {
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
    mod of_messages {
        use super::super::*;
        use serde_json::json;

        #[track_caller]
        fn check(messages: Value, problem: Option<&str>) {
            let got = super::super::messages(messages.as_array().expect("a list"));
            assert_eq!(got.err().map(|error| error.message().to_owned()).as_deref(), problem);
        }

        #[test]
        fn messages() {
            check(json!([{"role": "user", "content": "U"}]), None);
            check(json!([{"role": "assistant", "content": null}]), None);
            check(json!([{"role": "assistant", "reasoning_content": "R"}]), None);
            check(json!([{"role": "assistant", "thought": "R"}]), None);
            check(
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]),
                None,
            );
            check(
                json!([{"role": "user", "content": "U"}, "U"]),
                Some("messages[1]: is not an object"),
            );
            check(json!([{"content": "U"}]), Some("messages[0].role: is not a string"));
            check(
                json!([{"role": "user"}]),
                Some(
                    "messages[0].content: missing; a message needs content, tool_calls or reasoning",
                ),
            );
            check(
                json!([{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]),
                Some(
                    r#"messages[0].tool_calls[0].type: unknown type "custom"; the only type is "function""#,
                ),
            );
            check(
                json!([{"role": "assistant", "tool_calls": ["f"]}]),
                Some("messages[0].tool_calls[0]: is not an object"),
            );
            check(
                json!([{"role": "assistant", "tool_calls": {}}]),
                Some("messages[0].tool_calls: is not an array"),
            );
        }
    }

    mod of_caps {
        use super::super::*;
        use crate::template::polyfill::tests::case::traits;
        use serde_json::json;

        #[track_caller]
        fn check_refused(given: Value, problem: &str) {
            let error = super::super::caps(traits().caps, given.as_object().expect("an object"))
                .expect_err("refused");
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
            let caps = super::super::caps(traits().caps, flipped.as_object().expect("an object"))
                .expect("known names");
            assert_eq!(caps.to_json(), flipped);
            for format in ReasoningFormat::ALL {
                let given = json!({"reasoning_format": format.as_str()});
                let caps = super::super::caps(traits().caps, given.as_object().expect("an object"))
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
}
