//! Converts a caller's JSON Schema to one that llguidance 1.9.1 enforces completely.
//!
//! In: the schema as the caller wrote it, and the policy for keywords that cannot be enforced. Out:
//! a schema with only enforceable keywords, whose references are rewritten to `#/$defs/rN` and whose
//! objects are closed, or an error with the path and the keyword. Every dropped keyword is reported.

mod bounds;
mod checked;
mod closing;
mod intersection;
mod keywords;
mod merging;
mod recursion;
mod size;

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::Result;
use crate::json_schema::{
    TypeSet, allowed_values, child, entries, list, resolve, strings, type_names,
};
use closing::{Closing, ClosingPlanner, ClosingScope};
use keywords::KeywordArgument;
use recursion::EndlessTargets;

pub use checked::Relaxed;
pub(super) use checked::{CheckedSchema, Policy, SchemaReport, with_stack};
pub(super) use merging::are_further_patterns;

/// The maximum number of comparisons between alternatives.
const MAX_COMPARISONS: usize = 1_000_000;

/// Checks a schema, keyword by keyword.
pub(super) fn check(schema: &Value, report: &mut SchemaReport) -> Result<CheckedSchema> {
    if let Some((pointer, excess)) = size::excess(schema) {
        report.refuse(&pointer, "", &excess)?;
        return Ok(CheckedSchema { root: Value::Object(Map::new()), targets: Vec::new() });
    }
    let mut walk = SchemaWalk {
        document: schema,
        report,
        closing: ClosingPlanner::new(schema),
        targets: Vec::new(),
        indices: HashMap::new(),
        comparisons: MAX_COMPARISONS,
    };
    let root = walk.schema(schema, "", &ClosingScope::whole())?;
    let mut done = Vec::new();
    while done.len() < walk.targets.len() {
        let ReferenceTarget { pointer, is_part } = walk.targets[done.len()].clone();
        let target = schema.pointer(&pointer).unwrap_or(&Value::Null);
        let scope = if is_part { ClosingScope::Part } else { ClosingScope::whole() };
        let checked = walk.schema(target, &pointer, &scope)?;
        done.push((pointer, checked));
    }
    let mut checked = CheckedSchema { root, targets: done };
    refuse_endless(&mut checked, report)?;
    Ok(checked)
}

/// Refuses targets that have no finite value.
fn refuse_endless(checked: &mut CheckedSchema, report: &mut SchemaReport) -> Result<()> {
    let mut endless = EndlessTargets::new(checked);
    while let Some(index) = endless.next() {
        let pointer = checked.targets[index].0.clone();
        report.refuse(&pointer, "", "refers to itself, and has no finite value")?;
        checked.targets[index].1 = Value::Object(Map::new());
    }
    Ok(())
}

/// A schema that a reference refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReferenceTarget {
    pointer: String,
    /// Whether the schema with the reference closes the object, so that the target does not.
    is_part: bool,
}

struct SchemaWalk<'w, 'a> {
    document: &'w Value,
    report: &'w mut SchemaReport<'a>,
    closing: ClosingPlanner<'w>,
    targets: Vec<ReferenceTarget>,
    /// The index of each target.
    indices: HashMap<ReferenceTarget, usize>,
    /// How many comparisons of alternatives are left.
    comparisons: usize,
}

