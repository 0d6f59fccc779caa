//! Finds endless references: a schema `a` that requires another `a`.

use serde_json::Value;

use super::CheckedSchema;
use crate::json_schema::{list, strings};

/// Finds targets that have no finite value. After a target is returned, it counts as finite.
pub(super) struct EndlessTargets {
    /// Whether each target is known to have a finite value.
    ends: Vec<bool>,
}

impl EndlessTargets {
    pub(super) fn new(checked: &CheckedSchema) -> EndlessTargets {
        EndlessTargets { ends: vec![false; checked.targets.len()] }
    }

    /// The next endless target. The caller must replace it by a schema with a finite value.
    pub(super) fn next(&mut self, checked: &CheckedSchema) -> Option<usize> {
        loop {
            let mut changed = false;
            // A target mostly refers to later ones, so the reverse order needs few rounds.
            for (index, (_, target)) in checked.targets.iter().enumerate().rev() {
                if !self.ends[index] && can_end(target, checked, &self.ends) {
                    self.ends[index] = true;
                    changed = true;
                }
            }
            if !changed {
                let endless = self.ends.iter().position(|ends| !ends)?;
                self.ends[endless] = true;
                return Some(endless);
            }
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
