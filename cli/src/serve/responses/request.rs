//! Converts the settings of a request to the library's.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::tools::{Tools, chosen_kind, referred_name};
use crate::serve::error::ApiError;
use crate::serve::fields::{self, items, required_string, wrong};
use crate::serve::left_out::{LeftOut, Reason};

/// Members that are converted, or have no effect here. All others are the library's.
const OWN: [&str; 17] = [
    "background",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "previous_response_id",
    "reasoning",
    "store",
    "stream",
    "stream_options",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "truncation",
];
/// Members that are refused because they would change the reply.
const UNSUPPORTED: [&str; 2] = ["conversation", "prompt"];

/// The request of the library, without the members that only a generation has.
pub(super) fn library_request(
    body: &Value,
    messages: Vec<Value>,
    tools: &mut Tools,
    left_out: &mut LeftOut,
) -> Result<Value, ApiError> {
    check(body, left_out)?;
    let mut all: Vec<Value> = Vec::new();
    if let Some(text) = fields::string(body, "instructions")? {
        all.push(json!({ "role": "system", "content": text }));
    }
    all.extend(messages);
    let mut request = fields::others(body, &OWN);
    request["messages"] = all.into();
    if let Some(effort) = fields::get(&body["reasoning"], "effort") {
        request["reasoning_effort"] = effort.clone();
    }
    let choice = match fields::get(body, "tool_choice") {
        None => None,
        Some(choice) => tool_choice(choice, tools, left_out)?,
    };
    if !tools.functions().is_empty() {
        request["tools"] = tools.functions().into();
        if let Some(choice) = choice {
            request["tool_choice"] = choice;
        }
    }
    if let Some(format) = fields::get(&body["text"], "format") {
        request["response_format"] = response_format(format)?;
    }
    if let Some(overflow) = context_overflow(body)? {
        request["context_overflow"] = overflow.into();
    }
    let includes = fields::array(body, "include")?;
    if includes.iter().any(|name| *name == "message.output_text.logprobs") {
        request["logprobs"] = true.into();
        request["top_logprobs"] = fields::get(body, "top_logprobs").cloned().unwrap_or_default();
    }
    Ok(request)
}

fn check(body: &Value, left_out: &mut LeftOut) -> Result<(), ApiError> {
    fields::check(body, fields::RESPONSES)?;
    for name in UNSUPPORTED {
        if fields::get(body, name).is_some() {
            return Err(ApiError::invalid(name, "is not supported; send the whole input"));
        }
    }
    if fields::boolean(body, "background")? == Some(true) {
        return Err(ApiError::invalid("background", "is not supported; use `stream`"));
    }
    if fields::get(body, "context_management").is_some() {
        left_out.note(Reason::Item, "context_management", "the server compacts no conversation");
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

/// What `truncation` is for the library. OpenAI's "auto" drops the beginning of the conversation.
fn context_overflow(body: &Value) -> Result<Option<&'static str>, ApiError> {
    match fields::string(body, "truncation")? {
        None => Ok(None),
        Some("auto") => Ok(Some("truncate_oldest")),
        Some("disabled") => Ok(Some("error")),
        Some(_) => Err(ApiError::invalid("truncation", "expected \"auto\" or \"disabled\"")),
    }
}

/// The library's choice. A list of allowed tools hides the others from the model.
fn tool_choice(
    choice: &Value,
    tools: &mut Tools,
    left_out: &mut LeftOut,
) -> Result<Option<Value>, ApiError> {
    if let Some(choice) = choice.as_str() {
        if !["auto", "none", "required"].contains(&choice) {
            let message = "expected \"auto\", \"none\", \"required\" or an object";
            return Err(ApiError::invalid("tool_choice", message));
        }
        return Ok(Some(choice.into()));
    }
    let kind = required_string(choice, "tool_choice", "type")?;
    if kind == "allowed_tools" {
        let mut names = HashSet::new();
        for (path, tool) in items("tool_choice.tools", fields::array(choice, "tools")?) {
            if let Some(kind) = chosen_kind(required_string(tool, &path, "type")?) {
                names.insert(referred_name(tool, &path, kind)?);
            }
        }
        tools.retain(&names);
        return Ok(fields::get(choice, "mode").cloned());
    }
    let Some(kind) = chosen_kind(kind) else {
        left_out.note(Reason::Tool, "tool_choice", "this tool does not run here");
        return Ok(None);
    };
    let name = referred_name(choice, "tool_choice", kind)?;
    Ok(Some(json!({ "type": "function", "function": { "name": name } })))
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
