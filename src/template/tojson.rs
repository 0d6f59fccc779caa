//! The `tojson` filter as transformers defines it: `json.dumps` without HTML escapes and with its keywords.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use super::value;

/// How the text is laid out: `json.dumps`' keyword arguments of the same names.
#[derive(Debug, Clone)]
struct Layout {
    ensure_ascii: bool,
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`, also positional.
pub(crate) fn filter(value: &Value, positional: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = match positional.get(index) {
            Some(given) => Some(given.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|given| !given.is_none() && !given.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|flag| flag.is_true());
    let indent = argument(1, "indent")?.map(indent_text).transpose()?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|flag| flag.is_true());
    kwargs.assert_all_used()?;
    let (between_items, after_key) = match separators {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let layout = Layout { ensure_ascii, indent, between_items, after_key, sort_keys };
    let mut text = String::new();
    write(&mut text, value, &layout, 0)?;
    Ok(Value::from(text))
}

/// Compact JSON in Python's default layout; also how a whole value is marked as read by a probe.
pub(crate) fn plain(value: &Value) -> Result<String, Error> {
    filter(value, Rest(Vec::new()), Kwargs::from_iter(std::iter::empty::<(String, Value)>())).map(|text| text.to_string())
}

fn indent_text(indent: Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_owned());
    }
    let width = i64::try_from(indent)?;
    // A width beyond any sensible layout is only good for filling the memory.
    Ok(" ".repeat(usize::try_from(width.clamp(0, 64)).unwrap_or(0)))
}

fn write(out: &mut String, value: &Value, layout: &Layout, depth: usize) -> Result<(), Error> {
    if depth > value::MAX_DEPTH {
        return Err(value::too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => string(out, value.as_str().unwrap_or_default(), layout.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut empty = true;
            out.push('[');
            for item in value.try_iter()? {
                separate(out, layout, depth, empty);
                empty = false;
                write(out, &item, layout, depth + 1)?;
            }
            close(out, layout, depth, empty, ']');
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if layout.sort_keys {
                keys.sort();
            }
            out.push('{');
            for (index, key) in keys.iter().enumerate() {
                separate(out, layout, depth, index == 0);
                string(out, &key_text(key)?, layout.ensure_ascii);
                out.push_str(&layout.after_key);
                write(out, &value.get_item(key)?, layout, depth + 1)?;
            }
            close(out, layout, depth, keys.is_empty(), '}');
        }
        ValueKind::Undefined => {
            return Err(Error::new(ErrorKind::UndefinedError, "undefined is not JSON serializable"));
        }
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} is not JSON serializable"))),
    }
    Ok(())
}

fn separate(out: &mut String, layout: &Layout, depth: usize, first: bool) {
    if !first {
        out.push_str(&layout.between_items);
    }
    new_line(out, layout, depth + 1);
}

fn close(out: &mut String, layout: &Layout, depth: usize, empty: bool, bracket: char) {
    if !empty {
        new_line(out, layout, depth);
    }
    out.push(bracket);
}

fn new_line(out: &mut String, layout: &Layout, depth: usize) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn number(value: &Value) -> String {
    let text = value::number(value);
    match text.as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        _ => text,
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.to_string()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => Ok(number(key)),
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("a JSON object has no keys of kind {kind}"))),
    }
}

fn string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ if ensure_ascii && c > '~' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use minijinja::{Environment, context};

    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &str) {
        let mut env = Environment::new();
        env.add_filter("tojson", filter);
        let v = value::from_json(
            &serde_json::json!({"b": [1, 1.0, null, true], "a": {"x": "<é & '\"\n\u{1}😀>"}, "e": [], "f": {}}),
        );
        let text = env.render_str(&format!("{{{{ {expression} }}}}"), context! { v }).unwrap();
        assert_eq!(text, expected);
    }

    #[test]
    fn layouts() {
        check("v|tojson", "{\"b\": [1, 1.0, null, true], \"a\": {\"x\": \"<é & '\\\"\\n\\u0001😀>\"}, \"e\": [], \"f\": {}}");
        check("v.b|tojson(separators=(',', ':'))", "[1,1.0,null,true]");
        check(
            "{'k': v.b, 'e': v.e}|tojson(indent=2)",
            "{\n  \"k\": [\n    1,\n    1.0,\n    null,\n    true\n  ],\n  \"e\": []\n}",
        );
        check("[1]|tojson(indent=0)", "[\n1\n]");
        check("[1]|tojson(indent='\t')", "[\n\t1\n]");
        check("v.a|tojson(ensure_ascii=true)", "{\"x\": \"<\\u00e9 & '\\\"\\n\\u0001\\ud83d\\ude00>\"}");
        check("{'b': 1, 'a': 2}|tojson(sort_keys=true)", "{\"a\": 2, \"b\": 1}");
        check("{1: 2, none: 3, true: 4}|tojson", "{\"1\": 2, \"null\": 3, \"true\": 4}");
        check("(1, 2)|tojson", "[1, 2]");
        check("1|tojson + 'x'", "1x");
    }

    #[test]
    fn undefined_is_refused() {
        let mut env = Environment::new();
        env.add_filter("tojson", filter);
        assert!(env.render_str("{{ nothing|tojson }}", ()).is_err());
    }
}
