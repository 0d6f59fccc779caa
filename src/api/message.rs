//! Checks `messages`: OpenAI's shapes, plus `reasoning_content`.
//!
//! Messages stay JSON, because a chat template may read any member of them. Only the members that
//! later stages rely on are checked.

use serde_json::Value;

use super::fields::{Fields, JsonPath, expected};
use crate::error::{Error, Result};

/// The allowed roles of messages.
pub(crate) const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Checks `messages` and returns them.
pub(crate) fn check_messages<'a>(fields: &mut Fields<'a>) -> Result<&'a [Value]> {
    let Some(messages) = fields.array("messages")? else {
        return Err(fields.invalid("messages", "missing"));
    };
    if messages.is_empty() {
        return Err(fields.invalid("messages", "is empty"));
    }
    for (index, message) in messages.iter().enumerate() {
        check_message(JsonPath::Element("messages", index), message)?;
    }
    Ok(messages)
}

fn check_message(path: JsonPath, message: &Value) -> Result<()> {
    let mut fields = Fields::open(path, message)?;
    let role = fields.required_string("role")?;
    if !ROLES.contains(&role) {
        return Err(fields.invalid(
            "role",
            format!("unknown role {role:?}; expected one of {}", ROLES.join(", ")),
        ));
    }
    let content = fields.get("content");
    match content {
        // A tool result may be any JSON value. It becomes text later.
        _ if role == "tool" => {}
        None | Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            for (index, part) in parts.iter().enumerate() {
                check_part(&fields.path(&format!("content[{index}]")), part)?;
            }
        }
        Some(other) => {
            return Err(fields.invalid("content", expected("a string or an array of parts", other)));
        }
    }
    let mut has_calls = false;
    if let Some(calls) = fields.array("tool_calls")? {
        has_calls = !calls.is_empty();
        for (index, call) in calls.iter().enumerate() {
            check_call(&fields.path(&format!("tool_calls[{index}]")), call)?;
        }
    }
    let mut has_reasoning = false;
    for key in ["reasoning_content", "thinking", "reasoning"] {
        has_reasoning |= fields.string(key)?.is_some();
    }
    fields.string("tool_call_id")?;
    fields.string("name")?;
    let has_body = content.is_some()
        || (role == "tool" && message.get("content").is_some())
        || (role == "assistant" && (has_calls || has_reasoning));
    if has_body { Ok(()) } else { Err(fields.invalid("content", "missing")) }
}

fn check_part(path: &str, part: &Value) -> Result<()> {
    let mut fields = Fields::new(path, part)?;
    let kind = fields.required_string("type")?;
    if kind == "text" {
        fields.required_string("text")?;
    }
    Ok(())
}

fn check_call(path: &str, call: &Value) -> Result<()> {
    let mut fields = Fields::new(path, call)?;
    fields.string("id")?;
    fields.one_of("type", &[("function", ())])?;
    let mut function = fields.inner("function")?;
    function.required_string("name")?;
    match function.get("arguments") {
        None | Some(Value::String(_) | Value::Object(_)) => Ok(()),
        Some(other) => Err(Error::invalid(
            function.path("arguments"),
            expected("JSON text or an object", other),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(messages: Value, problem: Option<&str>) {
        let request = json!({ "messages": messages });
        let mut fields = Fields::new("", &request).expect("an object");
        let got = check_messages(&mut fields);
        assert_eq!(got.err().map(|e| e.message().to_owned()).as_deref(), problem);
    }

    #[test]
    fn valid_messages_pass() {
        check(
            json!([
                {"role": "system", "content": "S"},
                {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "image_url", "image_url": {"url": "x"}}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"function": {"name": "g", "arguments": {"a": 1}}}]},
                {"role": "tool", "tool_call_id": "1", "content": "R"},
                {"role": "assistant", "reasoning_content": "r"},
            ]),
            None,
        );
    }

    #[test]
    fn errors_name_the_message() {
        check(json!([]), Some("messages: is empty"));
        check(json!("hi"), Some(r#"messages: expected an array, got "hi""#));
        check(json!([7]), Some("messages[0]: expected an object, got 7"));
        check(json!([{"content": "x"}]), Some("messages[0].role: missing"));
        check(
            json!([{"role": "user", "content": "x"}, {"role": "assistent", "content": "x"}]),
            Some(
                r#"messages[1].role: unknown role "assistent"; expected one of system, developer, user, assistant, tool"#,
            ),
        );
        check(json!([{"role": "user"}]), Some("messages[0].content: missing"));
        check(
            json!([{"role": "user", "content": 5}]),
            Some("messages[0].content: expected a string or an array of parts, got 5"),
        );
        check(
            json!([{"role": "user", "content": [{"text": "x"}]}]),
            Some("messages[0].content[0].type: missing"),
        );
        check(
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]),
            Some(
                "messages[0].tool_calls[0].function.arguments: expected JSON text or an object, got 3",
            ),
        );
        check(
            json!([{"role": "assistant", "tool_calls": [{"id": "1"}]}]),
            Some("messages[0].tool_calls[0].function: missing"),
        );
    }
}
