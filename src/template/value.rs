//! Jinja values as Python prints them, and JSON as Jinja values.
//!
//! In: a value of the template engine. Out: `str(value)` and `repr(value)`. Never logs a read of a probe.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::limits::Exceeded;
use super::probe;

/// How deep containers may nest when they are printed or serialised: far above real data, far below the stack.
pub(crate) const MAX_DEPTH: usize = 128;

/// JSON as the engine sees it; objects keep their order.
pub(crate) fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => from_number(number),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        serde_json::Value::Object(members) => {
            Value::from_pairs(members.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}

fn from_number(number: &serde_json::Number) -> Value {
    if let Some(integer) = number.as_i64() {
        Value::from(integer)
    } else if let Some(integer) = number.as_u64() {
        Value::from(integer)
    } else {
        Value::from(number.as_f64().unwrap_or(f64::NAN))
    }
}

/// `str(value)`: strings as they are, undefined as nothing.
pub(crate) fn print(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.to_string()),
        _ => {
            let mut text = String::new();
            repr(&mut text, value, 0)?;
            Ok(text)
        }
    }
}

/// `repr(value)`, appended to `out`.
fn repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if let Some(plain) = probe::unrecorded(value) {
        return repr(out, &plain, depth);
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => quote(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                repr(out, &item, depth + 1)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                repr(out, &key, depth + 1)?;
                out.push_str(": ");
                repr(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// Containers that nest deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep() -> Error {
    let problem = format!("containers nest deeper than {MAX_DEPTH}");
    Error::new(ErrorKind::InvalidOperation, problem.clone()).with_source(Exceeded(problem))
}

/// A number as Python prints it.
pub(crate) fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// A float as Python's `repr` prints it: shortest digits, exponent below 1e-4 and from 1e16.
pub(crate) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A string as Python's `repr` quotes it.
fn quote(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ if is_printable(c) => out.push(c),
            _ => out.push_str(&match u32::from(c) {
                code @ 0..=0xff => format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable` for one character: not a control, format, surrogate, private, unassigned or space character.
///
/// Rust's own escaping follows the same categories; the letter before it keeps a combining mark bare.
fn is_printable(c: char) -> bool {
    let mut text = String::with_capacity(5);
    text.push('a');
    text.push(c);
    text.escape_debug().eq(text.chars())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[track_caller]
    fn check(json: serde_json::Value, expected: &str) {
        assert_eq!(print(&from_json(&json)).unwrap(), expected);
    }

    #[test]
    fn scalars_print_as_in_python() {
        check(serde_json::json!(null), "None");
        check(serde_json::json!(true), "True");
        check(serde_json::json!(12), "12");
        check(serde_json::json!("it's"), "it's");
        check(serde_json::json!(18446744073709551615u64), "18446744073709551615");
    }

    #[test]
    fn floats_print_as_in_python() {
        for (number, expected) in [
            (1.0, "1.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (-0.0, "-0.0"),
            (1e300, "1e+300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn containers_print_as_in_python() {
        check(
            serde_json::json!({"a": [1, "x", null, 1.0], "b": {"c": false}}),
            "{'a': [1, 'x', None, 1.0], 'b': {'c': False}}",
        );
        check(serde_json::json!(["it's", "\"", "'\"", "\\\n\t"]), r#"["it's", '"', '\'"', '\\\n\t']"#);
        check(serde_json::json!(["\u{7f}é\u{a0}\u{200b}\u{e000}😀e\u{301}"]), "['\\x7fé\\xa0\\u200b\\ue000😀e\u{301}']");
    }

    #[test]
    fn nesting_is_bounded() {
        let mut value = Value::from(1);
        for _ in 0..MAX_DEPTH + 2 {
            value = Value::from(vec![value]);
        }
        assert!(print(&value).is_err());
    }
}
