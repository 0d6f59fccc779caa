//! `/infill`: the text in the gap between two texts, as in llama.cpp's server, for editors.
//!
//! Source: `tools/server/README.md` of llama.cpp.

use bytes::Bytes;
use serde_json::{Value, json};

use super::call::{Call, ParsedCall, Reply};
use super::error::{ApiError, Protocol};
use super::event_stream::{EventWriter, event_text};
use super::fields::{self, Kind, items, required_string};
use super::generation::Generated;

/// Members that the library has under another name.
const RENAMED: [(&str, &str); 2] =
    [("n_predict", "max_tokens"), ("t_max_predict_ms", "timeout_ms")];
/// Members that the server reads.
const OWN: [&str; 8] = [
    "model",
    "stream",
    "stream_format",
    "input_prefix",
    "input_suffix",
    "input_extra",
    "prompt",
    "messages",
];

pub(super) async fn respond(mut call: Call) -> Reply {
    let convert = |call: ParsedCall| {
        let model = call.model()?;
        let is_stream = call.is_stream()?;
        let mut request = library_request(&call.body)?;
        if fields::get(&request, "max_tokens").is_none()
            && let Some(most) = model.max_tokens()
        {
            request["max_tokens"] = most.into();
        }
        let timeout = fields::positive(&request, "timeout_ms")?.unwrap_or(u64::MAX);
        request["timeout_ms"] = timeout.min(model.timeout_ms()).into();
        let request = call.library_request(&model, is_stream, request);
        Ok((model, request, is_stream))
    };
    let (model, request, is_stream) = call.read(convert).await?;
    let writer = || InfillWriter { model: model.name.clone() };
    call.generate(&model, request, is_stream, writer).await
}

fn library_request(body: &Value) -> Result<Value, ApiError> {
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
    let mut request = json!({});
    for (name, value) in body.as_object().into_iter().flatten() {
        let renamed =
            RENAMED.iter().find(|(theirs, _)| theirs == name).map_or(&**name, |(_, ours)| *ours);
        // Negative numbers are no limit.
        let is_unlimited = renamed != name && value.as_i64().is_some_and(|number| number <= 0);
        if !OWN.contains(&name.as_str()) && !is_unlimited && !value.is_null() {
            request[renamed] = value.clone();
        }
    }
    request["prompt"] = text.into();
    request["suffix"] = part("input_suffix")?.into();
    request["stream_format"] = "chunks".into();
    Ok(request)
}

struct InfillWriter {
    model: String,
}

impl InfillWriter {
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
            "timings": reply["timings"], "diagnostics": reply["diagnostics"],
        })
    }
}

impl EventWriter for InfillWriter {
    fn start(&mut self) -> String {
        String::new()
    }

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

    fn error(&mut self, error: &ApiError) -> String {
        event_text(&error.json(Protocol::OpenAi).to_string())
    }

    fn whole(self, reply: &Generated) -> Vec<Bytes> {
        let text = reply.value["text"].as_str().unwrap_or_default();
        vec![self.last(&reply.value, text).to_string().into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_become_a_text_with_a_gap() {
        let body = json!({
            "model": "m", "input_prefix": "a(", "input_suffix": ")", "prompt": "x", "n_predict": 5,
            "input_extra": [{ "filename": "b.rs", "text": "fn b() {}" }], "t_max_predict_ms": -1,
            "temperature": 0,
        });
        let expected = json!({
            "prompt": "b.rs\nfn b() {}\na(x", "suffix": ")", "max_tokens": 5, "temperature": 0,
            "stream_format": "chunks",
        });
        assert_eq!(library_request(&body).ok(), Some(expected));
        for (body, message) in [
            (json!({ "input_suffix": "a" }), "input_prefix: is missing"),
            (json!({ "input_prefix": "a" }), "input_suffix: is missing"),
            (json!({ "input_prefix": "", "input_extra": [1] }), "input_extra[0]"),
        ] {
            let error = library_request(&body).unwrap_err();
            assert!(error.message.starts_with(message), "{}", error.message);
        }
    }
}
