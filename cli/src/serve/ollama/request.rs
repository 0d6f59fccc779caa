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
    let messages = match shape {
        Shape::Chat => turns::read(fields::array(body, "messages")?, left_out)?,
        Shape::Generate => prompt(body, left_out)?,
    };
    if messages.is_empty() {
        return Ok(None);
    }
    let mut request = json!({ "messages": messages });
    let tools = fields::array(body, "tools")?;
    if !tools.is_empty() {
        request["tools"] = tools.into();
    }
    add_thinking(body, &mut request)?;
    add_format(body, &mut request)?;
    fields::copy(body, &["logprobs", "top_logprobs"], &mut request);
    options::add(body, &mut request, left_out)?;
    if fields::get(body, "keep_alive").is_some() {
        let message = "the option --unload-after of the server decides how long a model stays";
        left_out.note(Reason::Item, "keep_alive", message);
    }
    Ok(Some(request))
}

/// The messages of `/api/generate`.
fn prompt(body: &Value, left_out: &mut LeftOut) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    let mut prompt = fields::string(body, "prompt")?.unwrap_or_default().to_owned();
    let mut images = turns::images(body, "", left_out)?;
    if prompt.is_empty() && images.is_empty() {
        return Ok(messages);
    }
    for name in ["raw", "suffix"] {
        let value = fields::get(body, name);
        if value.is_some_and(|value| *value != false && *value != "") {
            return Err(ApiError::invalid(name, "is not supported; use /api/chat"));
        }
    }
    for name in ["template", "context"] {
        if fields::get(body, name).is_some_and(|value| *value != "") {
            left_out.note(Reason::Item, name, "use /api/chat with all messages");
        }
    }
    if let Some(system) = fields::string(body, "system")?.filter(|system| !system.is_empty()) {
        messages.push(json!({ "role": "system", "content": system }));
    }
    images.push(std::mem::take(&mut prompt));
    messages.push(json!({ "role": "user", "content": images.join("\n") }));
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
