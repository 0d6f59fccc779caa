//! Whether two schemas exclude each other.

use serde_json::Value;

use crate::json_schema::{TypeSet, allowed_values, strings, type_names};

/// Whether no value obeys both schemas. True only if that is certain. Takes checked schemas.
pub(super) fn disjoint(a: &Value, b: &Value) -> bool {
    if a == &Value::Bool(false) || b == &Value::Bool(false) {
        return true;
    }
    if let (Some(a), Some(b)) = (types(a), types(b))
        && !a.has(b)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (allowed_values(a), allowed_values(b)) {
        return !a.iter().any(|value| b.contains(value));
    }
    let required = |schema: &Value, name: &str| {
        strings(schema.get("required")).any(|required| required == name)
    };
    let is_object = |schema: &Value| types(schema) == Some(TypeSet::OBJECT);
    let (Some(left), Some(right)) = (a["properties"].as_object(), b["properties"].as_object())
    else {
        return false;
    };
    is_object(a)
        && is_object(b)
        && left.iter().any(|(name, schema)| {
            (required(a, name) || required(b, name))
                && right.get(name).is_some_and(|other| disjoint(schema, other))
        })
}

/// The types that a schema allows; None if it does not say.
fn types(schema: &Value) -> Option<TypeSet> {
    match type_names(schema.get("type")) {
        Some(names) => TypeSet::union(names.into_iter().map(TypeSet::named)),
        None => {
            let values = allowed_values(schema)?.into_iter();
            TypeSet::union(values.map(|value| Some(TypeSet::of(value))))
        }
    }
}
