//! Reads the members of requests that the server itself uses. As in the library, null counts as
//! absent.

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
