//! Converts Ollama's requests to the library's.

use serde_json::{Value, json};

use super::lines::Shape;
use super::{options, turns};
use crate::serve::error::ApiError;
use crate::serve::fields::{self, wrong};
use crate::serve::left_out::{LeftOut, Reason};

/// The library's request. `None` if the request has no messages: it asks for a load.
pub(super) fn library_request(
    body: &Value,
    shape: Shape,
    left_out: &mut LeftOut,
) -> Result<Option<Value>, ApiError> {
    fields::check(body, fields::OLLAMA)?;
    let mut request = match shape {
        Shape::Generate if is_plain(body)? => plain_prompt(body, left_out)?,
        Shape::Generate => json!({ "messages": prompt(body, left_out)? }),
        Shape::Chat => {
            json!({ "messages": turns::read(fields::array(body, "messages")?, left_out)? })
        }
    };
    if request["messages"].as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let tools = fields::array(body, "tools")?;
    if !tools.is_empty() {
        request["tools"] = tools.into();
    }
    if request.get("messages").is_some() {
        add_thinking(body, &mut request)?;
    }
    add_format(body, &mut request)?;
    fields::copy(body, &["logprobs", "top_logprobs"], &mut request);
    options::add(body, &mut request, left_out)?;
    if fields::get(body, "keep_alive").is_some() {
        let message = "the option --unload-after of the server decides how long a model stays";
        left_out.note(Reason::Item, "keep_alive", message);
    }
    Ok(Some(request))
}

/// Whether the prompt of `/api/generate` is continued without a chat template.
fn is_plain(body: &Value) -> Result<bool, ApiError> {
    let has_prompt = fields::string(body, "prompt")?.is_some_and(|prompt| !prompt.is_empty());
    let has_suffix = fields::string(body, "suffix")?.is_some_and(|suffix| !suffix.is_empty());
    Ok(has_prompt && (fields::boolean(body, "raw")? == Some(true) || has_suffix))
}

/// A prompt that is continued as it is. With `raw` the client has applied a template, so special
/// tokens are special. With `suffix` the reply fills the gap.
fn plain_prompt(body: &Value, left_out: &mut LeftOut) -> Result<Value, ApiError> {
    for name in ["system", "template", "context", "images", "think"] {
        let is_empty = |value: &Value| *value == "" || value.as_array().is_some_and(Vec::is_empty);
        if fields::get(body, name).is_some_and(|value| !is_empty(value)) {
            left_out.note(Reason::Item, name, "a prompt without a chat template has no such part");
        }
    }
    let mut request = json!({ "prompt": body["prompt"] });
    if fields::boolean(body, "raw")? == Some(true) {
        request["parse_special_in_messages"] = true.into();
    }
    if let Some(suffix) = fields::string(body, "suffix")?.filter(|suffix| !suffix.is_empty()) {
        request["suffix"] = suffix.into();
    }
    Ok(request)
}

/// The messages of `/api/generate`.
fn prompt(body: &Value, left_out: &mut LeftOut) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    let prompt = fields::string(body, "prompt")?.unwrap_or_default().to_owned();
    let images = turns::images(body, "", left_out)?;
    if prompt.is_empty() && images.is_empty() {
        return Ok(messages);
    }
    for name in ["template", "context"] {
        if fields::get(body, name).is_some_and(|value| *value != "") {
            left_out.note(Reason::Item, name, "use /api/chat with all messages");
        }
    }
    if let Some(system) = fields::string(body, "system")?.filter(|system| !system.is_empty()) {
        messages.push(json!({ "role": "system", "content": system }));
    }
    let content = turns::content(images, Some(prompt));
    messages.push(json!({ "role": "user", "content": content }));
    Ok(messages)
}

/// `think`: a boolean, or how much.
fn add_thinking(body: &Value, request: &mut Value) -> Result<(), ApiError> {
    match fields::get(body, "think") {
        None => {}
        Some(Value::Bool(think)) => request["enable_thinking"] = (*think).into(),
        Some(Value::String(effort)) => {
            request["enable_thinking"] = true.into();
            request["reasoning_effort"] = effort.clone().into();
        }
        Some(other) => return Err(wrong("think", "a boolean or a level such as \"low\"", other)),
    }
    Ok(())
}

/// `format`: "json", or a schema.
fn add_format(body: &Value, request: &mut Value) -> Result<(), ApiError> {
    request["response_format"] = match fields::get(body, "format") {
        None => return Ok(()),
        Some(Value::String(none)) if none.is_empty() => return Ok(()),
        Some(Value::String(json)) if json == "json" => json!({ "type": "json_object" }),
        Some(schema @ Value::Object(_)) => {
            let schema = json!({ "name": "reply", "schema": schema });
            json!({ "type": "json_schema", "json_schema": schema })
        }
        Some(other) => return Err(wrong("format", "\"json\" or a JSON schema", other)),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(body: Value, shape: Shape) -> (Result<Option<Value>, String>, Option<String>) {
        let mut left_out = LeftOut::default();
        let request = library_request(&body, shape, &mut left_out);
        (request.map_err(|error| error.message), left_out.first())
    }

    #[test]
    fn a_prompt_becomes_messages() {
        let body = json!({
            "prompt": "p", "system": "s", "format": "json", "think": "low", "stream": false,
            "options": { "num_predict": 5, "temperature": 0, "stop": ["x"], "num_ctx": 9, "num_keep": 2 },
        });
        let (request, note) = library(body, Shape::Generate);
        let expected = json!({
            "messages": [{ "role": "system", "content": "s" }, { "role": "user", "content": "p" }],
            "enable_thinking": true, "reasoning_effort": "low",
            "response_format": { "type": "json_object" },
            "max_tokens": 5, "temperature": 0, "stop": ["x"], "n_keep": 2,
        });
        assert_eq!(request, Ok(Some(expected)));
        assert!(note.unwrap().starts_with("options.num_ctx: "));
    }

    #[test]
    fn a_plain_prompt_stays_as_it_is() {
        let body = json!({ "prompt": "p", "raw": true, "system": "s", "think": false });
        let (request, note) = library(body, Shape::Generate);
        let expected = json!({ "prompt": "p", "parse_special_in_messages": true });
        assert_eq!(request, Ok(Some(expected)));
        assert!(note.unwrap().starts_with("system: "));
        let body = json!({ "prompt": "p", "suffix": "s" });
        let expected = json!({ "prompt": "p", "suffix": "s" });
        assert_eq!(library(body, Shape::Generate), (Ok(Some(expected)), None));
        let (error, _) = library(json!({ "prompt": "p", "raw": 1 }), Shape::Generate);
        assert_eq!(error.unwrap_err(), "raw: expected a boolean, not 1");
    }

    #[test]
    fn wrong_members_are_named() {
        let (error, _) = library(json!({ "prompt": 1 }), Shape::Generate);
        assert_eq!(error.unwrap_err(), "prompt: expected a string, not 1");
        let (error, _) = library(json!({ "prompt": "a", "think": 1 }), Shape::Generate);
        assert!(error.unwrap_err().starts_with("think: "));
        let body = json!({ "prompt": "a", "options": { "num_predict": "x" } });
        let (error, _) = library(body, Shape::Generate);
        assert!(error.unwrap_err().starts_with("options.num_predict: "));
        assert_eq!(library(json!({}), Shape::Chat).0, Ok(None), "it asks for a load");
    }
}
