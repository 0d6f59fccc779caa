//! Bounds the lists, strings and maps of a checked schema.
//!
//! A small model may add items to a list, or repeat a phrase in a string, until the context is full.
//! In: a checked schema. Out: the schema, in which each of these that has no bound of its own has
//! one. Every value that it allows is valid for the schema without bounds.

use serde_json::{Map, Value};

use super::checked::{CheckedSchema, with_stack};
use super::keywords::{KeywordArgument, argument_of};
use crate::json_schema::{list, type_names};

/// The maximum number of items in a list, and of members in a map.
const MAX_ITEMS: usize = 64;
/// The maximum number of characters in a string.
const MAX_LENGTH: usize = 2_000;

impl CheckedSchema {
    /// The schema with bounds.
    pub(in crate::constraint) fn bounded(mut self) -> CheckedSchema {
        let targets = self.targets.iter_mut().map(|(_, target)| target);
        targets.chain([&mut self.root]).for_each(bound);
        self
    }
}

fn bound(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    with_stack(|| {
        for (keyword, value) in members.iter_mut() {
            match (argument_of(keyword, value), value) {
                (KeywordArgument::Schema, schema) => bound(schema),
                (KeywordArgument::List, Value::Array(schemas)) => {
                    schemas.iter_mut().for_each(bound)
                }
                (KeywordArgument::Map, Value::Object(schemas)) => {
                    schemas.values_mut().for_each(bound);
                }
                _ => {}
            }
        }
    });
    if has_type(members, "array") {
        add(members, "minItems", "maxItems", MAX_ITEMS);
    }
    if has_type(members, "string")
        && ["pattern", "format", "enum", "const"].iter().all(|name| !members.contains_key(*name))
    {
        add(members, "minLength", "maxLength", MAX_LENGTH);
    }
    // The members of an object with listed properties cannot be counted.
    if has_type(members, "object")
        && !members.contains_key("properties")
        && members.get("additionalProperties") != Some(&Value::Bool(false))
    {
        add(members, "minProperties", "maxProperties", MAX_ITEMS);
    }
}

fn has_type(members: &Map<String, Value>, name: &str) -> bool {
    type_names(members.get("type")).is_some_and(|names| names.contains(&name))
}

/// Adds an upper bound, unless the schema has one, or its lower bound is larger.
fn add(members: &mut Map<String, Value>, least: &str, most: &str, bound: usize) {
    let least = members.get(least).and_then(Value::as_u64).unwrap_or_default();
    let listed = list(members.get("prefixItems")).len();
    if !members.contains_key(most) && least <= bound as u64 && listed <= bound {
        members.insert(most.to_owned(), bound.into());
    }
}
