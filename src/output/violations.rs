//! Arguments and the schema of their tool -> where the two do not agree.
//!
//! Only what is said in the schema itself, without references and combinations: a doubt is no violation.

use serde_json::Value;

/// More would say nothing new.
const MAX: usize = 8;
/// Levels that are looked at.
const LEVELS: usize = 32;

/// Each as `path: keyword` and a few words.
pub(super) fn of(arguments: &str, schema: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    if let Ok(value) = serde_json::from_str(arguments) {
        check(&value, schema, "", LEVELS, &mut violations);
    }
    violations
}

fn check(value: &Value, schema: &Value, path: &str, levels: usize, out: &mut Vec<String>) {
    if levels == 0 || out.len() >= MAX {
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let nullable = value.is_null() && schema["nullable"] == true;
    if !types.is_empty() && !nullable && !types.iter().any(|name| is_of(value, name)) {
        return out.push(format!("{path}: type: expected {}", types.join(" or ")));
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return out.push(format!("{path}: enum: not one of the listed values"));
    }
    match value {
        Value::Object(members) => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for key in required.filter(|key| !members.contains_key(*key)).take(MAX) {
                out.push(format!("{path}/{key}: required: missing"));
            }
            for (key, member) in members {
                match schema["properties"].get(key) {
                    Some(schema) => check(member, schema, &format!("{path}/{key}"), levels - 1, out),
                    None if schema["additionalProperties"] == false && schema.get("patternProperties").is_none() => {
                        out.push(format!("{path}/{key}: additionalProperties: not in the schema"));
                    }
                    None => {}
                }
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for (index, item) in items.iter().enumerate() {
                check(item, &schema["items"], &format!("{path}/{index}"), levels - 1, out);
            }
        }
        _ => {}
    }
}

/// Names of types that JSON Schema does not know are no doubt meant in some way.
fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_and_keywords() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "l": { "type": "array", "items": { "enum": ["x", "y"] } } },
            "required": ["a"],
            "additionalProperties": false,
        });
        for (arguments, want) in [
            ("{\"a\": 1.0, \"l\": [\"x\"]}", &[][..]),
            ("{}", &["/a: required"]),
            ("{\"a\": \"1\", \"l\": [\"x\", \"z\"], \"b\": 1}", &["/a: type", "/l/1: enum", "/b: additionalProperties"]),
            ("[]", &[": type"]),
            ("broken", &[]),
        ] {
            let got = of(arguments, &schema);
            assert_eq!(got.len(), want.len(), "{arguments}: {got:?}");
            assert!(got.iter().zip(want).all(|(got, want)| got.starts_with(want)), "{arguments}: {got:?}");
        }
        assert!(of("{\"a\": null}", &json!({ "type": ["object"], "properties": { "a": { "$ref": "#/x" } } })).is_empty());
    }
}
