//! Members of requests that the server itself reads. null counts as absent, as in the library.

use serde_json::Value;

use super::error::ApiError;

/// A member that is not null.
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

pub(crate) fn array<'a>(request: &'a Value, name: &str) -> Result<&'a [Value], ApiError> {
    let Some(value) = get(request, name) else { return Ok(&[]) };
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, "an array", value))
}

/// A whole number of at least 1.
pub(crate) fn positive(request: &Value, name: &str) -> Result<Option<u64>, ApiError> {
    let Some(value) = get(request, name) else { return Ok(None) };
    let number = value.as_u64().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| wrong(name, "a whole number from 1", value))
}

/// What was expected, and what kind of value is there.
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
