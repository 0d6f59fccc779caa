//! Converts the system prompt and the messages of Anthropic's requests to the library's messages.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, items, join, required_string, wrong};
use crate::serve::left_out::{LeftOut, Reason};
use crate::serve::{parts, pictures};

/// Beginnings of system blocks that a client writes about itself and that change with each request,
/// so that no prompt would be found in the cache. Claude Code writes
/// `x-anthropic-billing-header: cc_version=…; cc_entrypoint=cli; cch=…;` as its first block. Source:
/// <https://github.com/musistudio/claude-code-router/issues/1161>.
const CLIENT_METADATA: [&str; 1] = ["x-anthropic-billing-header:"];

/// A conversation.
pub(super) struct Turns {
    pub(super) messages: Vec<Value>,
    /// The names of tools that are called in it, or that results refer to.
    pub(super) used_tools: HashSet<String>,
}

/// Reads `system` and `messages`.
pub(super) fn read(
    body: &Value,
    keeps_metadata: bool,
    left_out: &mut LeftOut,
) -> Result<Turns, ApiError> {
    let turns = Turns { messages: Vec::new(), used_tools: HashSet::new() };
    let mut reader = TurnReader { turns, left_out };
    if let Some(system) = fields::get(body, "system") {
        reader.add_system(system, keeps_metadata)?;
    }
    let given = fields::array(body, "messages")?;
    if given.is_empty() {
        return Err(ApiError::invalid("messages", "at least one message is needed"));
    }
    items("messages", given).try_for_each(|(path, message)| reader.add(message, &path))?;
    Ok(reader.turns)
}

struct TurnReader<'a> {
    turns: Turns,
    left_out: &'a mut LeftOut,
}

