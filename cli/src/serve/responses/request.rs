//! Converts the settings of a request to the library's.

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, required_string, wrong};
use crate::serve::model::ServedModel;
use crate::serve::shape;

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
    messages: &[Value],
    model: &ServedModel,
) -> Result<Value, ApiError> {
    check(body)?;
    let mut all: Vec<Value> = Vec::new();
    if let Some(text) = fields::string(body, "instructions")? {
        all.push(json!({ "role": "system", "content": text }));
    }
    all.extend(messages.iter().cloned());
    let max_tokens = fields::positive(body, "max_output_tokens")?.unwrap_or(model.max_tokens());
    let mut request = json!({
        "messages": all, "max_tokens": max_tokens, "stream_format": "chunks",
        "timeout_ms": model.timeout_ms(),
    });
    for name in SAME {
        if let Some(value) = fields::get(body, name) {
            request[name] = value.clone();
        }
    }
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
    shape::check(body, shape::RESPONSES)?;
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
    for (index, tool) in fields::array(body, "tools")?.iter().enumerate() {
        let path = format!("tools[{index}]");
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
