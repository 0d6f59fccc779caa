//! The filter `tojson` of transformers: Python's `json.dumps`, without HTML escapes.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The arguments of `json.dumps`.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    between_items: String,
    after_key: String,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(crate) fn tojson(
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let option = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        let given = positional.get(index).cloned().or(named.get(name)?);
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let switch =
        |index, name| option(index, name).map(|value| value.is_some_and(|value| value.is_true()));
    let (ensure_ascii, sort_keys) = (switch(0, "ensure_ascii")?, switch(3, "sort_keys")?);
    let indent = match option(1, "indent")? {
        Some(text) if text.as_str().is_some() => text.as_str().map(str::to_owned),
        Some(spaces) => Some(" ".repeat(usize::try_from(i64::try_from(spaces)?).unwrap_or(0))),
        None => None,
    };
    let (between_items, after_key) = match option(2, "separators")? {
        Some(pair) => {
            (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())
        }
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    named.assert_all_used()?;
    let style = Style { ensure_ascii, indent, between_items, after_key, sort_keys };
    let mut out = String::new();
    style.write(&mut out, value, 0)?;
    Ok(Value::from(out))
}

impl Style {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            // The sum of two lists is an iterable.
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(out, ['[', ']'], depth, &items, |out, item| {
                    self.write(out, item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.list(out, ['{', '}'], depth, &keys, |out, key| {
                    match key.as_str() {
                        Some(key) => self.string(out, key),
                        None => {
                            let mut text = String::new();
                            self.write(&mut text, key, 0)?;
                            self.string(out, &text);
                        }
                    }
                    out.push_str(&self.after_key);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            other => {
                let message = format!("Object of type {other} is not JSON serializable");
                return Err(Error::new(ErrorKind::BadSerialization, message));
            }
        }
        Ok(())
    }

    fn list(
        &self,
        out: &mut String,
        [open, close]: [char; 2],
        depth: usize,
        items: &[Value],
        mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let new_line = |out: &mut String, depth: usize| {
            if let Some(indent) = &self.indent {
                out.push('\n');
                out.push_str(&indent.repeat(depth));
            }
        };
        out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.between_items);
            }
            new_line(out, depth + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            new_line(out, depth);
        }
        out.push(close);
        Ok(())
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                _ if char < ' ' || (self.ensure_ascii && char > '~') => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                _ => out.push(char),
            }
        }
        out.push('"');
    }
}

/// Python's `repr` of a float: Rust's digits, Python's exponent.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            format!("{digits}e{:+03}", exponent.parse::<i32>().unwrap_or_default())
        }
        None => text,
    }
}
