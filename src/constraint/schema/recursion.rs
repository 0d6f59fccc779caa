//! References without an end: a schema `a` that requires an `a`.

use serde_json::Value;

use super::CheckedSchema;
use crate::json_schema::{list, strings};

/// The first target without a finite value.
pub(super) fn endless(checked: &CheckedSchema) -> Option<usize> {
    let mut ends = vec![false; checked.targets.len()];
    loop {
        let mut changed = false;
        for (index, (_, target)) in checked.targets.iter().enumerate() {
            if !ends[index] && can_end(target, checked, &ends) {
                ends[index] = true;
                changed = true;
            }
        }
        if !changed {
            return ends.iter().position(|ends| !ends);
        }
    }
}

fn can_end(schema: &Value, checked: &CheckedSchema, ends: &[bool]) -> bool {
    let can = |schema: &Value| can_end(schema, checked, ends);
    let Value::Object(members) = schema else { return schema != &Value::Bool(false) };
    let array = |keyword: &str| members.get(keyword).and_then(Value::as_array);
    if let Some(reference) = members.get("$ref").and_then(Value::as_str)
        && let Some((index, ..)) = checked.target(reference)
        && !ends[index]
    {
        return false;
    }
    if array("anyOf").is_some_and(|items| !items.iter().any(can))
        || array("allOf").is_some_and(|items| !items.iter().all(can))
    {
        return false;
    }
    // If another type is allowed, a value of that type is finite.
    let only = |name: &str| members.get("type").is_none_or(|types| types == name);
    if only("object") {
        let properties = members.get("properties");
        let mut schemas = strings(members.get("required")).filter_map(|name| properties?.get(name));
        if !schemas.all(can) {
            return false;
        }
    }
    let least = members.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
    if only("array") && least > 0 {
        let first = list(members.get("prefixItems"));
        let rest = members.get("items").filter(|_| least > first.len());
        return first.iter().take(least).all(can) && rest.is_none_or(can);
    }
    true
}
