//! Parts of a chat completion that the library refuses or does not know: content other than text,
//! custom tools, tools that run elsewhere, and lists of allowed tools.
//!
//! Source: the types of the package `openai` 3.54.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::custom_calls::CustomCalls;
use super::error::ApiError;
use super::fields::{self, brief, items};
use super::left_out::{LeftOut, Reason};
use super::parts;

/// Changes the members of a request in place. Members of the wrong type are left to the library.
/// Returns the custom tools, which are functions now.
pub(super) fn adapt(request: &mut Value, left_out: &mut LeftOut) -> Result<CustomCalls, ApiError> {
    let custom = CustomCalls::read(request, left_out)?;
    if let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) {
        for (index, message) in messages.iter_mut().enumerate() {
            describe_parts(message, &format!("messages[{index}].content"), left_out);
        }
    }
    keep_functions(request, left_out);
    allow_tools(request);
    if let Some(members) = request.as_object_mut()
        && members.shift_remove("web_search_options").is_some_and(|given| !given.is_null())
    {
        left_out.note(Reason::Item, "web_search_options", "declare a tool for the search");
    }
    Ok(custom)
}

/// Content that the model cannot take becomes a text that says what it is.
fn describe_parts(message: &mut Value, path: &str, left_out: &mut LeftOut) {
    let parts = message.get_mut("content").and_then(Value::as_array_mut);
    for (index, part) in parts.into_iter().flatten().enumerate() {
        let Some(kind) = part["type"].as_str() else { continue };
        let text = match kind {
            "image" | "image_url" if left_out.takes_pictures() => continue,
            "input_audio" | "audio" | "audio_url" if left_out.takes_sound() => continue,
            "image" => parts::image(""),
            "image_url" => parts::image(part["image_url"]["url"].as_str().unwrap_or_default()),
            "input_audio" => {
                parts::sound(part["input_audio"]["format"].as_str().unwrap_or_default())
            }
            "audio" | "audio_url" => parts::sound(""),
            "file" => {
                let member = |name: &str| part["file"][name].as_str().unwrap_or_default();
                let data = member("file_data");
                let (media_type, data) = parts::data_url(data).unwrap_or(("", data));
                parts::file(member("filename"), media_type, data)
            }
            _ => continue,
        };
        left_out.note(Reason::Replaced, &format!("{path}[{index}]"), "the model takes text");
        *part = json!({ "type": "text", "text": text });
    }
}

fn keep_functions(request: &mut Value, left_out: &mut LeftOut) {
    let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) else { return };
    let is_kept = |tool: &Value| tool["type"].as_str().is_none_or(|kind| kind == "function");
    for (path, tool) in items("tools", tools).filter(|(_, tool)| !is_kept(tool)) {
        let kind = brief(tool["type"].as_str().unwrap_or_default());
        left_out.note(Reason::Tool, &path, format!("tools of type {kind:?} do not run here"));
    }
    let before = tools.len();
    tools.retain(is_kept);
    if tools.is_empty() && before > 0 {
        for name in ["tools", "tool_choice", "parallel_tool_calls"] {
            request.as_object_mut().map(|members| members.shift_remove(name));
        }
    }
}

/// Offers the tools of an `allowed_tools` choice only.
fn allow_tools(request: &mut Value) {
    let choice = &request["tool_choice"];
    if choice["type"] != "allowed_tools" {
        return;
    }
    let allowed = choice["allowed_tools"].clone();
    let names = fields::array(&allowed, "tools").unwrap_or_default().iter();
    let names = names.filter_map(|tool| {
        let named = [&tool["function"]["name"], &tool["custom"]["name"]];
        named.into_iter().find_map(Value::as_str)
    });
    let names: HashSet<&str> = names.collect();
    if let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) {
        let is_named = |name: Option<&str>| name.is_some_and(|name| names.contains(name));
        tools.retain(|tool| is_named(tool["function"]["name"].as_str()));
    }
    request["tool_choice"] = allowed["mode"].clone();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(mut request: Value) -> (Value, Option<String>) {
        let mut left_out = LeftOut::default();
        adapt(&mut request, &mut left_out).unwrap();
        (request, left_out.first())
    }

    #[test]
    fn parts_become_text() {
        let content = json!([
            { "type": "text", "text": "a" },
            { "type": "image_url", "image_url": { "url": "data:image/gif;base64,AA==" } },
            { "type": "image", "path": "/srv/a.png" },
            { "type": "input_audio", "input_audio": { "data": "", "format": "wav" } },
            { "type": "audio", "path": "/srv/a.wav" },
            { "type": "file", "file": { "filename": "n.txt", "file_data": "data:text/plain;base64,aGk=" } },
        ]);
        let (request, note) =
            adapted(json!({ "messages": [{ "role": "user", "content": content }] }));
        let texts =
            ["a", "[image: gif]", "[image]", "[audio: wav]", "[audio]", "[file: n.txt]\nhi"];
        let expected = texts.map(|text| json!({ "type": "text", "text": text }));
        assert_eq!(request["messages"][0]["content"], json!(expected));
        assert_eq!(note.unwrap(), "messages[0].content[1]: the model takes text");
    }

    #[test]
    fn tools_of_other_kinds_are_left_out() {
        let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
        let hosted = json!({ "type": "web_search" });
        let (request, note) = adapted(json!({ "tools": [hosted, tool("f")] }));
        assert_eq!(request, json!({ "tools": [tool("f")] }));
        assert_eq!(note.unwrap(), "tools[0]: tools of type \"web_search\" do not run here");
        let (request, _) = adapted(json!({ "tools": [hosted], "tool_choice": "auto" }));
        assert_eq!(request, json!({}));
        let allowed = json!({ "mode": "required", "tools": [tool("f")] });
        let choice = json!({ "type": "allowed_tools", "allowed_tools": allowed });
        let (request, _) =
            adapted(json!({ "tools": [tool("g"), tool("f")], "tool_choice": choice }));
        assert_eq!(request, json!({ "tools": [tool("f")], "tool_choice": "required" }));
    }
}
