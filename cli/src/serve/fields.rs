//! The members of requests: reading those that the server itself uses, and checking the types of
//! those that it ignores or passes on unread, so that clients notice their mistakes. As in the
//! library, null counts as absent.

use serde_json::Value;

use super::error::ApiError;

/// A member, unless it is absent or null.
pub(crate) fn get<'a>(request: &'a Value, name: &str) -> Option<&'a Value> {
    request.get(name).filter(|value| !value.is_null())
}

pub(crate) fn boolean(request: &Value, name: &str) -> Result<Option<bool>, ApiError> {
    let Some(value) = get(request, name) else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| wrong(name, "a boolean", value))
}

pub(crate) fn string<'a>(request: &'a Value, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = get(request, name) else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| wrong(name, "a string", value))
}

/// A required string. The error message names its path.
pub(crate) fn required_string<'a>(
    object: &'a Value,
    path: &str,
    name: &str,
) -> Result<&'a str, ApiError> {
    if !object.is_object() {
        return Err(wrong(path, "an object", object));
    }
    let path = join(path, name);
    let value = get(object, name).ok_or_else(|| ApiError::invalid(&path, "is missing"))?;
    value.as_str().ok_or_else(|| wrong(&path, "a string", value))
}

pub(crate) fn array<'a>(request: &'a Value, name: &str) -> Result<&'a [Value], ApiError> {
    let Some(value) = get(request, name) else { return Ok(&[]) };
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, "an array", value))
}

/// An array in an object of the request. The error message names its path.
pub(crate) fn array_at<'a>(
    object: &'a Value,
    path: &str,
    name: &str,
) -> Result<&'a [Value], ApiError> {
    let Some(value) = get(object, name) else { return Ok(&[]) };
    let expected = || wrong(&join(path, name), "an array", value);
    value.as_array().map(Vec::as_slice).ok_or_else(expected)
}

/// An integer of at least 1.
pub(crate) fn positive(request: &Value, name: &str) -> Result<Option<u64>, ApiError> {
    let Some(value) = get(request, name) else { return Ok(None) };
    let number = value.as_u64().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| wrong(name, "a whole number from 1", value))
}

