//! Generates schemas and values, mostly like those that clients send.

use arbitrary::Unstructured;
use serde_json::{Map, Value, json};

const NAMES: [&str; 8] = ["a", "b", "city", "n", "a/b", "~", "", "é"];
const TYPES: [&str; 8] =
    ["string", "integer", "number", "boolean", "null", "object", "array", "any"];
const PATTERNS: [&str; 8] =
    ["^a+$", "[a-z]{2,5}", "(a|b)*c", "\\d+", "(?=a)", "(", "^\\p{L}$", "((a{9}){9}){9}"];
const REFERENCES: [&str; 6] =
    ["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/nowhere", "http://x/"];

/// Generates a schema, or occasionally another value in its place.
pub fn schema(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<Value> {
    if depth > 8 || u.is_empty() {
        return Ok(json!({}));
    }
    if u.ratio(1, 16)? {
        return value(u, 0);
    }
    let mut members = Map::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let (keyword, argument): (&str, Value) = match u.int_in_range(0..=19)? {
            0..=2 => ("type", (*u.choose(&TYPES)?).into()),
            3 => ("type", json!([u.choose(&TYPES)?, u.choose(&TYPES)?])),
            4 | 5 => ("properties", named(u, depth, &NAMES)?),
            6 => ("patternProperties", named(u, depth, &PATTERNS)?),
            7 => ("required", json!([u.choose(&NAMES)?, u.choose(&NAMES)?])),
            8 => (
                *u.choose(&["additionalProperties", "items", "additionalItems"])?,
                schema(u, depth + 1)?,
            ),
            9 => {
                (*u.choose(&["anyOf", "oneOf", "allOf", "prefixItems", "items"])?, list(u, depth)?)
            }
            10 => (
                *u.choose(&["not", "if", "then", "else", "contains", "propertyNames"])?,
                schema(u, depth + 1)?,
            ),
            11 => {
                (*u.choose(&["unevaluatedProperties", "unevaluatedItems"])?, schema(u, depth + 1)?)
            }
            12 => ("$ref", (*u.choose(&REFERENCES)?).into()),
            13 => ("$defs", named(u, depth, &["a", "b"])?),
            14 => ("enum", json!([value(u, 6)?, value(u, 6)?])),
            15 => ("const", value(u, 6)?),
            16 => ("pattern", (*u.choose(&PATTERNS)?).into()),
            17 => {
                let limits = [
                    "minLength",
                    "maxLength",
                    "minItems",
                    "maxItems",
                    "minProperties",
                    "maxProperties",
                ];
                (*u.choose(&limits)?, u.int_in_range(0..=5)?.into())
            }
            18 => {
                let limits = [
                    "minimum",
                    "maximum",
                    "exclusiveMinimum",
                    "exclusiveMaximum",
                    "multipleOf",
                    "uniqueItems",
                ];
                (*u.choose(&limits)?, value(u, 9)?)
            }
            _ => (
                *u.choose(&["format", "dependencies", "dependentSchemas", "dependentRequired"])?,
                value(u, 0)?,
            ),
        };
        members.insert(keyword.to_owned(), argument);
    }
    Ok(Value::Object(members))
}

fn named(u: &mut Unstructured<'_>, depth: usize, names: &[&str]) -> arbitrary::Result<Value> {
    let mut members = Map::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let name = (*u.choose(names)?).to_owned();
        members.insert(name, schema(u, depth + 1)?);
    }
    Ok(Value::Object(members))
}

fn list(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<Value> {
    let mut items = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        items.push(schema(u, depth + 1)?);
    }
    Ok(items.into())
}

/// Generates any JSON. Deeper levels are simpler.
pub fn value(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<Value> {
    if u.is_empty() {
        return Ok(Value::Null);
    }
    let kinds = if depth > 8 { 6 } else { 8 };
    Ok(match u.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => u.arbitrary::<bool>()?.into(),
        2 => u.arbitrary::<i8>()?.into(),
        3 => u.arbitrary::<f64>()?.into(),
        4 => serde_json::from_str(u.choose(&[
            "1.0",
            "1e5",
            "0.1",
            "-0",
            "1e999999999",
            "12345678901234567890123",
        ])?)
        .unwrap_or_default(),
        5 => (*u.choose(&NAMES)?).into(),
        6 => u.arbitrary::<&str>()?.into(),
        7 => {
            let mut items = Vec::new();
            for _ in 0..u.int_in_range(0..=3)? {
                items.push(value(u, depth + 1)?);
            }
            items.into()
        }
        _ => {
            let mut members = Map::new();
            for _ in 0..u.int_in_range(0..=3)? {
                let name = (*u.choose(&NAMES)?).to_owned();
                members.insert(name, value(u, depth + 1)?);
            }
            members.into()
        }
    })
}
