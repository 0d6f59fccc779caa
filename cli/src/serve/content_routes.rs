//! `/infill`, the text in the gap between two texts, for editors, and `/completion`, the text after a
//! prompt: the routes of llama.cpp's server whose replies have a member `content`.
//!
//! Source: `tools/server/README.md` of llama.cpp.

use bytes::Bytes;
use serde_json::{Value, json};

use super::call::{Call, ParsedCall, Reply};
use super::error::ApiError;
use super::event_stream::{EventWriter, event_text};
use super::fields::{self, Kind, items, required_string};
use super::generation::Generated;
use super::llama_members::{self, timings};

/// Members that the server reads.
const OWN: [&str; 10] = [
    "model",
    "stream",
    "stream_format",
    "input_prefix",
    "input_suffix",
    "input_extra",
    "prompt",
    "suffix",
    "messages",
    "parse_special",
];

pub(super) async fn infill(call: Call) -> Reply {
    respond(call, gap).await
}

pub(super) async fn completion(call: Call) -> Reply {
    respond(call, prompt).await
}

/// `place` makes a request of the library with the place for the text, and nothing else.
async fn respond(mut call: Call, place: fn(&Value) -> Result<Value, ApiError>) -> Reply {
    let convert = move |mut call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        llama_members::rename(&mut call.body);
        let mut request = place(&call.body)?;
        copy_others(&call.body, &mut request);
        fields::positive(&request, "timeout_ms")?;
        let request = call.library_request(&model, is_stream, request);
        Ok((model, request, is_stream))
    };
    let (model, request, is_stream) = call.read(convert).await?;
    let writer = || ContentWriter { model: model.name.clone() };
    call.generate(&model, request, is_stream, writer).await
}

/// The place of `/infill`.
fn gap(body: &Value) -> Result<Value, ApiError> {
    fields::check(body, &[("input_extra", Kind::Array), ("prompt", Kind::Text)])?;
    let mut text = String::new();
    for (path, extra) in items("input_extra", fields::array(body, "input_extra")?) {
        // The file's name helps the model as much as its text.
        let name = extra["filename"].as_str().unwrap_or_default();
        text += &format!("{name}\n{}\n", required_string(extra, &path, "text")?);
    }
    let part =
        |name| fields::string(body, name)?.ok_or_else(|| ApiError::invalid(name, "is missing"));
    text += part("input_prefix")?;
    // What the editor has at the cursor already.
    text += fields::string(body, "prompt")?.unwrap_or_default();
    Ok(json!({ "prompt": text, "suffix": part("input_suffix")? }))
}

/// The place of `/completion`.
fn prompt(body: &Value) -> Result<Value, ApiError> {
    let prompt =
        fields::get(body, "prompt").ok_or_else(|| ApiError::invalid("prompt", "is missing"))?;
    if prompt.as_array().is_some_and(|items| items.iter().any(|item| !item.is_number())) {
        let message = "has several texts; send one, or use /v1/completions";
        return Err(ApiError::invalid("prompt", message));
    }
    // Clients of this route write the special tokens of a chat themselves.
    let special = fields::boolean(body, "parse_special")?.unwrap_or(true);
    Ok(json!({ "prompt": prompt, "parse_special_in_messages": special }))
}

/// Copies the members that are the library's.
fn copy_others(body: &Value, request: &mut Value) {
    for (name, value) in body.as_object().into_iter().flatten() {
        if !OWN.contains(&name.as_str()) && !value.is_null() {
            request[name] = value.clone();
        }
    }
}

struct ContentWriter {
    model: String,
}

impl ContentWriter {
    /// The last object: what the reply was, with this part of its text.
    fn last(&self, reply: &Value, content: &str) -> Value {
        let kind = match (reply["finish_reason"].as_str(), reply["stop_sequence"].as_str()) {
            (Some("length" | "cancelled"), _) => "limit",
            (_, Some(_)) => "word",
            _ => "eos",
        };
        let usage = &reply["usage"];
        json!({
            "index": 0, "content": content, "tokens": [], "id_slot": 0, "stop": true,
            "model": self.model, "stop_type": kind,
            "stopping_word": reply["stop_sequence"].as_str().unwrap_or_default(),
            "tokens_predicted": usage["completion_tokens"],
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": usage["prompt_tokens_details"]["cached_tokens"],
            "truncated": false, "has_new_line": reply["text"].as_str().is_some_and(|text| text.contains('\n')),
            "timings": timings(reply), "diagnostics": reply["diagnostics"],
        })
    }
}

impl EventWriter for ContentWriter {
    fn chunk(&mut self, chunk: &Generated) -> String {
        let text = chunk.value["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        if text.is_empty() {
            return String::new();
        }
        let event =
            json!({ "index": 0, "content": text, "tokens": [], "stop": false, "id_slot": 0 });
        event_text(&event.to_string())
    }

    fn end(&mut self, reply: &Value) -> String {
        event_text(&self.last(reply, "").to_string())
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        let text = reply.value["text"].as_str().unwrap_or_default();
        vec![self.last(&reply.value, text).to_string().into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(place: fn(&Value) -> Result<Value, ApiError>, body: Value, expected: Value) {
        let request = place(&body).map(|mut request| {
            copy_others(&body, &mut request);
            request
        });
        assert_eq!(request.map_err(|error| error.message), Ok(expected));
    }

    #[track_caller]
    fn refuses(place: fn(&Value) -> Result<Value, ApiError>, body: Value, message: &str) {
        let error = place(&body).unwrap_err();
        assert!(error.message.starts_with(message), "{}", error.message);
    }

    #[test]
    fn the_parts_become_a_text_with_a_gap() {
        let body = json!({
            "model": "m", "input_prefix": "a(", "input_suffix": ")", "prompt": "x", "max_tokens": 5,
            "input_extra": [{ "filename": "b.rs", "text": "fn b() {}" }], "temperature": 0,
        });
        let expected = json!({
            "prompt": "b.rs\nfn b() {}\na(x", "suffix": ")", "max_tokens": 5, "temperature": 0,
        });
        check(gap, body, expected);
        refuses(gap, json!({ "input_suffix": "a" }), "input_prefix: is missing");
        refuses(gap, json!({ "input_prefix": "a" }), "input_suffix: is missing");
        refuses(gap, json!({ "input_prefix": "", "input_extra": [1] }), "input_extra[0]");
    }

    #[test]
    fn a_prompt_is_one_text_or_its_tokens() {
        let parts = |prompt: Value, special: bool| json!({ "prompt": prompt, "parse_special_in_messages": special });
        check(prompt, json!({ "prompt": "a" }), parts("a".into(), true));
        let plain = json!({ "prompt": [1, 2], "parse_special": false, "suffix": "b" });
        check(prompt, plain, parts(json!([1, 2]), false));
        refuses(prompt, json!({}), "prompt: is missing");
        refuses(prompt, json!({ "prompt": ["a"] }), "prompt: has several texts");
    }
}
