//! The keywords that two schemas of one value have together.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::json_schema::{list, strings, type_name, type_names};

/// Why schemas have no common one.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// No value matches all of them, because of this keyword. `at` is its pointer inside the value's
    /// schema.
    Contradiction { at: String, keyword: String, reason: String },
    /// Their values cannot be written as one schema.
    Unmergeable,
}

impl Obstacle {
    pub(super) fn contradiction(keyword: &str, reason: impl Into<String>) -> Obstacle {
        let (keyword, reason) = (keyword.to_owned(), reason.into());
        Obstacle::Contradiction { at: String::new(), keyword, reason }
    }

    /// The obstacle of a value that this one, at this pointer inside it, is required for.
    pub(super) fn of_required(self, pointer: &str) -> Obstacle {
        match self {
            Obstacle::Contradiction { at, keyword, reason } => {
                Obstacle::Contradiction { at: format!("{pointer}{at}"), keyword, reason }
            }
            Obstacle::Unmergeable => self,
        }
    }
}

type Members = Map<String, Value>;

const OBJECT: [&str; 3] = ["properties", "additionalProperties", "patternProperties"];
const ARRAY: [&str; 2] = ["prefixItems", "items"];
const LOWER: [&str; 5] = ["minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"];
const UPPER: [&str; 5] = ["maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"];

/// The bounds of numbers. Before draft 6, the last two are flags of the others.
const BOUNDS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

fn has_flag(schema: &Members) -> bool {
    BOUNDS.iter().any(|keyword| schema.get(*keyword).is_some_and(Value::is_boolean))
}

/// Adds the keywords of a further schema to those of `merged`. `remaining` is how many more JSON
/// values may be copied.
pub(super) fn intersect(
    merged: &mut Members,
    mut own: Members,
    remaining: &mut usize,
) -> Result<(), Obstacle> {
    if let Some(value) = own.remove("const") {
        let values = own.remove("enum").unwrap_or_else(|| json!([value]));
        let values = list(Some(&values)).iter().filter(|other| **other == value).cloned();
        own.insert("enum".into(), values.collect());
    }
    let is_number = |schema: &Members| BOUNDS.iter().any(|keyword| schema.contains_key(*keyword));
    if is_number(merged) && is_number(&own) && (has_flag(merged) || has_flag(&own)) {
        return Err(Obstacle::Unmergeable);
    }
    objects(merged, &mut own, remaining)?;
    arrays(merged, &mut own, remaining)?;
    for (keyword, value) in own {
        let Some(before) = merged.get(&keyword).cloned() else {
            merged.insert(keyword, value);
            continue;
        };
        if before == value {
            continue;
        }
        if keyword == "pattern" || keyword == "format" {
            let further = json!({ keyword: value });
            let all = merged.entry("allOf").or_insert_with(|| json!([]));
            if let Value::Array(all) = all
                && !all.contains(&further)
            {
                all.push(further);
            }
            continue;
        }
        let both = match keyword.as_str() {
            "type" => types(&before, &value),
            "enum" => values(&before, &value),
            "required" => Some(union(&before, &value)),
            "multipleOf" => Some(multiple(&before, &value).ok_or(Obstacle::Unmergeable)?),
            lower if LOWER.contains(&lower) => Some(bound(before.clone(), value.clone(), true)),
            upper if UPPER.contains(&upper) => Some(bound(before.clone(), value.clone(), false)),
            _ => return Err(Obstacle::Unmergeable),
        };
        let both = both.ok_or_else(|| {
            let reason = format!("{value} contradicts {before} of another schema of this value");
            Obstacle::contradiction(&keyword, reason)
        })?;
        merged.insert(keyword, both);
    }
    excluded(merged).map_or(Ok(()), Err)
}

/// The keyword that excludes every value; None if there is none.
fn excluded(merged: &Members) -> Option<Obstacle> {
    let number = |keyword: &str| merged.get(keyword).and_then(Value::as_f64);
    for (lower, upper) in LOWER.into_iter().zip(UPPER) {
        if matches!((number(lower), number(upper)), (Some(least), Some(most)) if least > most) {
            let reason = "contradicts the lower bound of another schema of this value";
            return Some(Obstacle::contradiction(upper, reason));
        }
    }
    let is_object = type_names(merged.get("type")).is_none_or(|types| types == ["object"]);
    let properties = merged.get("properties");
    let is_closed = merged.get("additionalProperties") == Some(&Value::Bool(false))
        && !merged.contains_key("patternProperties");
    let mut required = strings(merged.get("required"));
    let missing = required.find(|name| {
        let schema = properties.and_then(|properties| properties.get(*name));
        schema.map_or(is_closed, |schema| schema == &Value::Bool(false))
    });
    let missing = missing.filter(|_| is_object)?;
    let reason = format!("another schema of this value excludes the property {missing:?}");
    Some(Obstacle::contradiction("required", reason))
}

