//! Finds endless references: a schema `a` that requires another `a`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checked::CheckedSchema;
use crate::json_schema::{list, strings};

/// Finds targets that have no finite value. After a target is returned, it counts as finite.
///
/// Each schema is visited once, and each requirement is met at most once, so the work is linear in
/// the size of the schemas.
pub(super) struct EndlessTargets {
    /// The schemas that a finite value depends on. The first ones are the targets.
    requirements: Vec<Requirement>,
    /// Finite schemas that the schemas in their `needed_by` still count as missing.
    open: Vec<usize>,
    /// All targets before this one are finite.
    next: usize,
    targets: usize,
}

/// What a schema needs to have a finite value.
#[derive(Clone, Default)]
struct Requirement {
    /// How many more schemas must be finite for this one to be. 0 if it is finite.
    missing: usize,
    /// The schemas that need this one.
    needed_by: Vec<usize>,
}

impl EndlessTargets {
    pub(super) fn new(checked: &CheckedSchema) -> EndlessTargets {
        let targets = checked.targets.len();
        let requirements = vec![Requirement::default(); targets];
        let mut found = EndlessTargets { requirements, open: Vec::new(), next: 0, targets };
        for (index, (_, target)) in checked.targets.iter().enumerate() {
            found.require(index, target, checked);
        }
        found
    }

    /// The next endless target. The caller must replace it by a schema with a finite value.
    pub(super) fn next(&mut self) -> Option<usize> {
        while let Some(index) = self.open.pop() {
            for user in std::mem::take(&mut self.requirements[index].needed_by) {
                let missing = &mut self.requirements[user].missing;
                // One of several alternatives is enough.
                if *missing > 0 {
                    *missing -= 1;
                    if *missing == 0 {
                        self.open.push(user);
                    }
                }
            }
        }
        let mut unknown = self.next..self.targets;
        let endless = unknown.find(|index| self.requirements[*index].missing > 0);
        self.next = endless.unwrap_or(self.targets);
        let endless = endless?;
        self.requirements[endless].missing = 0;
        self.open.push(endless);
        Some(endless)
    }

    /// Adds the requirements of the schema at this index.
    fn require(&mut self, index: usize, schema: &Value, checked: &CheckedSchema) {
        self.requirements[index].missing = match schema {
            Value::Object(_) => self.missing_of(index, schema, checked),
            // No value at all, so nothing makes it finite.
            Value::Bool(false) => 1,
            _ => 0,
        };
        if self.requirements[index].missing == 0 {
            self.open.push(index);
        }
    }

    /// The number of schemas that an object schema needs. Enters it in their `needed_by`.
    fn missing_of(&mut self, index: usize, schema: &Value, checked: &CheckedSchema) -> usize {
        let array = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
        let mut missing = 0;
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some((target, ..)) = reference.and_then(|reference| checked.target(reference)) {
            self.requirements[target].needed_by.push(index);
            missing += 1;
        }
        if let Some(alternatives) = array("anyOf") {
            // One schema that needs any of them.
            let any = self.push(index);
            for alternative in alternatives {
                self.add(any, alternative, checked);
            }
            self.requirements[any].missing = 1;
            missing += 1;
        }
        for part in array("allOf").into_iter().flatten() {
            missing += self.add(index, part, checked);
        }
        // If another type is allowed, a value of that type is finite.
        let only = |name: &str| schema.get("type").is_none_or(|types| types == name);
        if only("object") {
            let properties = schema.get("properties");
            // A list may repeat a name.
            let names: BTreeSet<&str> = strings(schema.get("required")).collect();
            for schema in names.into_iter().filter_map(|name| properties?.get(name)) {
                missing += self.add(index, schema, checked);
            }
        }
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        if only("array") && least > 0 {
            let first = list(schema.get("prefixItems"));
            let rest = schema.get("items").filter(|_| least > first.len());
            for schema in first.iter().take(least).chain(rest) {
                missing += self.add(index, schema, checked);
            }
        }
        missing
    }

    /// Adds a schema that another one needs. Returns 1.
    fn add(&mut self, user: usize, schema: &Value, checked: &CheckedSchema) -> usize {
        let index = self.push(user);
        self.require(index, schema, checked);
        1
    }