impl TurnReader<'_> {
    fn push(&mut self, message: Value) {
        self.turns.messages.push(message);
    }

    fn add_system(&mut self, system: &Value, keeps_metadata: bool) -> Result<(), ApiError> {
        let is_metadata = |block: &Value| {
            let text = block["text"].as_str().unwrap_or_default().trim_start();
            !keeps_metadata && CLIENT_METADATA.iter().any(|begin| text.starts_with(begin))
        };
        let content = match system {
            Value::Array(blocks) => {
                let kept: Vec<Value> =
                    blocks.iter().filter(|block| !is_metadata(block)).cloned().collect();
                if kept.is_empty() && !blocks.is_empty() {
                    return Ok(());
                }
                self.text(&kept.into(), "system")?
            }
            other => self.text(other, "system")?,
        };
        self.push(json!({ "role": "system", "content": content }));
        Ok(())
    }

    fn add(&mut self, message: &Value, above: &str) -> Result<(), ApiError> {
        let role = required_string(message, above, "role")?;
        let content = fields::get(message, "content");
        let path = join(above, "content");
        let content = content.ok_or_else(|| ApiError::invalid(&path, "is missing"))?;
        match (role, content) {
            ("user" | "assistant" | "system", Value::String(_)) => {
                self.push(json!({ "role": role, "content": content }));
            }
            ("user", Value::Array(blocks)) => self.add_user_blocks(blocks, &path)?,
            ("assistant", Value::Array(blocks)) => self.add_assistant_blocks(blocks, &path)?,
            ("system", _) => {
                let content = self.text(content, &path)?;
                self.push(json!({ "role": role, "content": content }));
            }
            ("user" | "assistant", _) => return Err(wrong(&path, "a string or an array", content)),
            _ => {
                let expected = "expected \"user\" or \"assistant\"";
                return Err(ApiError::invalid(&join(above, "role"), expected));
            }
        }
        Ok(())
    }

    /// Tool results become separate messages, in the order of the blocks.
    fn add_user_blocks(&mut self, blocks: &[Value], path: &str) -> Result<(), ApiError> {
        let mut parts: Vec<Value> = Vec::new();
        for (path, block) in items(path, blocks) {
            if required_string(block, &path, "type")? != "tool_result" {
                parts.push(self.part(block, &path)?);
                continue;
            }
            self.flush(&mut parts);
            let id = required_string(block, &path, "tool_use_id")?;
            let error = if block["is_error"] == true { "Error: " } else { "" };
            let content = match fields::get(block, "content") {
                None => error.into(),
                Some(content) => self.result(error, content, &join(&path, "content"))?,
            };
            self.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
        }
        self.flush(&mut parts);
        Ok(())
    }

    /// The content of a tool's result: a text, or parts if there are pictures.
    fn result(&mut self, error: &str, content: &Value, path: &str) -> Result<Value, ApiError> {
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let has_picture = blocks.iter().any(|block| block["type"] == "image");
        if !has_picture || !self.left_out.takes_pictures() {
            return Ok(format!("{error}{}", self.text(content, path)?).into());
        }
        let error = (!error.is_empty()).then(|| json!({ "type": "text", "text": error }));
        let parts = items(path, blocks).map(|(path, block)| self.part(block, &path));
        error.map(Ok).into_iter().chain(parts).collect()
    }

    /// The part of a user's block.
    fn part(&mut self, block: &Value, path: &str) -> Result<Value, ApiError> {
        if block["type"] == "image" && self.left_out.takes_pictures() {
            let (source, path) = (&block["source"], join(path, "source"));
            if source["type"] == "url" {
                let url = required_string(source, &path, "url")?;
                return Ok(pictures::picture(url, &join(&path, "url"), self.left_out));
            }
            if source["type"] != "base64" {
                let problem =
                    "no files are stored here; send {\"type\":\"base64\",\"media_type\",\"data\"}";
                return Err(ApiError::invalid(&join(&path, "type"), problem));
            }
            let media_type = required_string(source, &path, "media_type")?;
            let data = required_string(source, &path, "data")?;
            let url = format!("data:{media_type};base64,{data}");
            return Ok(pictures::picture(&url, &join(&path, "data"), self.left_out));
        }
        let text = self.block_text(block, path)?;
        Ok(json!({ "type": "text", "text": text }))
    }

    fn flush(&mut self, parts: &mut Vec<Value>) {
        if !parts.is_empty() {
            self.push(json!({ "role": "user", "content": std::mem::take(parts) }));
        }
    }

    fn add_assistant_blocks(&mut self, blocks: &[Value], path: &str) -> Result<(), ApiError> {
        let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for (path, block) in items(path, blocks) {
            match required_string(block, &path, "type")? {
                "thinking" => reasoning += required_string(block, &path, "thinking")?,
                // Encrypted, so only Anthropic can read it.
                "redacted_thinking" => {}
                "tool_use" => calls.push(self.call(block, &path)?),
                _ => content += &self.block_text(block, &path)?,
            }
        }
        let mut message = json!({ "role": "assistant", "content": content });
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        self.push(message);
        Ok(())
    }

    fn call(&mut self, block: &Value, path: &str) -> Result<Value, ApiError> {
        let id = required_string(block, path, "id")?;
        let name = required_string(block, path, "name")?;
        self.turns.used_tools.insert(name.to_owned());
        let input = fields::get(block, "input").cloned().unwrap_or_else(|| json!({}));
        if !input.is_object() {
            return Err(wrong(&join(path, "input"), "an object", &input));
        }
        let function = json!({ "name": name, "arguments": input.to_string() });
        Ok(json!({ "id": id, "type": "function", "function": function }))
    }

    /// A string, or the lines of blocks.
    fn text(&mut self, content: &Value, path: &str) -> Result<String, ApiError> {
        match content {
            Value::String(text) => Ok(text.clone()),
            Value::Array(blocks) => {
                let texts: Result<Vec<String>, ApiError> = items(path, blocks)
                    .map(|(path, block)| self.block_text(block, &path))
                    .collect();
                Ok(texts?.join("\n"))
            }
            other => Err(wrong(path, "a string or an array", other)),
        }
    }

    /// The text of a block, or what it is.
    fn block_text(&mut self, block: &Value, path: &str) -> Result<String, ApiError> {
        let kind = required_string(block, path, "type")?;
        let source = &block["source"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let described = match kind {
            "text" => return Ok(required_string(block, path, "text")?.to_owned()),
            "tool_reference" => {
                let name = required_string(block, path, "tool_name")?;
                self.turns.used_tools.insert(name.to_owned());
                return Ok(format!("[tool: {name}]"));
            }
            "search_result" => {
                let content = self.text(&block["content"], &join(path, "content"))?;
                return Ok(format!("{} ({})\n{content}", text(&block["title"]), text(source)));
            }
            "document" if source["type"] == "text" || source["type"] == "content" => {
                let member = if source["type"] == "text" { "data" } else { "content" };
                let path = join(&join(path, "source"), member);
                let content = self.text(&source[member], &path)?;
                let title = text(&block["title"]);
                let line = if title.is_empty() { "" } else { "\n" };
                return Ok(format!("{title}{line}{content}"));
            }
            "document" => parts::file(&text(&block["title"]), "", ""),
            "audio" | "audio_url" | "input_audio" => {
                let problem = "Anthropic's messages have no sounds; send them to \
                               /v1/chat/completions or /v1/responses, as input_audio";
                return Err(ApiError::invalid(&join(path, "type"), problem));
            }
            "image" => match (source["media_type"].as_str(), source["data"].as_str()) {
                (Some(media_type), Some(data)) => parts::image_data(media_type, data),
                _ => parts::image(""),
            },
            "tool_search_tool_result" => {
                let found = block["content"]["tool_references"].as_array();
                let names = found.into_iter().flatten().filter_map(|one| one["tool_name"].as_str());
                self.turns.used_tools.extend(names.map(str::to_owned));
                parts::other(kind, block)
            }
            other => parts::other(other, block),
        };
        self.left_out.note(Reason::Replaced, path, "the model takes text");
        Ok(described)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(body: &Value) -> Value {
        read(body, false, &mut LeftOut::default()).unwrap().messages.into()
    }

    #[test]
    fn blocks_of_every_kind_are_text() {
        let blocks = json!([
            { "type": "text", "text": "a" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" } },
            { "type": "document", "title": "t", "source": { "type": "text", "media_type": "text/plain", "data": "d" } },
            { "type": "document", "title": "t.pdf", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" } },
            { "type": "search_result", "title": "s", "source": "https://s", "content": [{ "type": "text", "text": "found" }] },
            { "type": "container_upload", "file_id": "f_1" },
        ]);
        let body = json!({ "messages": [{ "role": "user", "content": blocks }] });
        let texts = [
            "a",
            "[image: png]",
            "t\nd",
            "[file: t.pdf]",
            "s (https://s)\nfound",
            r#"[container_upload: {"file_id":"f_1"}]"#,
        ];
        let parts = texts.map(|text| json!({ "type": "text", "text": text }));
        assert_eq!(messages(&body), json!([{ "role": "user", "content": parts }]));
    }

    #[test]
    fn metadata_of_the_client_is_left_out() {
        let body = |header: &str| {
            json!({
                "system": [{ "type": "text", "text": header }, { "type": "text", "text": "rules" }],
                "messages": [{ "role": "user", "content": "x" }],
            })
        };
        let first = body("x-anthropic-billing-header: cc_version=2; cch=36ee5;");
        assert_eq!(messages(&first)[0], json!({ "role": "system", "content": "rules" }));
        let kept = read(&first, true, &mut LeftOut::default()).unwrap().messages;
        assert!(kept[0]["content"].as_str().unwrap().starts_with("x-anthropic"));
        let only = json!({
            "system": [{ "type": "text", "text": "x-anthropic-billing-header: a" }],
            "messages": [{ "role": "user", "content": "x" }],
        });
        assert_eq!(messages(&only), json!([{ "role": "user", "content": "x" }]));
    }

    #[test]
    fn found_tools_are_used_tools() {
        let body = json!({ "messages": [
            { "role": "user", "content": "x" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "search", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "1", "content": [
                { "type": "tool_reference", "tool_name": "late" },
            ] }] },
        ] });
        let mut left_out = LeftOut::default();
        let turns = read(&body, false, &mut left_out).unwrap();
        assert!(turns.used_tools.contains("search") && turns.used_tools.contains("late"));
        assert_eq!(turns.messages[2]["content"], "[tool: late]");
    }
}
