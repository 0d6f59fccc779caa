//! Converts a raw value to JSON text, using the types that its schema allows.
//!
//! Only the types matter here. `validate` checks the rest of the schema.

use super::json_writer::quote;
use super::literal::{JsonText, parse_json};
use crate::json_schema::TypeSet;

/// Whether a raw value is certainly a string, so that it can be emitted before its end.
/// `marked_string` is the type that the value's own markup states.
pub(super) fn is_string(types: Option<TypeSet>, marked_string: Option<bool>) -> bool {
    match marked_string {
        Some(true) => types.is_none_or(|types| types.has(TypeSet::STRING)),
        Some(false) => false,
        None => types == Some(TypeSet::STRING),
    }
}

/// A raw value as JSON text, and the code of a fault. At most `max_depth` levels may be nested.
pub(super) fn typed_value(
    raw: &str,
    types: Option<TypeSet>,
    marked_string: Option<bool>,
    max_depth: usize,
) -> (String, Option<&'static str>) {
    let as_string = |note| {
        let mut text = String::with_capacity(raw.len() + 2);
        quote(raw, &mut text);
        (text, note)
    };
    if is_string(types, marked_string) {
        return as_string(None);
    }
    let may_be_string = types.is_some_and(|types| types.has(TypeSet::STRING));
    let (text, json_type, python) = match parse_json(raw, max_depth) {
        JsonText::Value { text, json_type, python } => (text, json_type, python),
        JsonText::TooDeep => return as_string(Some("arguments_too_deep")),
        JsonText::Invalid if may_be_string || types.is_none() && marked_string.is_none() => {
            return as_string(None);
        }
        JsonText::Invalid => return as_string(Some("arg_type_mismatch")),
    };
    let fits = types.is_none_or(|types| types.has(json_type));
    match (marked_string, types) {
        (Some(true), _) => (text, Some("arg_coerced")),
        (None, None) if python => as_string(None),
        (None, Some(_)) if may_be_string && (python || !fits || json_type == TypeSet::STRING) => {
            as_string(None)
        }
        _ if fits => (text, None),
        _ => (text, Some("arg_type_mismatch")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::json_schema::ArgumentsSchema;

    #[track_caller]
    fn check(
        schema: Value,
        marked_string: Option<bool>,
        raw: &str,
        want: &str,
        note: Option<&str>,
    ) {
        let whole = json!({"type": "object", "properties": {"a": schema}, "$defs": {"s": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}});
        let schema = ArgumentsSchema::new(Some(&whole));
        let types = schema.types(&schema.member(&schema.root(), "a").pointers);
        let got = typed_value(raw, types, marked_string, 100);
        assert_eq!((got.0.as_str(), got.1), (want, note));
    }

    #[test]
    fn raw_text_gets_the_type_of_its_key() {
        let mismatch = Some("arg_type_mismatch");
        check(json!({"type": "string"}), None, " 1 ", "\" 1 \"", None);
        check(json!({"type": "integer"}), None, " 1\n", "1", None);
        check(json!({"type": "integer"}), None, "1.0", "1.0", None);
        check(json!({"type": "integer"}), None, "abc", "\"abc\"", mismatch);
        check(json!({"type": "integer"}), None, "1.5", "1.5", mismatch);
        check(json!({"type": "boolean"}), None, "True", "true", None);
        check(json!({"type": "array"}), None, "['x', None]", "[\"x\", null]", None);
        check(json!({"type": ["string", "null"]}), None, "null", "null", None);
        check(json!({"type": ["string", "null"]}), None, "1", "\"1\"", None);
        check(json!({"type": "string", "nullable": true}), None, "null", "null", None);
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "object"}]}),
            None,
            "{\"a\": 1}",
            "{\"a\": 1}",
            None,
        );
        check(
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            None,
            "123 Main St",
            "\"123 Main St\"",
            None,
        );
        check(json!({"anyOf": [{"type": "string"}, {}]}), None, "1", "1", None);
        check(json!({}), None, "1.50", "1.50", None);
        check(json!({}), None, "None", "\"None\"", None);
        check(json!({"enum": ["1", "2"]}), None, "1", "\"1\"", None);
        check(json!({"const": 1}), None, "1", "1", None);
        check(json!({"$ref": "#/$defs/s"}), None, "1", "\"1\"", None);
        check(json!({"$ref": "#/$defs/loop"}), None, "1", "1", None);
        check(
            json!({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}),
            None,
            "1",
            "\"1\"",
            None,
        );
        check(json!({"type": "STRING"}), None, "1", "\"1\"", None);
    }

    #[test]
    fn the_type_in_the_markup_wins() {
        check(json!({"type": "integer"}), Some(true), "1", "1", Some("arg_coerced"));
        check(json!({"type": "integer"}), Some(true), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({}), Some(true), "1", "\"1\"", None);
        check(json!({"type": ["string", "integer"]}), Some(true), "1", "\"1\"", None);
        check(json!({"type": "integer"}), Some(false), "1", "1", None);
        check(json!({}), Some(false), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({"type": "string"}), Some(false), "one", "\"one\"", None);
    }
}
