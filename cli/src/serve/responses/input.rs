//! Converts input items to messages and tools.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::tools::{ToolKind, Tools, referred_name};
use crate::serve::error::ApiError;
use crate::serve::fields::{self, brief, items, join, required_string, wrong};
use crate::serve::left_out::{LeftOut, Reason};
use crate::serve::{parts, pictures};

/// The types of parts with a picture.
const PICTURES: [&str; 2] = ["input_image", "computer_screenshot"];

/// The messages of earlier responses, followed by those of `input`, and the tools that the model
/// gets.
pub(super) fn read(
    body: &Value,
    previous: Vec<Value>,
    left_out: &mut LeftOut,
) -> Result<(Vec<Value>, Tools), ApiError> {
    let mut tools = Tools::default();
    tools.add_all(fields::array(body, "tools")?, "tools", left_out)?;
    let mut conversation = InputReader {
        messages: previous,
        tools,
        call_ids: HashMap::new(),
        is_open: false,
        left_out,
    };
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
    let InputReader { messages, mut tools, left_out, .. } = conversation;
    if messages.is_empty()
        && let Some(reason) = left_out.first()
    {
        let message = format!("nothing in it can be used; {reason}");
        return Err(ApiError::invalid("input", message));
    }
    tools.finish();
    Ok((messages, tools))
}

/// Adjacent reasoning, assistant messages and calls form one message, as the model wrote it.
struct InputReader<'a> {
    messages: Vec<Value>,
    tools: Tools,
    /// The ids of calls by those of their items. Some results name the item.
    call_ids: HashMap<String, String>,
    /// Whether the next assistant item belongs to the last message.
    is_open: bool,
    left_out: &'a mut LeftOut,
}

