//! The keywords of JSON Schema: the kind of their arguments, and when they cannot be enforced.
//!
//! The limits were measured on llguidance 1.9.1.

use serde_json::{Map, Value};

use crate::constraint::pattern;
use crate::json_schema::{TypeSet, entries, has_values_of_other_types, is_required};

/// The kind of argument of a keyword that can be enforced.
pub(super) enum KeywordArgument {
    /// Not enforced: an annotation, a definition, or an unknown keyword.
    Ignored,
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

pub(super) fn argument_of(keyword: &str, value: &Value) -> KeywordArgument {
    match keyword {
        "type" | "enum" | "const" | "required" | "minProperties" | "maxProperties" | "minItems"
        | "maxItems" | "minLength" | "maxLength" | "pattern" | "minimum" | "maximum"
        | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => KeywordArgument::Plain,
        // An unknown format is an annotation. Types without text use `format` so too (`int32`).
        "format" if is_known_format(value) => KeywordArgument::Plain,
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => KeywordArgument::List,
        "items" if value.is_array() => KeywordArgument::List,
        "items" | "additionalItems" | "additionalProperties" => KeywordArgument::Schema,
        "properties" | "patternProperties" => KeywordArgument::Map,
        "$ref" => KeywordArgument::Reference,
        _ => KeywordArgument::Ignored,
    }
}

/// Why a keyword cannot be enforced in this schema; None if it can.
pub(super) fn refusal(
    members: &Map<String, Value>,
    keyword: &str,
    value: &Value,
) -> Option<&'static str> {
    const NEVER: &str = "keyword cannot be enforced";
    const OTHER_TYPES: &str =
        "none of its values has the schema's type; the values of items belong into `items`";
    match keyword {
        "not" | "if" | "contains" | "minContains" | "maxContains" | "dependentRequired"
        | "dependentSchemas" | "dependencies" | "propertyNames" | "unevaluatedItems"
        | "$dynamicRef" | "$recursiveRef" => Some(NEVER),
        // The object is closed or stays open (`closing.rs`).
        "unevaluatedProperties" => (!value.is_boolean()).then_some(NEVER),
        "then" | "else" => members.contains_key("if").then_some(NEVER),
        "uniqueItems" => (value != &Value::Bool(false)).then_some(NEVER),
        "type" => types(value),
        "enum" => match value.as_array() {
            Some(values) if values.is_empty() => Some("it has no values"),
            Some(_) if has_values_of_other_types(members) => Some(OTHER_TYPES),
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
            entries(Some(value)).find_map(|(pattern, _)| pattern::refusal(pattern))
        }
        "required" => required(members, value),
        "pattern" => match value.as_str() {
            Some(text) => pattern::refusal(text),
            None => Some("is not a string"),
        },
        "minLength" | "maxLength" | "minItems" | "maxItems" => {
            value.as_u64().is_none().then_some("is not a whole number")
        }
        "minProperties" | "maxProperties" if value.as_u64().is_none() => {
            Some("is not a whole number")
        }
        "minProperties" | "maxProperties" => {
            has_optional(members).then_some("cannot be enforced if a listed property is optional")
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
    let known = |name: &Value| name.as_str().and_then(TypeSet::named).is_some();
    match value {
        Value::Array(names) if names.is_empty() => Some("it has no types"),
        Value::Array(names) => (!names.iter().all(known)).then_some("is not a JSON type"),
        name => (!known(name)).then_some("is not a JSON type"),
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

/// Whether a listed property is optional. The properties cannot be counted in that case.
fn has_optional(schema: &Map<String, Value>) -> bool {
    entries(schema.get("properties")).any(|(name, _)| !is_required(schema, name))
}

/// Whether llguidance enforces this `format`.
fn is_known_format(value: &Value) -> bool {
    matches!(
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
        )
    )
}
