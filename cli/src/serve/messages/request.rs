//! Converts Anthropic's requests to the library's.

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::exchanges;
use crate::serve::fields::{self, brief, items, join, required_string, wrong};

/// Members that are the same in both APIs.
const SAME: [&str; 3] = ["temperature", "top_k", "top_p"];

/// The library's request, without `max_tokens`.
pub(super) fn library_request(body: &Value) -> Result<Value, ApiError> {
    fields::check(body, fields::MESSAGES)?;
    let mut request = json!({});
    fields::copy(body, &SAME, &mut request);
    if let Some(stop) = fields::get(body, "stop_sequences") {
        request["stop"] = stop.clone();
    }
    for name in ["mcp_servers", "container"] {
        if fields::get(body, name)
            .is_some_and(|value| value.as_array().is_none_or(|a| !a.is_empty()))
        {
            return Err(ApiError::invalid(name, "is not supported"));
        }
    }
    let messages = messages(body)?;
    exchanges::check_turns(fields::array(body, "messages")?)?;
    // Anthropic's API continues a final assistant message.
    if messages.last().is_some_and(|last| last["role"] == "assistant") {
        request["continue_final_message"] = true.into();
    }
    request["messages"] = messages.into();
    let tools = tools(body)?;
    if !tools.is_empty() {
        request["tools"] = tools.into();
        add_tool_choice(body, &mut request)?;
    }
    add_thinking(body, &mut request)?;
    add_format(body, &mut request);
    Ok(request)
}

/// Whether the reply includes thinking blocks.
pub(super) fn asks_for_thinking(body: &Value) -> bool {
    matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"))
}

fn messages(body: &Value) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields::get(body, "system") {
        messages.push(json!({ "role": "system", "content": text(system, "system")? }));
    }
    let given = fields::array(body, "messages")?;
    if given.is_empty() {
        return Err(ApiError::invalid("messages", "at least one message is needed"));
    }
    for (above, message) in items("messages", given) {
        let role = required_string(message, &above, "role")?;
        let content = fields::get(message, "content");
        let path = join(&above, "content");
        let content = content.ok_or_else(|| ApiError::invalid(&path, "is missing"))?;
        match (role, content) {
            ("user" | "assistant" | "system", Value::String(_)) => {
                messages.push(json!({ "role": role, "content": content }));
            }
            ("user", Value::Array(blocks)) => add_user_blocks(blocks, &path, &mut messages)?,
            ("assistant", Value::Array(blocks)) => {
                messages.push(assistant_message(blocks, &path)?);
            }
            ("system", _) => {
                messages.push(json!({ "role": role, "content": text(content, &path)? }));
            }
            ("user" | "assistant", _) => return Err(wrong(&path, "a string or an array", content)),
            _ => {
                let expected = "expected \"user\" or \"assistant\"";
                return Err(ApiError::invalid(&join(&above, "role"), expected));
            }
        }
    }
    Ok(messages)
}

/// Tool results become separate messages, in the order of the blocks.
fn add_user_blocks(
    blocks: &[Value],
    path: &str,
    messages: &mut Vec<Value>,
) -> Result<(), ApiError> {
    let mut parts: Vec<Value> = Vec::new();
    let flush = |parts: &mut Vec<Value>, messages: &mut Vec<Value>| {
        if !parts.is_empty() {
            messages.push(json!({ "role": "user", "content": std::mem::take(parts) }));
        }
    };
    for (path, block) in items(path, blocks) {
        match required_string(block, &path, "type")? {
            "text" => {
                let text = required_string(block, &path, "text")?;
                parts.push(json!({ "type": "text", "text": text }));
            }
            "tool_result" => {
                flush(&mut parts, messages);
                let id = required_string(block, &path, "tool_use_id")?;
                let content = fields::get(block, "content");
                let content = content.map(|content| text(content, &join(&path, "content")));
                let mut content = content.transpose()?.unwrap_or_default();
                if block["is_error"] == true {
                    content.insert_str(0, "Error: ");
                }
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
            }
            other => return Err(unsupported(&path, other)),
        }
    }
    flush(&mut parts, messages);
    Ok(())
}

