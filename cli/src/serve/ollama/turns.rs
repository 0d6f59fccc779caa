//! Messages of `/api/chat` as the library's. Ollama's calls have objects as arguments, and often no
//! ids: a result then belongs to the first call of its tool that has none.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::serve::error::ApiError;
use crate::serve::fields::{self, items, join, wrong};
use crate::serve::left_out::{LeftOut, Reason};
use crate::serve::{parts, pictures};

/// A call without a result: its id and its tool.
struct OpenCall {
    id: String,
    name: String,
}

pub(super) fn read(messages: &[Value], left_out: &mut LeftOut) -> Result<Vec<Value>, ApiError> {
    let mut open: VecDeque<OpenCall> = VecDeque::new();
    let mut calls = 0;
    items("messages", messages)
        .map(|(path, message)| {
            if !message.is_object() {
                return Err(wrong(&path, "an object", message));
            }
            let images = images(message, &join(&path, "images"), left_out)?;
            let content = content(images, text(message, &path, "content")?);
            let mut turn = json!({ "role": message["role"], "content": content });
            if let Some(thinking) = text(message, &path, "thinking")? {
                turn["reasoning_content"] = thinking.into();
            }
            if message["role"] == "tool" {
                let given = message["tool_call_id"].as_str();
                let name = message["tool_name"].as_str().or(message["name"].as_str());
                let of_tool = open.iter().position(|call| match (given, name) {
                    (Some(id), _) => call.id == id,
                    (None, Some(name)) => call.name == name,
                    (None, None) => true,
                });
                let call = of_tool.and_then(|index| open.remove(index));
                turn["tool_call_id"] = call.map(|call| call.id).or(given.map(str::to_owned)).into();
            }
            let given = fields::get(message, "tool_calls").and_then(Value::as_array);
            if let Some(given) = given.filter(|given| !given.is_empty()) {
                open.clear();
                let list = given.iter().map(|call| {
                    calls += 1;
                    let id = call["id"].as_str().filter(|id| !id.is_empty());
                    let id = id.map_or_else(|| format!("call_{calls}"), str::to_owned);
                    let name = call["function"]["name"].as_str().unwrap_or_default().to_owned();
                    open.push_back(OpenCall { id: id.clone(), name: name.clone() });
                    let arguments = match &call["function"]["arguments"] {
                        Value::String(text) => text.clone(),
                        Value::Null => "{}".to_owned(),
                        other => other.to_string(),
                    };
                    let function = json!({ "name": name, "arguments": arguments });
                    json!({ "id": id, "type": "function", "function": function })
                });
                turn["tool_calls"] = list.collect();
            }
            Ok(turn)
        })
        .collect()
}

fn text(message: &Value, path: &str, name: &str) -> Result<Option<String>, ApiError> {
    match fields::get(message, name) {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong(&join(path, name), "a string", other)),
    }
}

/// The content of a message: a text, or parts if there are pictures or sounds, which are before the
/// text.
pub(super) fn content(mut images: Vec<Value>, text: Option<String>) -> Value {
    images.extend(text.map(|text| json!({ "type": "text", "text": text })));
    if pictures::has_media(&images) {
        return images.into();
    }
    let texts: Vec<&str> = images.iter().filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n").into()
}

/// The parts of images, which are in base64. As in Ollama, a sound among them is recognized by its
/// first bytes.
pub(super) fn images(
    message: &Value,
    path: &str,
    left_out: &mut LeftOut,
) -> Result<Vec<Value>, ApiError> {
    let path = if path.is_empty() { "images" } else { path };
    let images = fields::get(message, "images").map_or(Ok(&[][..]), |images| {
        images.as_array().map(Vec::as_slice).ok_or_else(|| wrong(path, "an array", images))
    })?;
    let read = items(path, images).map(|(path, data)| {
        let data = data.as_str().unwrap_or_default();
        match parts::sound_format(data) {
            Some(_) if left_out.takes_sound() => pictures::sound(data, &path),
            Some(format) => {
                left_out.note(Reason::Replaced, &path, "the model takes no sound");
                json!({ "type": "text", "text": parts::sound(format) })
            }
            None => pictures::picture(&format!("data:;base64,{data}"), &path, left_out),
        }
    });
    Ok(read.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_find_their_calls() {
        let call = |name: &str| json!({ "function": { "name": name, "arguments": { "a": 1 } } });
        let messages = json!([
            { "role": "user", "content": "x", "images": ["AA==", "UklGRiQAAABXQVZF"] },
            { "role": "assistant", "content": "", "thinking": "t", "tool_calls": [call("f"), call("g")] },
            { "role": "tool", "tool_name": "g", "content": "2" },
            { "role": "tool", "content": "1" },
        ]);
        let mut left_out = LeftOut::default();
        let read = read(messages.as_array().unwrap(), &mut left_out).unwrap();
        assert_eq!(read[0]["content"], "[image]\n[audio: wav]\nx");
        assert_eq!(left_out.first().unwrap(), "messages[0].images[0]: the model takes text");
        assert_eq!(read[1]["reasoning_content"], "t");
        assert_eq!(read[1]["tool_calls"][1]["function"]["arguments"], r#"{"a":1}"#);
        let ids = [&read[1]["tool_calls"][1]["id"], &read[1]["tool_calls"][0]["id"]];
        assert_eq!([&read[2]["tool_call_id"], &read[3]["tool_call_id"]], ids);
        assert_ne!(ids[0], ids[1]);
    }
}
