//! Merges the schemas that apply to one value: the items of `allOf`, the target of `$ref`, and the
//! keywords beside them.
//!
//! In: a checked schema. Out: a schema with the same values, in which every schema lists its
//! properties itself, so that encodings other than JSON can write them one by one. Parts that
//! contradict each other are refused. What cannot be merged stays as it was.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::checked::{CheckedSchema, SchemaReport, with_stack};
use super::intersection::{Obstacle, intersect, possible, size, spend};
use super::keywords::{KeywordArgument, argument_of};
use super::refuse_endless;
use crate::error::Result;
use crate::json_schema::{child, list, strings};

/// The maximum number of JSON values that are copied. Alternatives multiply.
const MAX_COPIED: usize = 500_000;
/// The maximum number of schemas of one value, and of choices between them.
const MAX_PARTS: usize = 256;

impl CheckedSchema {
    /// The schema with all parts of each value merged.
    pub(in crate::constraint) fn merged(self, report: &mut SchemaReport) -> Result<CheckedSchema> {
        let mut merger = SchemaMerger {
            checked: &self,
            report,
            targets: self.targets.clone(),
            indices: HashMap::new(),
            remaining: MAX_COPIED,
        };
        let root = match merger.of_parts(&self.root) {
            Ok(root) => merger.inner(&root, "")?,
            Err(Obstacle::Contradiction { at, keyword, reason }) => {
                return Err(merger.report.error(&at, &keyword, &reason));
            }
            Err(Obstacle::Unmergeable) => self.root.clone(),
        };
        let mut done = Vec::with_capacity(merger.targets.len());
        while let Some((pointer, target)) = merger.targets.get(done.len()).cloned() {
            let merged = merger.whole(&target, &pointer)?;
            done.push((pointer, merged));
        }
        let mut merged = CheckedSchema { root, targets: done };
        refuse_endless(&mut merged, report)?;
        Ok(merged)
    }
}

/// Whether items of `allOf` say only what another pattern or format says too. A merged text has
/// them for its further patterns and formats.
pub(in crate::constraint) fn are_further_patterns(members: &Map<String, Value>) -> bool {
    let is_pattern = |item: &Value| {
        let keys: Vec<_> = item.as_object().into_iter().flat_map(Map::keys).collect();
        matches!(keys.as_slice(), [keyword] if *keyword == "pattern" || *keyword == "format")
    };
    ["pattern", "format"].iter().any(|keyword| members.contains_key(*keyword))
        && list(members.get("allOf")).iter().all(is_pattern)
}

/// What applies to one value.
#[derive(Clone, Default)]
struct Parts {
    /// The keywords of all parts, merged.
    common: Map<String, Value>,
    count: usize,
    /// The alternatives of each `anyOf`.
    alternatives: Vec<Vec<Value>>,
}

struct SchemaMerger<'m, 'r> {
    checked: &'m CheckedSchema,
    report: &'m mut SchemaReport<'r>,
    /// The targets of references, not merged yet. Parts with references are further targets, because
    /// they may contain themselves.
    targets: Vec<(String, Value)>,
    /// The indices of these further targets, by their parts.
    indices: HashMap<String, usize>,
    /// How many more JSON values may be copied.
    remaining: usize,
}

impl SchemaMerger<'_, '_> {
    /// A schema that is part of another one.
    fn schema(&mut self, schema: &Value, at: &str) -> Result<Value> {
        let Value::Object(members) = schema else { return Ok(schema.clone()) };
        if !has_parts(members) {
            return with_stack(|| self.inner(schema, at));
        }
        if spend(&mut self.remaining, size(schema)).is_err() {
            return Ok(schema.clone());
        }
        let text = schema.to_string();
        if !text.contains("\"$ref\"") {
            return with_stack(|| self.whole(schema, at));
        }
        let mut key: Vec<String> =
            list(members.get("allOf")).iter().map(Value::to_string).collect();
        if members.len() > 1 {
            key = vec![text];
        }
        key.sort();
        let index = *self.indices.entry(key.join("\n")).or_insert_with(|| {
            self.targets.push((at.to_owned(), schema.clone()));
            self.targets.len() - 1
        });
        Ok(json!({ "$ref": format!("#/$defs/r{index}") }))
    }

    /// A schema, merged here.
    fn whole(&mut self, schema: &Value, at: &str) -> Result<Value> {
        match self.of_parts(schema) {
            Ok(merged) => self.inner(&merged, at),
            Err(Obstacle::Contradiction { at: inside, keyword, reason }) => {
                self.report.refuse(&format!("{at}{inside}"), &keyword, &reason)?;
                Ok(Value::Bool(false))
            }
            Err(Obstacle::Unmergeable) => Ok(schema.clone()),
        }
    }