/// Reduces an `enum` to the values that the other keywords allow. The keywords are then not needed.
pub(super) fn possible(merged: Members) -> Result<Members, Obstacle> {
    let Some(values) = merged.get("enum").and_then(Value::as_array) else { return Ok(merged) };
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| merged.contains_key(*keyword));
    let undecided = |value: &Value| match value {
        Value::String(_) => has(&["pattern", "format"]),
        Value::Number(_) => has(&["multipleOf"]) || has_flag(&merged),
        Value::Array(_) => has(&ARRAY),
        Value::Object(_) => has(&OBJECT) || has(&["required"]),
        _ => false,
    };
    let types = type_names(merged.get("type"));
    let of_type = |value: &&Value| types.as_ref().is_none_or(|types| has_type(types, value));
    let allowed: Vec<Value> = values
        .iter()
        .filter(of_type)
        .filter(|value| is_in_bounds(&merged, value))
        .cloned()
        .collect();
    if allowed.iter().any(undecided) {
        return Err(Obstacle::Unmergeable);
    }
    if allowed.is_empty() {
        let reason = "other schemas of this value exclude all its values";
        return Err(Obstacle::contradiction("enum", reason));
    }
    Ok(Map::from_iter([("enum".to_owned(), Value::Array(allowed))]))
}

fn has_type(types: &[&str], value: &Value) -> bool {
    let is_integer = value.is_i64() || value.is_u64();
    types.contains(&type_name(value)) || (is_integer && types.contains(&"integer"))
}

fn is_in_bounds(merged: &Members, value: &Value) -> bool {
    let size = match value {
        Value::String(text) => Some((text.chars().count() as f64, "minLength", "maxLength")),
        Value::Array(items) => Some((items.len() as f64, "minItems", "maxItems")),
        Value::Object(members) => Some((members.len() as f64, "minProperties", "maxProperties")),
        value => value.as_f64().map(|number| (number, "minimum", "maximum")),
    };
    let bound = |keyword: &str| merged.get(keyword).and_then(Value::as_f64);
    let is_exclusive = |number: f64| {
        value.is_number()
            && (bound("exclusiveMinimum").is_some_and(|least| number <= least)
                || bound("exclusiveMaximum").is_some_and(|most| number >= most))
    };
    size.is_none_or(|(size, lower, upper)| {
        bound(lower).is_none_or(|least| size >= least)
            && bound(upper).is_none_or(|most| size <= most)
            && !is_exclusive(size)
    })
}

/// Merges the properties. What a schema does not list is one of its `additionalProperties`.
fn objects(merged: &mut Members, own: &mut Members, remaining: &mut usize) -> Result<(), Obstacle> {
    let has_any = |schema: &Members| OBJECT.iter().any(|keyword| schema.contains_key(*keyword));
    if !has_any(merged) || !has_any(own) {
        return Ok(());
    }
    if merged.contains_key("patternProperties") || own.contains_key("patternProperties") {
        return Err(Obstacle::Unmergeable);
    }
    let take = |schema: &mut Members| {
        let properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        (properties, schema.remove("additionalProperties"))
    };
    let (mut properties, others) = take(merged);
    let (further, own_others) = take(own);
    let of = |others: &Option<Value>| others.clone().unwrap_or(Value::Bool(true));
    let copies = |others: &Option<Value>| others.as_ref().map_or(1, size);
    spend(remaining, properties.len().saturating_mul(copies(&own_others)))?;
    spend(remaining, further.len().saturating_mul(copies(&others)))?;
    for (name, schema) in &mut properties {
        let other = further.get(name).cloned().unwrap_or_else(|| of(&own_others));
        *schema = both(std::mem::take(schema), other);
    }
    for (name, schema) in further {
        if !properties.contains_key(&name) {
            properties.insert(name, both(of(&others), schema));
        }
    }
    if !properties.is_empty() {
        merged.insert("properties".into(), Value::Object(properties));
    }
    if others.is_some() || own_others.is_some() {
        merged.insert("additionalProperties".into(), both(of(&others), of(&own_others)));
    }
    Ok(())
}

