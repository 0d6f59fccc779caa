//! Whether no value can obey two schemas.

use serde_json::Value;

/// True only where it is certain; schemas are checked ones.
pub(in crate::constraint) fn disjoint(a: &Value, b: &Value) -> bool {
    if a == &Value::Bool(false) || b == &Value::Bool(false) {
        return true;
    }
    if let (Some(a), Some(b)) = (types(a), types(b)) {
        let integers =
            |kind: &&str, others: &[&str]| *kind == "integer" && others.contains(&"number");
        let shared = a.iter().any(|kind| b.contains(kind) || integers(kind, &b))
            || b.iter().any(|kind| integers(kind, &a));
        if !shared {
            return true;
        }
    }
    if let (Some(a), Some(b)) = (values(a), values(b)) {
        return !a.iter().any(|value| b.contains(value));
    }
    let required = |schema: &Value, name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let objects = |schema: &Value| types(schema).is_some_and(|types| types == ["object"]);
    let (Some(left), Some(right)) = (a["properties"].as_object(), b["properties"].as_object())
    else {
        return false;
    };
    objects(a)
        && objects(b)
        && left.iter().any(|(name, schema)| {
            (required(a, name) || required(b, name))
                && right.get(name).is_some_and(|other| disjoint(schema, other))
        })
}

/// The types a schema allows; None where it does not say.
fn types(schema: &Value) -> Option<Vec<&str>> {
    match &schema["type"] {
        Value::String(name) => Some(vec![name]),
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        _ => values(schema).map(|values| values.into_iter().map(kind).collect()),
    }
}

fn values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

/// JSON's name of a value's type.
pub(in crate::constraint) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
