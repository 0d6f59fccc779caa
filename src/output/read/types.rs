//! Raw text and the types its schema allows -> JSON text.
//!
//! Only types decide. The rest of the schema is the business of `validate`.

use super::json_writer::quote;
use super::literal::{Json, json};
use crate::json_schema::{JsonType, TypeSet};

/// Whether a raw value is a string whatever its text, so that it can be given out before its end.
/// `said_string` is what the value's own markup says.
pub(super) fn is_text(types: Option<TypeSet>, said_string: Option<bool>) -> bool {
    match said_string {
        Some(true) => types.is_none_or(|types| types.has(TypeSet::STRING)),
        Some(false) => false,
        None => types == Some(TypeSet::STRING),
    }
}

/// A raw value as JSON text, and the code of what was wrong with it. There is room for so many
/// levels of nesting.
pub(super) fn typed(
    raw: &str,
    types: Option<TypeSet>,
    said_string: Option<bool>,
    room: usize,
) -> (String, Option<&'static str>) {
    let as_text = |note| {
        let mut text = String::with_capacity(raw.len() + 2);
        quote(raw, &mut text);
        (text, note)
    };
    if is_text(types, said_string) {
        return as_text(None);
    }
    let takes_strings = types.is_some_and(|types| types.has(TypeSet::STRING));
    let (text, json_type, python) = match json(raw, room) {
        Json::Value { text, json_type, python } => (text, json_type, python),
        Json::TooDeep => return as_text(Some("arguments_too_deep")),
        Json::No if takes_strings || types.is_none() && said_string.is_none() => {
            return as_text(None);
        }
        Json::No => return as_text(Some("arg_type_mismatch")),
    };
    let fits = types.is_none_or(|types| types.accepts(json_type));
    match (said_string, types) {
        (Some(true), _) => (text, Some("arg_coerced")),
        (None, None) if python => as_text(None),
        (None, Some(_)) if takes_strings && (python || !fits || json_type == JsonType::String) => {
            as_text(None)
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
    fn check(schema: Value, said_string: Option<bool>, raw: &str, want: &str, note: Option<&str>) {
        let whole = json!({"type": "object", "properties": {"a": schema}, "$defs": {"s": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}});
        let schema = ArgumentsSchema::new(Some(&whole));
        let types = schema.types(&schema.member(&schema.root(), "a").pointers);
        let got = typed(raw, types, said_string, 100);
        assert_eq!((got.0.as_str(), got.1), (want, note));
    }

    #[test]
    fn raw_text_takes_the_type_of_its_key() {
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
    fn what_the_markup_says_wins() {
        check(json!({"type": "integer"}), Some(true), "1", "1", Some("arg_coerced"));
        check(json!({"type": "integer"}), Some(true), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({}), Some(true), "1", "\"1\"", None);
        check(json!({"type": ["string", "integer"]}), Some(true), "1", "\"1\"", None);
        check(json!({"type": "integer"}), Some(false), "1", "1", None);
        check(json!({}), Some(false), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({"type": "string"}), Some(false), "one", "\"one\"", None);
    }
}
