//! Converts a request to the library's: its settings, and its input items to messages.

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, brief, items, join, required_string, wrong};
use crate::serve::model::ServedModel;

/// Members that are the same in both APIs.
const SAME: [&str; 18] = [
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "enable_thinking",
    "reasoning_budget",
    "reasoning_budget_message",
    "n_keep",
    "lora",
    "chat_template_kwargs",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "logit_bias",
    "grammar",
];
/// Members that are refused because they would change the reply.
const UNSUPPORTED: [&str; 3] = ["conversation", "prompt", "context_management"];

/// The request of the library.
pub(super) fn library_request(
    body: &Value,
    messages: Vec<Value>,
    model: &ServedModel,
) -> Result<Value, ApiError> {
    check(body)?;
    let mut all: Vec<Value> = Vec::new();
    if let Some(text) = fields::string(body, "instructions")? {
        all.push(json!({ "role": "system", "content": text }));
    }
    all.extend(messages);
    let max_tokens = fields::positive(body, "max_output_tokens")?.unwrap_or(model.max_tokens());
    let mut request = json!({
        "messages": all, "max_tokens": max_tokens, "stream_format": "chunks",
        "timeout_ms": model.timeout_ms(),
    });
    fields::copy(body, &SAME, &mut request);
    if let Some(effort) = fields::get(&body["reasoning"], "effort") {
        request["reasoning_effort"] = effort.clone();
    }
    let tools = tools(body)?;
    if !tools.is_empty() {
        request["tools"] = tools.into();
        if let Some(choice) = fields::get(body, "tool_choice") {
            request["tool_choice"] = tool_choice(choice)?;
        }
    }
    if let Some(format) = fields::get(&body["text"], "format") {
        request["response_format"] = response_format(format)?;
    }
    let includes = fields::array(body, "include")?;
    if includes.iter().any(|name| *name == "message.output_text.logprobs") {
        request["logprobs"] = true.into();
        request["top_logprobs"] = fields::get(body, "top_logprobs").cloned().unwrap_or_default();
    }
    Ok(request)
}

fn check(body: &Value) -> Result<(), ApiError> {
    fields::check(body, fields::RESPONSES)?;
    for name in UNSUPPORTED {
        if fields::get(body, name).is_some() {
            return Err(ApiError::invalid(name, "is not supported; send the whole input"));
        }
    }
    if fields::boolean(body, "background")? == Some(true) {
        return Err(ApiError::invalid("background", "is not supported; use `stream`"));
    }
    if fields::string(body, "truncation")?.is_some_and(|truncation| truncation != "disabled") {
        return Err(ApiError::invalid("truncation", "only \"disabled\" is supported"));
    }
    for name in ["reasoning", "text"] {
        if let Some(value) = fields::get(body, name)
            && !value.is_object()
        {
            return Err(wrong(name, "an object", value));
        }
    }
    Ok(())
}

fn tools(body: &Value) -> Result<Vec<Value>, ApiError> {
    let mut tools = Vec::new();
    for (path, tool) in items("tools", fields::array(body, "tools")?) {
        if required_string(tool, &path, "type")? != "function" {
            let path = format!("{path}.type");
            return Err(ApiError::invalid(&path, "only tools of type \"function\" are supported"));
        }
        let mut function = json!({ "name": required_string(tool, &path, "name")? });
        for name in ["description", "parameters", "strict"] {
            if let Some(value) = fields::get(tool, name) {
                function[name] = value.clone();
            }
        }
        tools.push(json!({ "type": "function", "function": function }));
    }
    Ok(tools)
}

fn tool_choice(choice: &Value) -> Result<Value, ApiError> {
    if choice.is_string() {
        return Ok(choice.clone());
    }
    if required_string(choice, "tool_choice", "type")? != "function" {
        let expected = "expected \"auto\", \"none\", \"required\" or a function";
        return Err(ApiError::invalid("tool_choice.type", expected));
    }
    let name = required_string(choice, "tool_choice", "name")?;
    Ok(json!({ "type": "function", "function": { "name": name } }))
}

fn response_format(format: &Value) -> Result<Value, ApiError> {
    let kind = required_string(format, "text.format", "type")?;
    if kind != "json_schema" {
        return Ok(json!({ "type": kind }));
    }
    let schema = json!({
        "name": format["name"], "schema": format["schema"], "strict": format["strict"],
    });
    Ok(json!({ "type": kind, "json_schema": schema }))
}

/// The messages of earlier responses, followed by those of `input`.
pub(super) fn messages(body: &Value, previous: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let mut conversation = InputItems { messages: previous, is_open: false };
    match fields::get(body, "input") {
        None => return Err(ApiError::invalid("input", "is missing")),
        Some(Value::String(text)) => conversation.add(json!({ "role": "user", "content": text })),
        Some(Value::Array(given)) => {
            for (path, item) in items("input", given) {
                conversation.add_item(item, &path)?;
            }
        }
        Some(other) => return Err(wrong("input", "a string or an array", other)),
    }
    Ok(conversation.messages)
}

/// Adjacent reasoning, assistant messages and function calls form one message, as the model wrote
/// it.
struct InputItems {
    messages: Vec<Value>,
    /// Whether the next assistant item belongs to the last message.
    is_open: bool,
}

impl InputItems {
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
                let message = format!("items of type {:?} are not supported", brief(other));
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
    for (path, part) in items(&path, parts) {
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
            for (path, part) in items(path, parts) {
                match required_string(part, &path, "type")? {
                    "input_text" | "output_text" | "text" => {
                        whole += required_string(part, &path, "text")?;
                    }
                    "refusal" => whole += required_string(part, &path, "refusal")?,
                    other => {
                        let message = format!("parts of type {:?} are not supported", brief(other));
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
