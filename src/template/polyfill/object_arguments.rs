//! Arguments of tool calls: JSON text, as OpenAI's messages have it, to the object it spells.
//!
//! For templates that print `arguments | tojson` or walk the members: the text would come out as a quoted string (Qwen 2.5)
//! or fail. llama.cpp b9371 does the same on the same flag. Text that is not an object stays as it is.

use serde_json::{Map, Value};

/// The messages with objects for arguments; None when nothing changes.
pub(super) fn apply(messages: &[Value]) -> Option<Vec<Value>> {
    let mut changed = None;
    for (index, message) in messages.iter().enumerate() {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for (number, call) in calls.into_iter().flatten().enumerate() {
            if let Some(object) = call.pointer("/function/arguments").and_then(as_object) {
                let messages = changed.get_or_insert_with(|| messages.to_vec());
                messages[index]["tool_calls"][number]["function"]["arguments"] = Value::Object(object);
            }
        }
    }
    changed
}

/// The object a text spells; the empty text is the empty object.
fn as_object(arguments: &Value) -> Option<Map<String, Value>> {
    match arguments.as_str()?.trim() {
        "" => Some(Map::new()),
        text => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(arguments: Value) -> Vec<Value> {
        let call = json!({ "id": "1", "type": "function", "function": { "name": "f", "arguments": arguments } });
        vec![json!({ "role": "user", "content": "U" }), json!({ "role": "assistant", "content": null, "tool_calls": [call] })]
    }

    #[track_caller]
    fn check(before: Value, after: Option<Value>) {
        let got = apply(&with(before));
        assert_eq!(got, after.clone().map(with));
        if let Some(after) = after {
            assert_eq!(apply(&with(after)), None, "a second time changes nothing");
        }
    }

    #[test]
    fn text_becomes_the_object_it_spells() {
        check(json!("{\"b\": 1, \"a\": [true, null]}"), Some(json!({ "b": 1, "a": [true, null] })));
        check(json!(""), Some(json!({})));
        check(json!({ "a": 1 }), None);
        check(json!("not JSON"), None);
        check(json!("[1]"), None);
        check(json!("42"), None);
    }
}