impl<'w> SchemaWalk<'w, '_> {
    fn schema(&mut self, schema: &'w Value, at: &str, scope: &ClosingScope) -> Result<Value> {
        with_stack(|| self.checked(schema, at, scope))
    }

    fn checked(&mut self, schema: &'w Value, at: &str, scope: &ClosingScope) -> Result<Value> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(true) => return Ok(scope.any_value()),
            Value::Bool(false) => return Ok(schema.clone()),
            _ => {
                self.report.refuse(at, "", "a schema is an object or a boolean")?;
                return Ok(Value::Bool(true));
            }
        };
        let closing = match self.closing.plan(members, scope) {
            Some(closing) => closing,
            None => {
                let reason = "too many properties are listed to exclude all others";
                self.report.refuse(at, "properties", reason)?;
                Closing::OPEN
            }
        };
        let mut kept = Map::new();
        for (keyword, value) in members {
            if let Some(value) = self.keyword(members, keyword, value, at, &closing)? {
                // Before draft 2020-12, `prefixItems` and `items` were called `items` and
                // `additionalItems`.
                let keyword = match (keyword.as_str(), value.is_array()) {
                    ("items", true) => "prefixItems",
                    ("additionalItems", _) => "items",
                    // The alternatives exclude each other, which is checked below.
                    ("oneOf", _) => "anyOf",
                    (keyword, _) => keyword,
                };
                kept.insert(keyword.to_owned(), value);
            }
        }
        for (least, most) in
            [("minLength", "maxLength"), ("minItems", "maxItems"), ("minimum", "maximum")]
        {
            let number = |keyword| kept.get(keyword).and_then(Value::as_f64);
            if matches!((number(least), number(most)), (Some(least), Some(most)) if least > most) {
                self.report.refuse(at, most, "contradicts the lower bound")?;
                kept.shift_remove(most);
            }
        }
        if let Some(names) = closing.names {
            names.close(&mut kept);
        }
        Ok(Value::Object(kept))
    }

    /// The enforceable argument of a keyword; None drops the keyword.
    fn keyword(
        &mut self,
        members: &Map<String, Value>,
        keyword: &str,
        value: &'w Value,
        at: &str,
        closing: &Closing,
    ) -> Result<Option<Value>> {
        if let Some(reason) = keywords::refusal(members, keyword, value) {
            self.report.refuse(at, keyword, reason)?;
            return Ok(None);
        }
        let at = child(at, keyword);
        Ok(Some(match keywords::argument_of(keyword, value) {
            KeywordArgument::Ignored => return Ok(None),
            KeywordArgument::Plain => value.clone(),
            KeywordArgument::Schema => self.schema(value, &at, &ClosingScope::whole())?,
            KeywordArgument::List => {
                let scope = match keyword {
                    "allOf" => closing.parts.clone(),
                    "anyOf" | "oneOf" => closing.alternatives.clone(),
                    _ => ClosingScope::whole(),
                };
                let items = list(Some(value)).iter().enumerate();
                let items = items
                    .map(|(index, item)| self.schema(item, &format!("{at}/{index}"), &scope))
                    .collect::<Result<Vec<_>>>()?;
                if keyword == "oneOf" && !self.exclusive(&items) {
                    let (at, reason) =
                        (at.trim_end_matches("/oneOf"), "its alternatives may overlap");
                    self.report.refuse(at, keyword, reason)?;
                }
                if matches!(keyword, "oneOf" | "anyOf")
                    && items.iter().all(|item| item == &Value::Bool(false))
                {
                    self.report.refuse(&at, "", "no alternative is possible")?;
                    return Ok(None);
                }
                Value::Array(items)
            }
            KeywordArgument::Map => {
                let members = entries(Some(value)).map(|(name, schema)| {
                    Ok((
                        name.clone(),
                        self.schema(schema, &child(&at, name), &ClosingScope::whole())?,
                    ))
                });
                Value::Object(members.collect::<Result<_>>()?)
            }
            KeywordArgument::Reference => match self.reference(value, &closing.parts) {
                Ok(reference) => reference,
                Err(reason) => {
                    self.report.refuse(at.trim_end_matches("/$ref"), keyword, reason)?;
                    return Ok(None);
                }
            },
        }))
    }

    fn exclusive(&mut self, items: &[Value]) -> bool {
        let comparisons = &mut self.comparisons;
        let mut items = items.iter();
        while let Some(item) = items.next() {
            if !items.as_slice().iter().all(|other| disjoint(item, other, comparisons)) {
                return false;
            }
        }
        true
    }

    fn reference(&mut self, value: &Value, scope: &ClosingScope) -> Result<Value, &'static str> {
        let (pointer, _) = resolve(self.document, value)?;
        let is_part = matches!(scope, ClosingScope::Part);
        let target = ReferenceTarget { pointer: pointer.to_owned(), is_part };
        let index = match self.indices.get(&target) {
            Some(index) => *index,
            None => {
                self.targets.push(target.clone());
                self.indices.insert(target, self.targets.len() - 1);
                self.targets.len() - 1
            }
        };
        Ok(format!("#/$defs/r{index}").into())
    }
}

/// Whether no value matches both schemas. Returns true only if that is certain. The schemas must
/// have been checked. `comparisons` is how many comparisons are left.
fn disjoint(a: &Value, b: &Value, comparisons: &mut usize) -> bool {
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
