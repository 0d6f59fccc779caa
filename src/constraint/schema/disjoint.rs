//! Decides whether two schemas exclude each other.

use serde_json::Value;

use crate::json_schema::{TypeSet, allowed_values, strings, type_names};

/// Whether no value matches both schemas. Returns true only if that is certain. The schemas must
/// have been checked. `comparisons` is how many comparisons are left.
pub(super) fn disjoint(a: &Value, b: &Value, comparisons: &mut usize) -> bool {
    if !spend(comparisons, 1) {
        return false;
    }
    if a == &Value::Bool(false) || b == &Value::Bool(false) {
        return true;
    }
    if let (Some(a), Some(b)) = (types(a), types(b))
        && !a.has(b)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (allowed_values(a), allowed_values(b)) {
        return spend(comparisons, a.len() * b.len()) && !a.iter().any(|value| b.contains(value));
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
        && spend(comparisons, left.len())
        && left.iter().any(|(name, schema)| {
            (required(a, name) || required(b, name))
                && right.get(name).is_some_and(|other| disjoint(schema, other, comparisons))
        })
}

/// Spends `count` comparisons. Returns false if fewer are left.
fn spend(comparisons: &mut usize, count: usize) -> bool {
    let remaining = comparisons.checked_sub(count);
    *comparisons = remaining.unwrap_or(0);
    remaining.is_some()
}

/// The types that a schema allows; None if it does not restrict them.
fn types(schema: &Value) -> Option<TypeSet> {
    match type_names(schema.get("type")) {
        Some(names) => TypeSet::union(names.into_iter().map(TypeSet::named)),
        None => {
            let values = allowed_values(schema)?.into_iter();
            TypeSet::union(values.map(|value| Some(TypeSet::of(value))))
        }
    }
}