fn assistant_message(blocks: &[Value], path: &str) -> Result<Value, ApiError> {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for (path, block) in items(path, blocks) {
        match required_string(block, &path, "type")? {
            "text" => content += required_string(block, &path, "text")?,
            "thinking" => reasoning += required_string(block, &path, "thinking")?,
            // Encrypted, so only Anthropic can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let id = required_string(block, &path, "id")?;
                let name = required_string(block, &path, "name")?;
                let input = fields::get(block, "input").cloned().unwrap_or_else(|| json!({}));
                if !input.is_object() {
                    return Err(wrong(&join(&path, "input"), "an object", &input));
                }
                let function = json!({ "name": name, "arguments": input.to_string() });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            other => return Err(unsupported(&path, other)),
        }
    }
    let mut message = json!({ "role": "assistant", "content": content });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

/// A string, or blocks of text.
fn text(content: &Value, path: &str) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let mut texts = Vec::new();
            for (path, block) in items(path, blocks) {
                match required_string(block, &path, "type")? {
                    "text" => texts.push(required_string(block, &path, "text")?),
                    other => return Err(unsupported(&path, other)),
                }
            }
            Ok(texts.join("\n"))
        }
        other => Err(wrong(path, "a string or an array", other)),
    }
}

fn unsupported(path: &str, kind: &str) -> ApiError {
    ApiError::invalid(&join(path, "type"), format!("{:?} is not supported here", brief(kind)))
}

fn tools(body: &Value) -> Result<Vec<Value>, ApiError> {
    let mut tools = Vec::new();
    for (path, tool) in items("tools", fields::array(body, "tools")?) {
        if let Some(kind) = fields::get(tool, "type").filter(|kind| **kind != "custom") {
            return Err(unsupported(&path, kind.as_str().unwrap_or("this type")));
        }
        let mut function = json!({ "name": required_string(tool, &path, "name")? });
        for (from, to) in
            [("description", "description"), ("input_schema", "parameters"), ("strict", "strict")]
        {
            if let Some(value) = fields::get(tool, from) {
                function[to] = value.clone();
            }
        }
        tools.push(json!({ "type": "function", "function": function }));
    }
    Ok(tools)
}

fn add_tool_choice(body: &Value, request: &mut Value) -> Result<(), ApiError> {
    let Some(choice) = fields::get(body, "tool_choice") else { return Ok(()) };
    let value = match required_string(choice, "tool_choice", "type")? {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => {
            let name = required_string(choice, "tool_choice", "name")?;
            json!({ "type": "function", "function": { "name": name } })
        }
        _ => {
            let expected = "expected \"auto\", \"any\", \"tool\" or \"none\"";
            return Err(ApiError::invalid("tool_choice.type", expected));
        }
    };
    request["tool_choice"] = value;
    if fields::boolean(choice, "disable_parallel_tool_use")? == Some(true) {
        request["parallel_tool_calls"] = false.into();
    }
    Ok(())
}

/// As in Anthropic's API, a request without `thinking` turns reasoning off, if the template has a
/// switch for that.
fn add_thinking(body: &Value, request: &mut Value) -> Result<(), ApiError> {
    let Some(thinking) = fields::get(body, "thinking") else {
        request["enable_thinking"] = false.into();
        return Ok(());
    };
    let kind = required_string(thinking, "thinking", "type")?;
    if !["enabled", "adaptive", "disabled"].contains(&kind) {
        let expected = "expected \"enabled\", \"adaptive\" or \"disabled\"";
        return Err(ApiError::invalid("thinking.type", expected));
    }
    request["enable_thinking"] = (kind != "disabled").into();
    if kind == "enabled"
        && let Some(budget) = fields::get(thinking, "budget_tokens")
    {
        let is_count = budget.as_u64().is_some_and(|budget| budget > 0);
        if !is_count {
            return Err(wrong("thinking.budget_tokens", "a whole number from 1", budget));
        }
        request["reasoning_budget"] = budget.clone();
    }
    Ok(())
}

/// `output_config.format`: a JSON schema of the reply.
fn add_format(body: &Value, request: &mut Value) {
    let format = fields::get(&body["output_config"], "format");
    if let Some(format) = format.or_else(|| fields::get(body, "output_format")) {
        let schema = json!({ "name": "reply", "schema": format["schema"], "strict": true });
        let format = json!({ "type": format["type"], "json_schema": schema });
        request["response_format"] = format;
    }
}