impl InputReader<'_> {
    fn add(&mut self, message: Value) {
        self.messages.push(message);
        self.is_open = false;
    }

    fn add_item(&mut self, item: &Value, path: &str) -> Result<(), ApiError> {
        let kind = match fields::get(item, "type") {
            None => "message",
            Some(_) => required_string(item, path, "type")?,
        };
        let is_hosted = item["execution"] == "server";
        match kind {
            "message" => return self.add_message(item, path),
            "reasoning" => return self.add_reasoning(item, path),
            "additional_tools" => {
                let given = fields::array_at(item, path, "tools")?;
                return self.tools.load(given, &join(path, "tools"), self.left_out);
            }
            _ => {}
        }
        if let Some(kind) = ToolKind::from_call_type(kind).filter(|_| !is_hosted) {
            return self.add_call(kind, item, path);
        }
        if let Some(kind) = ToolKind::from_output_type(kind) {
            return self.add_result(kind, item, path);
        }
        self.add_other(kind, item, path);
        Ok(())
    }

    fn add_call(&mut self, kind: ToolKind, item: &Value, path: &str) -> Result<(), ApiError> {
        let function = json!({
            "name": referred_name(item, path, kind)?,
            "arguments": kind.arguments(item, path)?,
        });
        let id = required_string(item, path, "call_id")?;
        if let Some(item_id) = item["id"].as_str() {
            self.call_ids.insert(item_id.to_owned(), id.to_owned());
        }
        let call = json!({ "id": id, "type": "function", "function": function });
        let message = self.assistant();
        match message["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => message["tool_calls"] = json!([call]),
        }
        Ok(())
    }

    fn add_result(&mut self, kind: ToolKind, item: &Value, path: &str) -> Result<(), ApiError> {
        let content: Value = match kind {
            ToolKind::ToolSearch => {
                let found = fields::array_at(item, path, "tools")?;
                self.tools.load(found, &join(path, "tools"), self.left_out)?;
                if item["execution"] == "server" {
                    return Ok(());
                }
                let names = found.iter().filter_map(|tool| tool["name"].as_str());
                json!({ "tools": names.collect::<Vec<_>>() }).to_string().into()
            }
            ToolKind::ApplyPatch => {
                let output = item["output"].as_str().filter(|text| !text.is_empty());
                output.or(item["status"].as_str()).unwrap_or_default().into()
            }
            ToolKind::Shell => shell_output(&item["output"], path)?.into(),
            _ => self.content(&item["output"], &join(path, "output"))?,
        };
        // The result of a local shell names its call by `id`.
        let by_item = item["id"].as_str().filter(|_| fields::get(item, "call_id").is_none());
        let id = match by_item.filter(|_| kind == ToolKind::LocalShell) {
            Some(id) => self.call_ids.get(id).map_or(id, String::as_str),
            None => required_string(item, path, "call_id")?,
        };
        let message = json!({ "role": "tool", "tool_call_id": id, "content": content });
        self.add(message);
        Ok(())
    }

    /// An item of another service: its text, as what the one who made it said.
    fn add_other(&mut self, kind: &str, item: &Value, path: &str) {
        let name = kind.strip_suffix("_call").unwrap_or(kind);
        let text = parts::other(name, item);
        if kind == "item_reference" || text == format!("[{name}]") {
            let message = format!("items of type {:?} are ignored", brief(kind));
            return self.left_out.note(Reason::Item, path, message);
        }
        self.left_out.note(Reason::Replaced, path, format!("became a text: {:?}", brief(&text)));
        if kind.ends_with("_output") || kind.ends_with("_response") {
            return self.add(json!({ "role": "user", "content": text }));
        }
        let message = self.assistant();
        let before = message["content"].as_str().unwrap_or_default();
        let content = if before.is_empty() { text } else { format!("{before}\n{text}") };
        message["content"] = content.into();
    }

    fn add_reasoning(&mut self, item: &Value, path: &str) -> Result<(), ApiError> {
        let text = reasoning_text(item, path)?;
        if !text.is_empty() {
            // Reasoning begins a new answer.
            self.is_open = false;
            self.assistant()["reasoning_content"] = text.into();
        }
        Ok(())
    }

    fn add_message(&mut self, item: &Value, path: &str) -> Result<(), ApiError> {
        let role = required_string(item, path, "role")?;
        let content = self.content(&item["content"], &join(path, "content"))?;
        match role {
            "assistant" => {
                let has_content = self.messages.last().is_some_and(|last| last["content"] != "");
                let has_calls =
                    self.messages.last().is_some_and(|last| last.get("tool_calls").is_some());
                if has_content || has_calls {
                    self.is_open = false;
                }
                self.assistant()["content"] = content;
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

    /// A string, or parts: their text, and what the others are. With pictures or sounds, parts again.
    fn content(&mut self, content: &Value, path: &str) -> Result<Value, ApiError> {
        let given = match content {
            Value::String(_) => return Ok(content.clone()),
            Value::Array(given) => given,
            Value::Null => return Err(ApiError::invalid(path, "is missing")),
            other => return Err(wrong(path, "a string or an array", other)),
        };
        let (mut parts, mut whole) = (Vec::new(), String::new());
        for (path, part) in items(path, given) {
            let kind = required_string(part, &path, "type")?;
            if ["input_text", "output_text", "text"].contains(&kind) {
                whole += required_string(part, &path, "text")?;
            } else if kind == "refusal" {
                whole += required_string(part, &path, "refusal")?;
            } else if PICTURES.contains(&kind) && self.left_out.takes_pictures() {
                let path = join(&path, "image_url");
                let Some(url) = part["image_url"].as_str() else {
                    let problem = "is missing; no files are stored here, send a data URL";
                    return Err(ApiError::invalid(&path, problem));
                };
                add_text(&mut parts, &mut whole);
                parts.push(pictures::picture(url, &path, self.left_out));
            } else if kind == "input_audio" && self.left_out.takes_sound() {
                let (sound, path) = (&part["input_audio"], join(&path, "input_audio"));
                let data = required_string(sound, &path, "data")?;
                add_text(&mut parts, &mut whole);
                parts.push(pictures::sound(data, &join(&path, "data")));
            } else {
                let text = described(kind, part);
                self.left_out.note(Reason::Replaced, &path, "the model takes text");
                whole += &text;
            }
        }
        if parts.is_empty() {
            return Ok(whole.into());
        }
        add_text(&mut parts, &mut whole);
        Ok(parts.into())
    }
}

/// Adds a part with the text so far, if there is any.
fn add_text(parts: &mut Vec<Value>, text: &mut String) {
    if !text.is_empty() {
        parts.push(json!({ "type": "text", "text": std::mem::take(text) }));
    }
}

/// A part that is no text.
fn described(kind: &str, part: &Value) -> String {
    let member = |name: &str| part[name].as_str().unwrap_or_default();
    match kind {
        kind if PICTURES.contains(&kind) => parts::image(member("image_url")),
        "input_audio" => parts::sound(part["input_audio"]["format"].as_str().unwrap_or_default()),
        "input_file" => match parts::data_url(member("file_data")) {
            Some((media_type, data)) => parts::file(member("filename"), media_type, data),
            None => parts::file(member("filename"), "", ""),
        },
        other => parts::other(other, part),
    }
}

/// What commands of a shell wrote, with their exit codes.
fn shell_output(output: &Value, path: &str) -> Result<String, ApiError> {
    let path = join(path, "output");
    let Value::Array(results) = output else {
        let text = output.as_str().map(str::to_owned);
        return text.ok_or_else(|| wrong(&path, "a string or an array", output));
    };
    let mut whole = String::new();
    for result in results {
        for name in ["stdout", "stderr"] {
            whole += result[name].as_str().unwrap_or_default();
        }
        match (&result["outcome"]["exit_code"], &result["outcome"]["type"]) {
            (Value::Number(code), _) => whole += &format!("\n[exit code {code}]\n"),
            (_, Value::String(kind)) => whole += &format!("\n[{}]\n", brief(kind)),
            _ => {}
        }
    }
    Ok(whole)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &Value, expected: &Value, tools: &[&str]) {
        let mut left_out = LeftOut::default();
        let (messages, read) = read(&json!({ "input": input }), Vec::new(), &mut left_out).unwrap();
        assert_eq!(Value::from(messages), *expected);
        let names = read.functions().iter().map(|function| &function["function"]["name"]);
        assert_eq!(names.collect::<Vec<_>>(), tools);
    }

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
        check(&input, &expected, &[]);
    }

    #[test]
    fn calls_of_every_kind_are_calls() {
        let input = json!([
            { "type": "custom_tool_call", "call_id": "1", "name": "sql", "input": "select" },
            { "type": "custom_tool_call_output", "call_id": "1", "output": "1 row" },
            { "type": "local_shell_call", "id": "lsh", "call_id": "2", "action": { "type": "exec", "command": ["ls"], "env": {} } },
            { "type": "local_shell_call_output", "id": "lsh", "output": "a" },
            { "type": "shell_call", "call_id": "3", "action": { "commands": ["ls"] } },
            { "type": "shell_call_output", "call_id": "3", "output": [{ "stdout": "a\n", "stderr": "", "outcome": { "type": "exit", "exit_code": 1 } }] },
            { "type": "apply_patch_call", "call_id": "4", "operation": { "type": "delete_file", "path": "a" } },
            { "type": "apply_patch_call_output", "call_id": "4", "status": "completed" },
            { "type": "function_call", "call_id": "5", "namespace": "crm", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "5", "output": [{ "type": "input_image", "image_url": "https://a/b.png" }] },
        ]);
        let call = |id: &str, name: &str, arguments: &str| {
            let function = json!({ "name": name, "arguments": arguments });
            json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": id, "type": "function", "function": function }] })
        };
        let result =
            |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
        let expected = json!([
            call("1", "sql", r#"{"input":"select"}"#),
            result("1", "1 row"),
            call("2", "local_shell", r#"{"command":["ls"],"env":{}}"#),
            result("2", "a"),
            call("3", "shell", r#"{"commands":["ls"]}"#),
            result("3", "a\n\n[exit code 1]\n"),
            call("4", "apply_patch", r#"{"type":"delete_file","path":"a"}"#),
            result("4", "completed"),
            call("5", "crm__f", "{}"),
            result("5", "[image]"),
        ]);
        check(&input, &expected, &[]);
    }

    #[test]
    fn items_of_other_services_become_text() {
        let input = json!([
            { "role": "user", "content": [{ "type": "input_text", "text": "see " }, { "type": "input_image", "image_url": "x" }] },
            { "type": "web_search_call", "id": "ws", "status": "completed", "action": { "type": "search", "query": "q" } },
            { "type": "reasoning", "summary": [], "encrypted_content": "gAAA" },
            { "type": "compaction", "encrypted_content": "gAAA" },
            { "type": "message", "role": "assistant", "content": "done" },
        ]);
        let expected = json!([
            { "role": "user", "content": "see [image]" },
            { "role": "assistant", "content": r#"[web_search: {"action":{"query":"q"}}]"# },
            { "role": "assistant", "content": "done" },
        ]);
        check(&input, &expected, &[]);
    }

    #[test]
    fn items_bring_tools() {
        let f = |name: &str| json!({ "type": "function", "name": name });
        let input = json!([
            { "type": "additional_tools", "role": "developer", "tools": [{ "type": "namespace", "name": "functions", "tools": [f("a")] }] },
            { "role": "user", "content": "x" },
            { "type": "tool_search_call", "call_id": "1", "execution": "client", "arguments": { "query": "b" } },
            { "type": "tool_search_output", "call_id": "1", "execution": "client", "tools": [f("b")] },
        ]);
        let function = json!({ "name": "tool_search", "arguments": r#"{"query":"b"}"# });
        let expected = json!([
            { "role": "user", "content": "x" },
            { "role": "assistant", "content": "", "tool_calls": [{ "id": "1", "type": "function", "function": function }] },
            { "role": "tool", "tool_call_id": "1", "content": r#"{"tools":["b"]}"# },
        ]);
        check(&input, &expected, &["a", "b"]);
    }

    #[test]
    fn nothing_but_unusable_items_is_refused() {
        let input = json!([{ "type": "compaction", "encrypted_content": "x" }]);
        let error = read(&json!({ "input": input }), Vec::new(), &mut LeftOut::default());
        let message = error.err().unwrap().message;
        assert!(message.contains("items of type \"compaction\" are ignored"), "{message}");
    }
}
