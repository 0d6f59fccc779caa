//! Converts Anthropic's requests to the library's.

use serde_json::{Value, json};

use super::tools::tools;
use super::turns::{self, Turns};
use crate::serve::error::ApiError;
use crate::serve::exchanges;
use crate::serve::fields::{self, required_string, wrong};
use crate::serve::left_out::{LeftOut, Reason};

/// Members that are converted, or have no effect here. All others are the library's.
const OWN: [&str; 14] = [
    "container",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "stop_sequences",
    "stream",
    "system",
    "thinking",
    "tool_choice",
    "tools",
];
/// The library's request, without `max_tokens`. With `keeps_metadata` the system prompt keeps the
/// lines that clients write about themselves.
pub(super) fn library_request(
    body: &Value,
    keeps_metadata: bool,
    left_out: &mut LeftOut,
) -> Result<Value, ApiError> {
    fields::check(body, fields::MESSAGES)?;
    let mut request = fields::others(body, &OWN);
    if let Some(stop) = fields::get(body, "stop_sequences") {
        request["stop"] = stop.clone();
    }
    for name in ["mcp_servers", "container"] {
        if fields::get(body, name)
            .is_some_and(|value| value.as_array().is_none_or(|a| !a.is_empty()))
        {
            left_out.note(Reason::Tool, name, "runs at Anthropic only");
        }
    }
    let Turns { messages, used_tools } = turns::read(body, keeps_metadata, left_out)?;
    exchanges::check_turns(fields::array(body, "messages")?)?;
    // Anthropic's API continues a final assistant message.
    if messages.last().is_some_and(|last| last["role"] == "assistant") {
        request["continue_final_message"] = true.into();
    }
    request["messages"] = messages.into();
    let tools = tools(body, &used_tools, left_out)?;
    if !tools.is_empty() {
        add_tool_choice(body, &tools, &mut request, left_out)?;
        request["tools"] = tools.into();
    }
    add_thinking(body, &mut request, left_out)?;
    add_format(body, &mut request);
    Ok(request)
}

/// Whether the reply includes thinking blocks.
pub(super) fn asks_for_thinking(body: &Value) -> bool {
    matches!(body["thinking"]["type"].as_str(), Some("enabled" | "adaptive"))
}

fn add_tool_choice(
    body: &Value,
    tools: &[Value],
    request: &mut Value,
    left_out: &mut LeftOut,
) -> Result<(), ApiError> {
    let Some(choice) = fields::get(body, "tool_choice") else { return Ok(()) };
    let value = match required_string(choice, "tool_choice", "type")? {
        "auto" => json!("auto"),
        "any" => json!("required"),
        "none" => json!("none"),
        "tool" => {
            let name = required_string(choice, "tool_choice", "name")?;
            let is_given = |given: &Value| given["name"] == name;
            let is_offered = |tool: &Value| tool["function"]["name"] == name;
            let is_hosted =
                fields::array(body, "tools")?.iter().any(is_given) && !tools.iter().any(is_offered);
            if is_hosted {
                left_out.note(Reason::Tool, "tool_choice", "this tool does not run here");
                json!("auto")
            } else {
                json!({ "type": "function", "function": { "name": name } })
            }
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
fn add_thinking(body: &Value, request: &mut Value, left_out: &mut LeftOut) -> Result<(), ApiError> {
    let Some(thinking) = fields::get(body, "thinking") else {
        request["enable_thinking"] = false.into();
        left_out.hide("enable_thinking_ignored");
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