/// Merges the items of arrays, position by position.
fn arrays(merged: &mut Members, own: &mut Members, remaining: &mut usize) -> Result<(), Obstacle> {
    let has_any = |schema: &Members| ARRAY.iter().any(|keyword| schema.contains_key(*keyword));
    if !has_any(merged) || !has_any(own) {
        return Ok(());
    }
    let take = |schema: &mut Members| {
        let first = list(schema.remove("prefixItems").as_ref()).to_vec();
        (first, schema.remove("items").unwrap_or(Value::Bool(true)))
    };
    let ((first, rest), (further, own_rest)) = (take(merged), take(own));
    spend(remaining, further.len().saturating_mul(size(&rest)))?;
    spend(remaining, first.len().saturating_mul(size(&own_rest)))?;
    let at = |items: &[Value], rest: &Value, index: usize| items.get(index).unwrap_or(rest).clone();
    let all = (0..first.len().max(further.len()))
        .map(|index| both(at(&first, &rest, index), at(&further, &own_rest, index)));
    let all: Vec<Value> = all.collect();
    if !all.is_empty() {
        merged.insert("prefixItems".into(), Value::Array(all));
    }
    merged.insert("items".into(), both(rest, own_rest));
    Ok(())
}

/// The schema of values that match both.
fn both(one: Value, other: Value) -> Value {
    let parts = |schema: Value| match schema {
        Value::Object(members) if members.len() == 1 && members.contains_key("allOf") => {
            list(members.get("allOf")).to_vec()
        }
        schema => vec![schema],
    };
    match (one, other) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => Value::Bool(false),
        (Value::Bool(true), schema) | (schema, Value::Bool(true)) => schema,
        (one, other) => {
            let mut all = parts(one);
            for part in parts(other) {
                if !all.contains(&part) {
                    all.push(part);
                }
            }
            if all.len() == 1 { all.remove(0) } else { json!({ "allOf": all }) }
        }
    }
}

fn types(one: &Value, other: &Value) -> Option<Value> {
    let (one, other) = (type_names(Some(one))?, type_names(Some(other))?);
    let in_both = |name: &&str, others: &[&str]| {
        others.contains(name) || (*name == "integer" && others.contains(&"number"))
    };
    let mut names: Vec<&str> = one.iter().copied().filter(|name| in_both(name, &other)).collect();
    for name in other.iter().copied().filter(|name| in_both(name, &one)) {
        let is_included = names.contains(&name) || (name == "integer" && names.contains(&"number"));
        if !is_included {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => None,
        [name] => Some((*name).into()),
        names => Some(json!(names)),
    }
}

fn values(one: &Value, other: &Value) -> Option<Value> {
    let other = list(Some(other));
    let common: Vec<&Value> =
        list(Some(one)).iter().filter(|value| other.contains(value)).collect();
    (!common.is_empty()).then(|| json!(common))
}

fn union(one: &Value, other: &Value) -> Value {
    let known: HashSet<&str> = strings(Some(one)).collect();
    let further = strings(Some(other)).filter(|name| !known.contains(name));
    strings(Some(one)).chain(further).map(Value::from).collect()
}

fn bound(one: Value, other: Value, is_lower: bool) -> Value {
    let is_greater = one.as_f64() > other.as_f64();
    if is_greater == is_lower { one } else { other }
}

/// The numbers that are multiples of both. None if it is not certain what they have in common.
fn multiple(one: &Value, other: &Value) -> Option<Value> {
    let (a, b) = (one.as_u64()?, other.as_u64()?);
    let (mut divisor, mut remainder) = (a, b);
    while remainder != 0 {
        (divisor, remainder) = (remainder, divisor % remainder);
    }
    a.checked_div(divisor)?.checked_mul(b).map(Value::from)
}

/// The number of JSON values in a value, itself included.
pub(super) fn size(value: &Value) -> usize {
    1 + match value {
        Value::Object(members) => members.values().map(size).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        _ => 0,
    }
}

/// Counts copies of JSON values.
pub(super) fn spend(remaining: &mut usize, copies: usize) -> Result<(), Obstacle> {
    *remaining = remaining.checked_sub(copies).ok_or(Obstacle::Unmergeable)?;
    Ok(())
}