/// The path of a member.
pub(crate) fn join(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

/// The error for a value of the wrong type: what was expected, and what was found.
pub(crate) fn wrong(path: &str, expected: &str, value: &Value) -> ApiError {
    let kind = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string().chars().take(40).collect(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    ApiError::invalid(path, format!("expected {expected}, not {kind}"))
}

/// Copies members that are present.
pub(crate) fn copy(from: &Value, names: &[&str], to: &mut Value) {
    for name in names {
        if let Some(value) = get(from, name) {
            to[*name] = value.clone();
        }
    }
}

/// The members that a protocol does not define itself. They are the library's, which reports those
/// that it does not know.
pub(crate) fn others(body: &Value, own: &[&str]) -> Value {
    let members = body.as_object().into_iter().flatten();
    let others = members.filter(|(name, _)| !own.contains(&name.as_str()));
    Value::Object(others.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The items of an array, each with its path.
pub(crate) fn items<'a>(
    path: &str,
    items: &'a [Value],
) -> impl Iterator<Item = (String, &'a Value)> {
    items.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

/// The beginning of a client's text, for messages.
pub(crate) fn brief(text: &str) -> String {
    text.chars().take(40).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Text,
    Count,
    Array,
    Object,
}

/// The types of members by path. `a[].b` means `b` in each item of `a`. Source: the types of the
/// package `openai` 3.54.
pub(crate) const CHAT: &[(&str, Kind)] = &[
    // Not OpenAI's: another template than the model's, as in vLLM.
    ("chat_template", Kind::Text),
    ("metadata", Kind::Object),
    ("prediction", Kind::Object),
    ("prompt_cache_key", Kind::Text),
    ("response_format.json_schema.description", Kind::Text),
    ("response_format.json_schema.name", Kind::Text),
    ("response_format.json_schema.strict", Kind::Boolean),
    ("safety_identifier", Kind::Text),
    ("service_tier", Kind::Text),
    ("store", Kind::Boolean),
    ("tools[].function.strict", Kind::Boolean),
    ("user", Kind::Text),
    ("verbosity", Kind::Text),
];

/// Source: as above.
pub(crate) const RESPONSES: &[(&str, Kind)] = &[
    ("include[]", Kind::Text),
    ("input[].content[].annotations", Kind::Array),
    ("input[].id", Kind::Text),
    ("input[].status", Kind::Text),
    ("input[].summary", Kind::Array),
    ("max_tool_calls", Kind::Count),
    ("metadata", Kind::Object),
    ("prompt_cache_key", Kind::Text),
    ("reasoning.summary", Kind::Text),
    ("safety_identifier", Kind::Text),
    ("service_tier", Kind::Text),
    ("text.format.description", Kind::Text),
    ("text.format.name", Kind::Text),
    ("text.format.strict", Kind::Boolean),
    ("text.verbosity", Kind::Text),
    ("tools[].strict", Kind::Boolean),
    ("top_logprobs", Kind::Count),
    ("user", Kind::Text),
];

/// Source: the types of the package `anthropic` 2.12.
pub(crate) const MESSAGES: &[(&str, Kind)] = &[
    ("messages[].content[].cache_control", Kind::Object),
    ("messages[].content[].cache_control.type", Kind::Text),
    ("messages[].content[].is_error", Kind::Boolean),
    ("messages[].content[].signature", Kind::Text),
    ("metadata", Kind::Object),
    ("metadata.user_id", Kind::Text),
    ("output_config", Kind::Object),
    ("output_config.effort", Kind::Text),
    ("output_config.format", Kind::Object),
    ("output_format", Kind::Object),
    ("service_tier", Kind::Text),
    ("stop_sequences", Kind::Array),
    ("system[].cache_control", Kind::Object),
    ("system[].cache_control.type", Kind::Text),
    ("tools[].cache_control", Kind::Object),
    ("tools[].defer_loading", Kind::Boolean),
    ("tools[].strict", Kind::Boolean),
    ("tools[].type", Kind::Text),
];

/// Source: the types of the package `ollama` 0.6.
pub(crate) const OLLAMA: &[(&str, Kind)] = &[
    ("model", Kind::Text),
    ("options", Kind::Object),
    ("stream", Kind::Boolean),
    ("logprobs", Kind::Boolean),
];

/// Checks the members of a table, except absent and null ones.
pub(crate) fn check(body: &Value, members: &[(&str, Kind)]) -> Result<(), ApiError> {
    members.iter().try_for_each(|(path, kind)| check_member(body, "", path, *kind))
}

fn check_member(value: &Value, above: &str, path: &str, kind: Kind) -> Result<(), ApiError> {
    if path.is_empty() {
        let (fits, expected) = match kind {
            Kind::Boolean => (value.is_boolean(), "a boolean"),
            Kind::Text => (value.is_string(), "a string"),
            Kind::Count => (value.is_u64(), "a whole number from 0"),
            Kind::Array => (value.is_array(), "an array"),
            Kind::Object => (value.is_object(), "an object"),
        };
        return if fits { Ok(()) } else { Err(wrong(above, expected, value)) };
    }
    if let Some(rest) = path.strip_prefix("[]") {
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        let children = value.as_array().map(Vec::as_slice).unwrap_or_default();
        return items(above, children)
            .try_for_each(|(path, child)| check_member(child, &path, rest, kind));
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (member, rest) = path.split_at(end);
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let Some(child) = value.get(member).filter(|child| !child.is_null()) else { return Ok(()) };
    let dot = if above.is_empty() { "" } else { "." };
    check_member(child, &format!("{above}{dot}{member}"), rest, kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_has_the_path() {
        let table = &[("a[].b.c[]", Kind::Text)];
        let check = |body: Value| check(&body, table).map_err(|error| error.message);
        for good in [json!({}), json!({ "a": null }), json!({ "a": 1 }), json!({ "a": [1, {}] })] {
            assert_eq!(check(good), Ok(()));
        }
        let bad = json!({ "a": [{}, { "b": { "c": ["x", 1] } }] });
        assert_eq!(check(bad), Err("a[1].b.c[1]: expected a string, not 1".to_owned()));
    }
}
