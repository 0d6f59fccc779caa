//! What transformers 5.23 does to messages before a template sees them. Members that are null stay: the goldens show None.

use serde_json::Value;

/// One message: the first of reasoning_content, thinking and reasoning that is not null becomes both reasoning_content and
/// thinking, where those are absent or null.
pub(crate) fn message(message: &Value) -> Value {
    let Value::Object(members) = message else { return message.clone() };
    let given = |name: &str| members.get(name).filter(|member| !member.is_null());
    let Some(reasoning) = ["reasoning_content", "thinking", "reasoning"].into_iter().find_map(given).cloned() else {
        return message.clone();
    };
    let mut members = members.clone();
    for name in ["reasoning_content", "thinking"] {
        if members.get(name).is_none_or(Value::is_null) {
            members.insert(name.to_owned(), reasoning.clone());
        }
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    #[track_caller]
    fn check(before: serde_json::Value, after: &str) {
        assert_eq!(super::message(&before).to_string(), after);
    }

    #[test]
    fn reasoning_and_nulls() {
        check(json!({"role": "user", "content": null}), r#"{"role":"user","content":null}"#);
        check(json!({"reasoning": "r", "x": 1}), r#"{"reasoning":"r","x":1,"reasoning_content":"r","thinking":"r"}"#);
        check(json!({"thinking": "t", "reasoning_content": null}), r#"{"thinking":"t","reasoning_content":"t"}"#);
        check(json!({"thinking": "t", "reasoning_content": "r"}), r#"{"thinking":"t","reasoning_content":"r"}"#);
        check(json!("text"), r#""text""#);
    }
}