    /// A merged schema, with the schemas inside it merged too.
    fn inner(&mut self, schema: &Value, at: &str) -> Result<Value> {
        let Value::Object(members) = schema else { return Ok(schema.clone()) };
        let mut merged = Map::new();
        for (keyword, value) in members {
            let at = child(at, keyword);
            let value = match (argument_of(keyword, value), value) {
                (KeywordArgument::Schema, schema) => self.schema(schema, &at)?,
                (KeywordArgument::List, Value::Array(items)) => {
                    let items = items.iter().enumerate();
                    let items =
                        items.map(|(index, item)| self.schema(item, &format!("{at}/{index}")));
                    Value::Array(items.collect::<Result<_>>()?)
                }
                (KeywordArgument::Map, Value::Object(schemas)) => {
                    let schemas = schemas.iter().map(|(name, schema)| {
                        Ok((name.clone(), self.schema(schema, &child(&at, name))?))
                    });
                    Value::Object(schemas.collect::<Result<_>>()?)
                }
                (_, value) => value.clone(),
            };
            merged.insert(keyword.clone(), value);
        }
        Ok(Value::Object(merged))
    }

    /// One schema for all parts of a value. The schemas inside it are not merged.
    fn of_parts(&mut self, schema: &Value) -> Result<Value, Obstacle> {
        if !schema.as_object().is_some_and(has_parts) {
            return Ok(schema.clone());
        }
        let mut parts = Parts::default();
        self.collect(schema, &mut parts)?;
        self.combined(parts)
    }

    /// Adds the parts of a schema.
    fn collect(&mut self, schema: &Value, parts: &mut Parts) -> Result<(), Obstacle> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(false) => return Err(Obstacle::contradiction("", "excludes all values")),
            _ => return Ok(()),
        };
        parts.count += 1;
        if parts.count > MAX_PARTS {
            return Err(Obstacle::Unmergeable);
        }
        let is_part = |keyword: &str| matches!(keyword, "allOf" | "anyOf" | "$ref");
        let own = members.iter().filter(|(keyword, _)| !is_part(keyword));
        let own: Map<String, Value> =
            own.map(|(keyword, value)| (keyword.clone(), value.clone())).collect();
        spend(&mut self.remaining, own.values().map(size).sum())?;
        intersect(&mut parts.common, own, &mut self.remaining)?;
        with_stack(|| {
            let checked = self.checked;
            let reference = members.get("$ref").and_then(Value::as_str);
            if let Some((.., target)) = reference.and_then(|text| checked.target(text)) {
                self.collect(target, parts)?;
            }
            list(members.get("allOf")).iter().try_for_each(|item| self.collect(item, parts))
        })?;
        if let Some(items) = members.get("anyOf").and_then(Value::as_array) {
            parts.alternatives.push(items.clone());
        }
        Ok(())
    }

    /// The schema of the parts: one for each choice of alternatives.
    fn combined(&mut self, mut parts: Parts) -> Result<Value, Obstacle> {
        let Some(items) = parts.alternatives.pop() else {
            let common = possible(parts.common)?;
            self.check_required(&common)?;
            return Ok(Value::Object(common));
        };
        let mut ways: Vec<Value> = Vec::new();
        let mut contradiction = None;
        for item in &items {
            // Each way is compared with all others.
            if ways.len() == MAX_PARTS {
                return Err(Obstacle::Unmergeable);
            }
            spend(&mut self.remaining, 1 + parts.common.values().map(size).sum::<usize>())?;
            let mut with_item = parts.clone();
            let collected = self.collect(item, &mut with_item);
            match collected.and_then(|()| with_stack(|| self.combined(with_item))) {
                Ok(way) if !ways.contains(&way) => ways.push(way),
                Ok(_) => {}
                Err(Obstacle::Unmergeable) => return Err(Obstacle::Unmergeable),
                Err(excluded) => contradiction = contradiction.or(Some(excluded)),
            }
        }
        match (ways.len(), contradiction) {
            (0, Some(contradiction)) => Err(contradiction),
            (1, _) => Ok(ways.remove(0)),
            _ => Ok(json!({ "anyOf": ways })),
        }
    }

    /// A contradiction in a required property is one in the object.
    fn check_required(&mut self, common: &Map<String, Value>) -> Result<(), Obstacle> {
        let properties = common.get("properties").and_then(Value::as_object);
        for name in strings(common.get("required")) {
            let schema = properties.and_then(|properties| properties.get(name));
            if let Some(schema @ Value::Object(members)) = schema
                && members.contains_key("allOf")
            {
                with_stack(|| self.of_parts(schema))
                    .map_err(|obstacle| obstacle.of_required(&child("/properties", name)))?;
            }
        }
        Ok(())
    }
}

/// Whether more than one schema applies to a value of this schema. A type beside a reference or
/// alternatives is theirs too.
fn has_parts(members: &Map<String, Value>) -> bool {
    let has_others = |keyword: &str| {
        members.contains_key(keyword)
            && members.iter().any(|(other, value)| match other.as_str() {
                "type" => false,
                "additionalProperties" => value != &Value::Bool(false),
                other => other != keyword,
            })
    };
    (members.contains_key("allOf") && !are_further_patterns(members))
        || has_others("anyOf")
        || has_others("$ref")
}
