//! The keywords of JSON Schema: what each holds, and when it cannot be enforced (measured on
//! llguidance 1.9.1).

use serde_json::{Map, Value};

use crate::constraint::pattern;

/// What a keyword that can be enforced holds.
pub(super) enum Holds {
    /// Nothing that matters: an annotation, a definition, or something of the caller's own.
    Nothing,
    /// A plain value.
    Plain,
    /// A schema.
    Schema,
    /// A list of schemas.
    List,
    /// Schemas by name.
    Map,
    /// A reference.
    Reference,
}

pub(super) fn holds(keyword: &str, value: &Value) -> Holds {
    match keyword {
        "type" | "enum" | "const" | "required" | "minProperties" | "maxProperties" | "minItems"
        | "maxItems" | "minLength" | "maxLength" | "pattern" | "minimum" | "maximum"
        | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => Holds::Plain,
        // On other types it is an annotation (`int32`), which llguidance passes over.
        "format" => Holds::Plain,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => Holds::List,
        "items" if value.is_array() => Holds::List,
        "items" | "additionalItems" | "additionalProperties" => Holds::Schema,
        "properties" | "patternProperties" => Holds::Map,
        "$ref" => Holds::Reference,
        _ => Holds::Nothing,
    }
}

/// Why a keyword cannot be enforced where it stands.
pub(super) fn refused(
    members: &Map<String, Value>,
    keyword: &str,
    value: &Value,
) -> Option<&'static str> {
    const NEVER: &str = "keyword cannot be enforced";
    match keyword {
        "not"
        | "if"
        | "contains"
        | "minContains"
        | "maxContains"
        | "dependentRequired"
        | "dependentSchemas"
        | "dependencies"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "$dynamicRef"
        | "$recursiveRef" => Some(NEVER),
        "then" | "else" => members.contains_key("if").then_some(NEVER),
        "uniqueItems" => (value != &Value::Bool(false)).then_some(NEVER),
        "type" => types(value),
        "enum" => match value.as_array() {
            Some(values) if values.is_empty() => Some("it has no values"),
            Some(_) => None,
            None => Some("is not an array"),
        },
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => match value.as_array() {
            Some(values) if values.is_empty() && keyword != "prefixItems" => {
                Some("it has no alternatives")
            }
            Some(_) => None,
            None => Some("is not an array"),
        },
        "properties" | "patternProperties" if !value.is_object() => Some("is not an object"),
        "patternProperties" => {
            let mut patterns = value.as_object().into_iter().flatten().map(|(pattern, _)| pattern);
            patterns.find_map(|pattern| pattern::refused(pattern))
        }
        "required" => required(members, value),
        "pattern" => match value.as_str() {
            Some(text) => pattern::refused(text),
            None => Some("is not a string"),
        },
        "format" => format(members, value),
        "minLength" | "maxLength" | "minItems" | "maxItems" => {
            value.as_u64().is_none().then_some("is not a whole number")
        }
        "minProperties" | "maxProperties" if value.as_u64().is_none() => {
            Some("is not a whole number")
        }
        "minProperties" | "maxProperties" => {
            counted(members).then_some("cannot be enforced where a listed property is optional")
        }
        "minimum" | "maximum" => value.as_f64().is_none().then_some("is not a number"),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            (value.as_f64().is_none() && !value.is_boolean()).then_some("is not a number")
        }
        "multipleOf" => {
            value.as_f64().is_none_or(|value| value <= 0.0).then_some("is not a positive number")
        }
        _ => None,
    }
}

fn types(value: &Value) -> Option<&'static str> {
    let known = |name: &Value| {
        matches!(
            name.as_str(),
            Some("null" | "boolean" | "number" | "integer" | "string" | "array" | "object")
        )
    };
    match value {
        Value::Array(names) if names.is_empty() => Some("it has no types"),
        Value::Array(names) => (!names.iter().all(known)).then_some("is no type of JSON"),
        name => (!known(name)).then_some("is no type of JSON"),
    }
}

fn required(members: &Map<String, Value>, value: &Value) -> Option<&'static str> {
    let Some(names) = value.as_array() else { return Some("is not an array") };
    let properties = members.get("properties");
    for name in names {
        let Some(name) = name.as_str() else { return Some("is not an array of strings") };
        let schema = properties.and_then(|properties| properties.get(name));
        let closed = members.get("additionalProperties") == Some(&Value::Bool(false));
        let elsewhere = members.contains_key("patternProperties");
        if schema == Some(&Value::Bool(false)) || (schema.is_none() && closed && !elsewhere) {
            return Some("a required property is not allowed");
        }
    }
    None
}

/// Whether an object lists a property that may be missing: then its properties cannot be counted.
fn counted(members: &Map<String, Value>) -> bool {
    let required =
        members.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let listed = members.get("properties").and_then(Value::as_object);
    listed.is_some_and(|listed| {
        listed.keys().any(|name| !required.iter().any(|required| required == name.as_str()))
    })
}

fn format(members: &Map<String, Value>, value: &Value) -> Option<&'static str> {
    let string = match members.get("type") {
        Some(Value::String(name)) => name == "string",
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        _ => true,
    };
    let known = matches!(
        value.as_str(),
        Some(
            "date-time"
                | "time"
                | "date"
                | "duration"
                | "email"
                | "hostname"
                | "ipv4"
                | "ipv6"
                | "uuid"
                | "uri"
                | "unknown"
        )
    );
    (string && !known).then_some("is no known format")
}
