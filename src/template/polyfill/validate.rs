//! Checks what every step relies on: a message is an object with a role, and with content, calls or
//! reasoning. A call is a call of a function.

use std::fmt::Display;

use serde_json::Value;

use crate::api::member;
use crate::error::{Error, Result};

/// The members of an assistant message that may carry reasoning: the canonical one, and those that
/// templates use.
const REASONING: [&str; 5] = ["reasoning_content", "thinking", "reasoning", "thought", "tool_plan"];

/// `INVALID_REQUEST` with the JSON path of the first fault.
pub(super) fn check(messages: &[Value]) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(messages: Value, problem: Option<&str>) {
        let got = super::check(messages.as_array().expect("a list"));
        assert_eq!(got.err().map(|error| error.message().to_owned()).as_deref(), problem);
    }

    #[test]
    fn messages() {
        check(json!([{"role": "user", "content": "U"}]), None);
        check(json!([{"role": "assistant", "content": null}]), None);
        check(json!([{"role": "assistant", "reasoning_content": "R"}]), None);
        check(json!([{"role": "assistant", "thought": "R"}]), None);
        check(json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]), None);
        check(
            json!([{"role": "user", "content": "U"}, "U"]),
            Some("messages[1]: is not an object"),
        );
        check(json!([{"content": "U"}]), Some("messages[0].role: is not a string"));
        check(
            json!([{"role": "user"}]),
            Some("messages[0].content: missing; a message needs content, tool_calls or reasoning"),
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
