//! A first look at the messages as sent: whether any step may have something to do. Costs no copy.

use serde_json::{Map, Value};

use super::conversation::PolyfillContext;
use super::{
    developer_role, object_arguments, parallel_calls, same_role_merge, system_position, system_role,
};
use super::{tool_call_ids, tool_calls, tool_responses, tools, typed_content};
use crate::api::member;
use crate::template::probe::traits::{NoContent, ReasoningFormat};

/// Whether no step would change or report anything. Wrong in one direction only: true is certain.
pub(super) fn nothing_to_do(messages: &[Value], context: &PolyfillContext) -> bool {
    let neighbours = same_role_merge::wanted(context)
        && messages.windows(2).any(|pair| pair[0]["role"] == pair[1]["role"]);
    let later = system_position::wanted(context)
        && messages.iter().skip(1).any(|message| message["role"] == "system");
    if tools::wanted(context) || neighbours || later {
        return false;
    }
    messages.iter().all(|message| plain(message, context))
}

fn plain(message: &Value, context: &PolyfillContext) -> bool {
    let Value::Object(members) = message else { return false };
    if members.iter().any(|(name, value)| value.is_null() && name != "content") {
        return false;
    }
    let typed = match member(members, "content") {
        Some(Value::String(_)) => {
            typed_content::wanted(context) != typed_content::ContentTarget::Parts
        }
        Some(Value::Array(_)) => {
            typed_content::wanted(context) != typed_content::ContentTarget::String
        }
        _ => true,
    };
    let result = member(members, "role").is_some_and(|role| role == "tool");
    let shaped = member(members, "content").is_none_or(|content| match content {
        Value::String(_) => true,
        Value::Array(parts) => {
            parts.iter().all(|part| part.get("type").is_some_and(Value::is_string))
        }
        _ => false,
    });
    if result && !shaped {
        return false;
    }
    let role = match member(members, "role").and_then(Value::as_str) {
        Some("system") => !system_role::wanted(context),
        Some("developer") => !developer_role::wanted(context),
        Some("tool") => !tool_responses::wanted(context) && !tool_call_ids::wanted(context),
        Some("assistant") => assistant(members, context),
        _ => true,
    };
    typed && role && calls(member(members, "tool_calls"), context)
}

fn assistant(members: &Map<String, Value>, context: &PolyfillContext) -> bool {
    let given = |name: &str| member(members, name).is_some_and(|value| !value.is_null());
    let reasoning = ["reasoning_content", "thinking", "reasoning"].into_iter().any(given);
    let shown = context.caps.reasoning_format == ReasoningFormat::ReasoningContentField
        && !context.caps.reasoning_requires_tools;
    let with_calls = given("tool_calls") && given("content");
    let reasons = !reasoning
        || (given("reasoning_content") && (!context.options.reasoning || (shown && !with_calls)));
    let says = match member(members, "content") {
        None => {
            context.details.no_content == NoContent::Absent
                && context.details.no_content_beside_calls == NoContent::Absent
        }
        Some(Value::String(text)) => !text.is_empty() || !given("tool_calls"),
        Some(content) => !content.is_null(),
    };
    reasons && (says || !context.options.null_content)
}

fn calls(calls: Option<&Value>, context: &PolyfillContext) -> bool {
    let Some(calls) = calls.and_then(Value::as_array) else { return true };
    let empty = calls.is_empty() && context.options.empty_tool_calls;
    let several = calls.len() > 1 && parallel_calls::wanted(context);
    let renamed = tool_call_ids::wanted(context) || tool_calls::wanted(context);
    let object = object_arguments::wanted(context);
    let as_taken = |call: &Value| match (object, call.pointer("/function/arguments")) {
        (object_arguments::ArgumentsTarget::AsSent, _) => true,
        (object_arguments::ArgumentsTarget::Object, Some(arguments)) => arguments.is_object(),
        _ => false,
    };
    !empty
        && !several
        && !renamed
        && calls.iter().all(|call| {
            (call["type"] == "function" || call.get("function").is_none()) && as_taken(call)
        })
}
