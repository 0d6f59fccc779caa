//! Converts a caller's JSON Schema to one that llguidance 1.9.1 enforces completely.
//!
//! In: the schema as the caller wrote it, and the policy for keywords that cannot be enforced. Out:
//! a schema with only enforceable keywords, whose references are rewritten to `#/$defs/rN`, or an
//! error with the path and the keyword. Every dropped keyword is reported.

mod checked;
mod keywords;
mod recursion;
mod size;

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::Result;
use crate::json_schema::{
    TypeSet, allowed_values, child, entries, list, resolve, strings, type_names,
};
use keywords::KeywordArgument;
use recursion::EndlessTargets;

pub use checked::Relaxed;
pub(super) use checked::{CheckedSchema, Policy, SchemaReport, with_stack};

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
        targets: Vec::new(),
        indices: HashMap::new(),
        comparisons: MAX_COMPARISONS,
    };
    let root = walk.schema(schema, "")?;
    let mut done = Vec::new();
    while done.len() < walk.targets.len() {
        let pointer = walk.targets[done.len()].clone();
        let target = schema.pointer(&pointer).unwrap_or(&Value::Null);
        let checked = walk.schema(target, &pointer)?;
        done.push((pointer, checked));
    }
    let mut checked = CheckedSchema { root, targets: done };
    let mut endless = EndlessTargets::new(&checked);
    while let Some(index) = endless.next() {
        let pointer = checked.targets[index].0.clone();
        report.refuse(&pointer, "", "refers to itself, and has no finite value")?;
        checked.targets[index].1 = Value::Object(Map::new());
    }
    Ok(checked)
}

struct SchemaWalk<'w, 'a> {
    document: &'w Value,
    report: &'w mut SchemaReport<'a>,
    targets: Vec<String>,
    /// The index of each target, by pointer.
    indices: HashMap<String, usize>,
    /// How many comparisons of alternatives are left.
    comparisons: usize,
}

impl SchemaWalk<'_, '_> {
    fn schema(&mut self, schema: &Value, at: &str) -> Result<Value> {
        with_stack(|| self.checked(schema, at))
    }

    fn checked(&mut self, schema: &Value, at: &str) -> Result<Value> {
        let members = match schema {
            Value::Object(members) => members,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => {
                self.report.refuse(at, "", "a schema is an object or a boolean")?;
                return Ok(Value::Bool(true));
            }
        };
        let mut kept = Map::new();
        for (keyword, value) in members {
            if let Some(value) = self.keyword(members, keyword, value, at)? {
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
        Ok(Value::Object(kept))
    }

    /// The enforceable argument of a keyword; None drops the keyword.
    fn keyword(
        &mut self,
        members: &Map<String, Value>,
        keyword: &str,
        value: &Value,
        at: &str,
    ) -> Result<Option<Value>> {
        if let Some(reason) = keywords::refusal(members, keyword, value) {
            self.report.refuse(at, keyword, reason)?;
            return Ok(None);
        }
        let at = child(at, keyword);
        Ok(Some(match keywords::argument_of(keyword, value) {
            KeywordArgument::Ignored => return Ok(None),
            KeywordArgument::Plain => value.clone(),
            KeywordArgument::Schema => self.schema(value, &at)?,
            KeywordArgument::List => {
                let items = list(Some(value)).iter().enumerate();
                let items = items
                    .map(|(index, item)| self.schema(item, &format!("{at}/{index}")))
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
                    Ok((name.clone(), self.schema(schema, &child(&at, name))?))
                });
                Value::Object(members.collect::<Result<_>>()?)
            }
            KeywordArgument::Reference => match self.reference(value) {
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

    fn reference(&mut self, value: &Value) -> Result<Value, &'static str> {
        let (pointer, _) = resolve(self.document, value)?;
        let index = match self.indices.get(pointer) {
            Some(index) => *index,
            None => {
                self.targets.push(pointer.to_owned());
                self.indices.insert(pointer.to_owned(), self.targets.len() - 1);
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
