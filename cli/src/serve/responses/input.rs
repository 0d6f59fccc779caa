//! Converts the input items of a request to messages. Adjacent reasoning, assistant messages and
//! function calls form one message, as the model wrote it.

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, join, required_string, wrong};

/// The messages of earlier responses, followed by those of `input`.
pub(super) fn messages(body: &Value, previous: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut conversation = Conversation { messages: previous, is_open: false };
    match fields::get(body, "input") {
        None => return Err(ApiError::invalid("input", "is missing")),
        Some(Value::String(text)) => conversation.add(json!({ "role": "user", "content": text })),
        Some(Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                conversation.add_item(item, &format!("input[{index}]"))?;
            }
        }
        Some(other) => return Err(wrong("input", "a string or an array", other)),
    }
    Ok(conversation.messages)
}

struct Conversation {
    messages: Vec<Value>,
    /// Whether the next assistant item belongs to the last message.
    is_open: bool,
}

impl Conversation {
    fn add(&mut self, message: Value) {
        self.messages.push(message);
        self.is_open = false;
    }

    fn add_item(&mut self, item: &Value, path: &str) -> Result<(), ApiError> {
        let kind = match fields::get(item, "type") {
            None => "message",
            Some(_) => required_string(item, path, "type")?,
        };
        match kind {
            "message" => self.add_message(item, path)?,
            "function_call" => {
                let function = json!({
                    "name": required_string(item, path, "name")?,
                    "arguments": required_string(item, path, "arguments")?,
                });
                let id = required_string(item, path, "call_id")?;
                let call = json!({ "id": id, "type": "function", "function": function });
                let message = self.assistant();
                match message["tool_calls"].as_array_mut() {
                    Some(calls) => calls.push(call),
                    None => message["tool_calls"] = json!([call]),
                }
            }
            "function_call_output" => {
                let id = required_string(item, path, "call_id")?;
                let output = text(&item["output"], &join(path, "output"))?;
                self.add(json!({ "role": "tool", "tool_call_id": id, "content": output }));
            }
            "reasoning" => {
                let text = reasoning_text(item, path)?;
                if !text.is_empty() {
                    // Reasoning begins a new answer.
                    self.is_open = false;
                    self.assistant()["reasoning_content"] = text.into();
                }
            }
            other => {
                let other: String = other.chars().take(40).collect();
                let message = format!("items of type {other:?} are not supported");
                return Err(ApiError::invalid(&join(path, "type"), message));
            }
        }
        Ok(())
    }

    fn add_message(&mut self, item: &Value, path: &str) -> Result<(), ApiError> {
        let role = required_string(item, path, "role")?;
        let content = text(&item["content"], &join(path, "content"))?;
        match role {
            "assistant" => {
                let has_content = self.messages.last().is_some_and(|last| last["content"] != "");
                let has_calls =
                    self.messages.last().is_some_and(|last| last.get("tool_calls").is_some());
                if has_content || has_calls {
                    self.is_open = false;
                }
                self.assistant()["content"] = content.into();
            }
            "user" | "system" | "developer" => {
                self.add(json!({ "role": role, "content": content }));
            }
            _ => {
                let expected = "expected \"user\", \"assistant\", \"system\" or \"developer\"";
                return Err(ApiError::invalid(&join(path, "role"), expected));
            }
        }
        Ok(())
    }

    /// The assistant message under construction.
    fn assistant(&mut self) -> &mut Value {
        if !self.is_open {
            self.messages.push(json!({ "role": "assistant", "content": "" }));
            self.is_open = true;
        }
        self.messages.last_mut().expect("a message was pushed")
    }
}

/// The text of a reasoning item. An item from OpenAI may contain only a summary, or nothing.
fn reasoning_text(item: &Value, path: &str) -> Result<String, ApiError> {
    let path = join(path, "content");
    let parts = match fields::get(item, "content") {
        None => return Ok(String::new()),
        Some(content) => content.as_array().ok_or_else(|| wrong(&path, "an array", content))?,
    };
    let mut whole = String::new();
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        required_string(part, &path, "type")?;
        whole += required_string(part, &path, "text")?;
    }
    Ok(whole)
}

/// A string, or parts with text.
fn text(content: &Value, path: &str) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut whole = String::new();
            for (index, part) in parts.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match required_string(part, &path, "type")? {
                    "input_text" | "output_text" | "text" => {
                        whole += required_string(part, &path, "text")?;
                    }
                    "refusal" => whole += required_string(part, &path, "refusal")?,
                    other => {
                        let other: String = other.chars().take(40).collect();
                        let message = format!("parts of type {other:?} are not supported");
                        return Err(ApiError::invalid(&join(&path, "type"), message));
                    }
                }
            }
            Ok(whole)
        }
        Value::Null => Err(ApiError::invalid(path, "is missing")),
        other => Err(wrong(path, "a string or an array", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_one_answer_are_one_message() {
        let input = json!([
            { "role": "user", "content": [{ "type": "input_text", "text": "a" }] },
            { "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "r" }] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "b" }] },
            { "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}" },
            { "type": "function_call", "call_id": "2", "name": "g", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "1", "output": "x" },
            { "type": "message", "role": "assistant", "content": "c" },
            { "type": "message", "role": "assistant", "content": "d" },
        ]);
        let call = |id: &str, name: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "{}" } });
        let expected = json!([
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": "b", "reasoning_content": "r", "tool_calls": [call("1", "f"), call("2", "g")] },
            { "role": "tool", "tool_call_id": "1", "content": "x" },
            { "role": "assistant", "content": "c" },
            { "role": "assistant", "content": "d" },
        ]);
        let messages = messages(&json!({ "input": input }), Vec::new()).unwrap();
        assert_eq!(Value::from(messages), expected);
    }
}
