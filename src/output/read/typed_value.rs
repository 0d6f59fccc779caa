//! Raw values -> JSON text, using the types that the schema allows; and where strings begin and end
//! in a raw value. Digits stay as written.
//!
//! Only the types matter here. `validate` checks the rest of the schema.

use super::json_scanner::{ScanEvent, Scanner};
use super::json_word::without_leading_zeros;
use super::json_writer::{MAX_DEPTH, quoted};
use crate::json_schema::TypeSet;

/// Where a reader is in a raw value in the notation of JSON or Python. A string has its quote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum JsonString {
    #[default]
    Outside,
    Inside(char),
    Escape(char),
}

impl JsonString {
    /// Where the reader is after this character. A string has no line break.
    pub(super) fn after(self, c: char) -> JsonString {
        match (self, c) {
            (_, '\n') => JsonString::Outside,
            (JsonString::Outside, '"' | '\'') => JsonString::Inside(c),
            (JsonString::Inside(quote), _) if c == quote => JsonString::Outside,
            (JsonString::Inside(quote), '\\') => JsonString::Escape(quote),
            (JsonString::Escape(quote), _) => JsonString::Inside(quote),
            (state, _) => state,
        }
    }
}

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
    let as_string = |note| (quoted(raw), note);
    if is_string(types, marked_string) {
        return as_string(None);
    }
    let may_be_string = types.is_some_and(|types| types.has(TypeSet::STRING));
    let is_number = types.is_some_and(|types| types.has(TypeSet::INTEGER));
    if let Some(number) = without_leading_zeros(raw.trim()) {
        // Without a type, the zeros belong to a text, such as a code.
        return match is_number && !may_be_string {
            true => (number, Some("arg_coerced")),
            false => as_string(None),
        };
    }
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
        (Some(true), _) if fits => (text, Some("arg_coerced")),
        (Some(true), _) => as_string(Some("arg_type_mismatch")),
        (None, None) if python => as_string(None),
        (None, Some(_)) if may_be_string && (python || !fits || json_type == TypeSet::STRING) => {
            as_string(None)
        }
        _ if fits => (text, None),
        (Some(false), Some(_)) if may_be_string => as_string(Some("arg_coerced")),
        _ => (text, Some("arg_type_mismatch")),
    }
}

/// The JSON text of the value that a string spells, if the types exclude strings and have its type.
pub(crate) fn text_as(types: TypeSet, text: &str) -> Option<String> {
    let (value, code) = typed_value(text, Some(types), Some(true), MAX_DEPTH);
    (code == Some("arg_coerced")).then_some(value)
}

/// The JSON text of an object in JSON's or Python's notation.
pub(crate) fn object_text(text: &str) -> Option<String> {
    match parse_json(text, MAX_DEPTH) {
        JsonText::Value { text, json_type: TypeSet::OBJECT, .. } => Some(text),
        _ => None,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum JsonText {
    /// A value, without surrounding whitespace and with Python's notation rewritten.
    Value {
        text: String,
        json_type: TypeSet,
        python: bool,
    },
    /// A value that is nested too deeply.
    TooDeep,
    Invalid,
}

/// Reads a whole text as one JSON value. `True`, `False`, `None` and single quotes are accepted
/// too. At most `max_depth` levels may be nested.
fn parse_json(text: &str, max_depth: usize) -> JsonText {
    let text = text.trim();
    let mut scanner = Scanner::default();
    let mut written = String::with_capacity(text.len());
    let mut begun = false;
    for c in text.chars() {
        if scanner.ends_word(c) {
            scanner.close_word(&mut written);
        }
        // The scanner accepts commas between values at the top level.
        if c == ',' && scanner.depth() == 0 && !scanner.in_string() {
            return JsonText::Invalid;
        }
        begun |= !matches!(scanner.step(c, &mut written), ScanEvent::None);
        if scanner.depth() > max_depth {
            return JsonText::TooDeep;
        }
        if scanner.faults().any() {
            return JsonText::Invalid;
        }
    }
    scanner.close_word(&mut written);
    if !begun || scanner.faults().any() || scanner.in_string() || scanner.depth() > 0 {
        return JsonText::Invalid;
    }
    let json_type = match written.as_bytes() {
        [b'"', ..] => TypeSet::STRING,
        [b'{', ..] => TypeSet::OBJECT,
        [b'[', ..] => TypeSet::ARRAY,
        [b't' | b'f', ..] => TypeSet::BOOLEAN,
        [b'n', ..] => TypeSet::NULL,
        _ if is_whole(&written) => TypeSet::INTEGER,
        _ => TypeSet::FRACTION,
    };
    JsonText::Value { text: written, json_type, python: scanner.faults().python }
}

/// Whether a JSON number has no fraction.
fn is_whole(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return true;
    }
    number.parse::<f64>().is_ok_and(|value| value.is_finite() && value.fract() == 0.0)
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
        let types = schema.types(&schema.parameter("a").pointers);
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
        check(json!({"type": "integer"}), Some(true), "[1]", "\"[1]\"", Some("arg_type_mismatch"));
        check(json!({}), Some(true), "1", "\"1\"", None);
        check(json!({"type": ["string", "integer"]}), Some(true), "1", "\"1\"", None);
        check(json!({"type": "integer"}), Some(false), "1", "1", None);
        check(json!({}), Some(false), "one", "\"one\"", Some("arg_type_mismatch"));
        check(json!({"type": "string"}), Some(false), "one", "\"one\"", None);
        check(json!({"type": "string"}), Some(false), "01.50", "\"01.50\"", None);
        check(json!({"type": "string"}), Some(false), "1.50", "\"1.50\"", Some("arg_coerced"));
        check(json!({"type": "string"}), Some(false), "\"1\"", "\"1\"", None);
        check(json!({"type": ["string", "null"]}), Some(false), "null", "null", None);
    }

    #[test]
    fn texts_as_json() {
        for (text, want) in [
            (" 1.50 ", Some("1.50")),
            ("12345678901234567890123456789", Some("12345678901234567890123456789")),
            ("{'a': [True, None]}", Some("{\"a\": [true, null]}")),
            ("\"x\"", Some("\"x\"")),
            ("", None),
            ("1,", None),
            ("1 2", None),
            ("{\"a\": 1", None),
            ("[1,]", None),
            ("hello", None),
            ("\"open", None),
            ("\"a\nb\"", None),
        ] {
            let got = match parse_json(text, 100) {
                JsonText::Value { text, .. } => Some(text),
                _ => None,
            };
            assert_eq!(got.as_deref(), want, "{text}");
        }
        assert_eq!(parse_json("[[[1]]]", 2), JsonText::TooDeep);
    }
}