    fn push(&mut self, user: usize) -> usize {
        self.requirements.push(Requirement { missing: 0, needed_by: vec![user] });
        self.requirements.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_support::random::Random;

    fn checked(targets: Vec<Value>) -> CheckedSchema {
        let targets = targets.into_iter().map(|target| (String::new(), target)).collect();
        CheckedSchema { root: json!({}), targets }
    }

    fn reference(index: usize) -> Value {
        json!({ "$ref": format!("#/$defs/r{index}") })
    }

    fn endless(checked: &CheckedSchema) -> Vec<usize> {
        let mut endless = EndlessTargets::new(checked);
        std::iter::from_fn(|| endless.next()).collect()
    }

    /// Checks all targets again until nothing changes.
    fn endless_by_rounds(checked: &CheckedSchema) -> Vec<usize> {
        let targets = &checked.targets;
        let (mut ends, mut endless) = (vec![false; targets.len()], Vec::new());
        loop {
            let mut open = (0..targets.len()).filter(|at| !ends[*at]);
            let Some(first) = open.clone().next() else { return endless };
            match open.find(|at| can_end(&targets[*at].1, checked, &ends)) {
                Some(index) => ends[index] = true,
                None => {
                    ends[first] = true;
                    endless.push(first);
                }
            }
        }
    }

    fn can_end(schema: &Value, checked: &CheckedSchema, ends: &[bool]) -> bool {
        let can = |schema: &Value| can_end(schema, checked, ends);
        if !schema.is_object() {
            return schema != &Value::Bool(false);
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| checked.target(reference));
        let of_type = |name: &str| schema.get("type").is_none_or(|types| types == name);
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0) as usize;
        let first = list(schema.get("prefixItems"));
        target.is_none_or(|(index, ..)| ends[index])
            && schema.get("anyOf").is_none_or(|items| list(Some(items)).iter().any(can))
            && list(schema.get("allOf")).iter().all(can)
            && (!of_type("object")
                || strings(schema.get("required"))
                    .filter_map(|name| schema.get("properties")?.get(name))
                    .all(can))
            && (!of_type("array")
                || first.iter().take(least).all(can)
                    && (least <= first.len() || schema.get("items").is_none_or(can)))
    }

    /// A schema that may require some of this many targets.
    fn random_schema(random: &mut Random, targets: usize, depth: usize) -> Value {
        let kind = random.below(if depth == 0 { 5 } else { 11 });
        let mut inner = || random_schema(random, targets, depth.saturating_sub(1));
        let (a, b) = if kind < 5 { (Value::Null, Value::Null) } else { (inner(), inner()) };
        match kind {
            0 => json!({"type": "string"}),
            1 => json!(random.below(4) > 0),
            2..=4 => reference(random.below(targets)),
            5 => json!({"anyOf": [a, b]}),
            6 => json!({"allOf": [a, b]}),
            7 => json!({"properties": {"a": a, "b": b}, "required": ["a", "a", "c"]}),
            8 => json!({"type": "object", "properties": {"a": a, "b": b}, "required": ["a", "b"]}),
            9 => {
                let least = random.below(4);
                json!({"type": "array", "prefixItems": [a], "items": b, "minItems": least})
            }
            _ => {
                let mut schema = reference(random.below(targets));
                schema["type"] = json!(["array", "null"]);
                schema["minItems"] = json!(1);
                schema["items"] = a;
                schema["anyOf"] = json!([b]);
                schema
            }
        }
    }

    #[test]
    fn the_same_targets_are_endless_as_by_rounds() {
        let mut random = Random::new(3);
        let mut found = 0;
        for _ in 0..3_000 {
            let count = 1 + random.below(8);
            let targets = (0..count).map(|_| random_schema(&mut random, count, 2)).collect();
            let checked = checked(targets);
            let expected = endless_by_rounds(&checked);
            assert_eq!(endless(&checked), expected, "{:?}", checked.targets);
            found += expected.len();
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn each_schema_is_visited_once() {
        // A round over all targets for each link of the chain would take an hour.
        const LINKS: usize = 40_000;
        let array = |items: Value| json!({"type": "array", "minItems": 1, "items": items});
        let upwards = (0..LINKS - 1).map(|index| array(reference(index + 1)));
        let upwards = upwards.chain([json!({"type": "string"})]).collect();
        assert_eq!(endless(&checked(upwards)), [0; 0]);
        let downwards = (0..LINKS).map(|index| match index {
            0 => json!({"type": "string"}),
            index => array(reference(index - 1)),
        });
        assert_eq!(endless(&checked(downwards.collect())), [0; 0]);
        // One target needs all others, which become finite one after another.
        let all: Vec<Value> = (1..LINKS).map(reference).collect();
        let all = [json!({ "allOf": all }), json!({"type": "string"})].into_iter();
        let links = all.chain((2..LINKS).map(|index| array(reference(index - 1))));
        assert_eq!(endless(&checked(links.collect())), [0; 0]);
        let alone = (0..LINKS).map(|index| array(reference(index)));
        assert_eq!(endless(&checked(alone.collect())), (0..LINKS).collect::<Vec<_>>());
    }
}
