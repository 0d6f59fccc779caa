//! The arguments of keywords, as lists and maps.
//!
//! Each function takes the result of a lookup. An absent argument, or one of another type, is
//! empty.

use serde_json::{Map, Value};

/// The elements of an array.
pub(crate) fn list(argument: Option<&Value>) -> &[Value] {
    argument.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings of an array; other elements are skipped.
pub(crate) fn strings(argument: Option<&Value>) -> impl Iterator<Item = &str> {
    list(argument).iter().filter_map(Value::as_str)
}

/// The members of an object.
pub(crate) fn entries(argument: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    argument.and_then(Value::as_object).into_iter().flatten()
}

/// Whether `required` lists this name.
pub(crate) fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    strings(schema.get("required")).any(|required| required == name)
}

/// The names in `type`. A single string counts as a list of one. `None` unless it is a string or a
/// list of strings.
pub(crate) fn type_names(argument: Option<&Value>) -> Option<Vec<&str>> {
    match argument? {
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        name => name.as_str().map(|name| vec![name]),
    }
}

/// The only values that `const` or `enum` allow; None without either.
pub(crate) fn allowed_values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}
