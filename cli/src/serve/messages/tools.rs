//! The tools of Anthropic's requests, as functions of the library.
//!
//! Source: the types of the package `anthropic` 2.12, and for tools that a client runs without
//! declaring their parameters <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use>.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, brief, items, required_string};
use crate::serve::left_out::{LeftOut, Reason};

/// The functions. `used` are the names that the conversation calls, or that a search has found.
pub(super) fn tools(
    body: &Value,
    used: &HashSet<String>,
    left_out: &mut LeftOut,
) -> Result<Vec<Value>, ApiError> {
    let given = fields::array(body, "tools")?;
    // Anthropic's own search does not run here, so the model gets all that it could find.
    let is_search =
        |tool: &Value| kind(tool).is_some_and(|kind| kind.starts_with("tool_search_tool_"));
    let loads_all = given.iter().any(is_search);
    let mut tools = Vec::new();
    for (path, tool) in items("tools", given) {
        let known = match kind(tool).filter(|kind| *kind != "custom") {
            None => None,
            Some(kind) => match known(kind) {
                Some(known) => Some(known),
                None => {
                    let message = format!("tools of type {:?} do not run here", brief(kind));
                    left_out.note(Reason::Tool, &path, message);
                    continue;
                }
            },
        };
        let name = required_string(tool, &path, "name")?;
        if tool["defer_loading"] == true && !loads_all && !used.contains(name) {
            continue;
        }
        let mut function = json!({ "name": name });
        for (from, to) in
            [("description", "description"), ("input_schema", "parameters"), ("strict", "strict")]
        {
            if let Some(value) = fields::get(tool, from) {
                function[to] = value.clone();
            }
        }
        if let Some((description, parameters)) = known {
            function["description"] = description.into();
            function["parameters"] = parameters;
        }
        tools.push(json!({ "type": "function", "function": function }));
    }
    Ok(tools)
}

fn kind(tool: &Value) -> Option<&str> {
    fields::get(tool, "type").and_then(Value::as_str)
}

/// The description and the parameters of a tool that the client runs, by its type: a name and a
/// date.
fn known(kind: &str) -> Option<(&'static str, Value)> {
    let (name, date) = kind.rsplit_once('_')?;
    if date.is_empty() || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let text = json!({ "type": "string" });
    let lines = json!({ "type": "array", "items": { "type": "integer" } });
    let parameters = |commands: &[&str], members: &[&str]| {
        let mut properties = json!({ "command": { "enum": commands } });
        for member in members {
            properties[*member] = match *member {
                "view_range" => lines.clone(),
                "insert_line" => json!({ "type": "integer" }),
                _ => text.clone(),
            };
        }
        json!({ "type": "object", "properties": properties, "required": ["command"] })
    };
    let edits =
        ["path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"];
    match name {
        "bash" => Some((
            "Runs a command in a shell that stays open.",
            json!({ "type": "object", "properties": {
                "command": text, "restart": { "type": "boolean" },
            } }),
        )),
        "text_editor" => Some((
            "Shows, creates and edits files.",
            parameters(&["view", "create", "str_replace", "insert"], &edits),
        )),
        "memory" => Some((
            "Keeps notes in files under /memories.",
            parameters(
                &["view", "create", "str_replace", "insert", "delete", "rename"],
                &[edits.as_slice(), &["old_path", "new_path"]].concat(),
            ),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: Value, used: &[&str], expected: &[&str]) {
        let used = used.iter().map(|name| (*name).to_owned()).collect();
        let mut left_out = LeftOut::default();
        let tools = tools(&json!({ "tools": given }), &used, &mut left_out).unwrap();
        let names: Vec<&Value> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn tools_of_the_client_have_their_parameters() {
        let given = json!([
            { "type": "bash_20250124", "name": "bash" },
            { "type": "text_editor_20250728", "name": "str_replace_based_edit_tool" },
            { "type": "web_search_20250305", "name": "web_search" },
            { "type": "custom", "name": "f", "input_schema": {} },
        ]);
        check(given, &[], &["bash", "str_replace_based_edit_tool", "f"]);
    }

    #[test]
    fn deferred_tools_are_loaded_when_they_are_found() {
        let given = json!([{ "name": "search" }, { "name": "late", "defer_loading": true }]);
        check(given.clone(), &[], &["search"]);
        check(given, &["late"], &["search", "late"]);
        let hosted = json!([
            { "type": "tool_search_tool_bm25_20251119", "name": "tool_search" },
            { "name": "late", "defer_loading": true },
        ]);
        check(hosted, &[], &["late"]);
    }
}
