//! The filter `tojson` of transformers: `json.dumps` and its keyword arguments, without HTML
//! escapes.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::literals::QuotedPart;
use crate::jinja::value::arguments::Args;
use crate::jinja::value::compare::{MAX_DEPTH, too_deep};
use crate::jinja::value::print::{self, push_part};
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Object, Value, compare, number, sequence};

/// The layout, from keyword arguments of `json.dumps`.
struct Layout {
    ensure_ascii: bool,
    indent: Option<Text>,
    between_items: Text,
    after_key: Text,
    sort_keys: bool,
}

/// `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(crate) fn filter(budget: &Rc<Budget>, value: &Value, args: Args) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        args.optional("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let not_none = |value: Option<Value>| value.filter(|value| !value.is_none());
    let indent = match not_none(indent) {
        None => None,
        Some(Value::Text(text)) => Some(text),
        Some(width) => {
            let width = width
                .as_int()
                .ok_or_else(|| TemplateError::value("indent is neither a number nor a string"))?;
            let width = usize::try_from(width).unwrap_or(0);
            Some(Text::fill(budget, ' ', width)?)
        }
    };
    let (between_items, after_key) = match not_none(separators) {
        Some(pair) => {
            let pair = sequence::items(budget, &pair)?;
            match pair.as_slice() {
                [Value::Text(items), Value::Text(keys)] => (items.clone(), keys.clone()),
                _ => return type_error("separators is not a pair of strings"),
            }
        }
        None => {
            let between = if indent.is_some() { "," } else { ", " };
            (Text::plain(budget, between)?, Text::plain(budget, ": ")?)
        }
    };
    let layout = Layout {
        ensure_ascii: ensure_ascii.is_some_and(|flag| flag.is_true()),
        indent,
        between_items,
        after_key,
        sort_keys: sort_keys.is_some_and(|flag| flag.is_true()),
    };
    let mut out = TextBuilder::new(budget);
    write(&mut out, budget, value, &layout, 0)?;
    Ok(Value::Text(out.finish()?))
}

fn write(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    layout: &Layout,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    match value {
        Value::None => out.push("null"),
        Value::Bool(flag) => out.push(if *flag { "true" } else { "false" }),
        Value::Int(number, origin) => out.push_from(&number.to_string(), *origin),
        Value::Big(number) => out.push_from(&number::digits(number)?, value.number_origin()),
        Value::Float(number, origin) => out.push_from(&float(*number), *origin),
        Value::Text(text) => string(out, text, layout.ensure_ascii),
        Value::List(list) | Value::Tuple(list) => {
            let items = list.items();
            out.push("[")?;
            for (index, item) in items.iter().enumerate() {
                separate(out, layout, depth, index == 0)?;
                write(out, budget, item, layout, depth + 1)?;
            }
            close(out, layout, depth, items.is_empty())?;
            out.push("]")
        }
        Value::Dict(dict) => {
            let entries = dict.entries();
            out.push("{")?;
            let mut member = |index: usize, (key, value): &(Value, Value)| {
                separate(out, layout, depth, index == 0)?;
                string(out, &key_text(budget, key)?, layout.ensure_ascii)?;
                out.push_text(&layout.after_key)?;
                write(out, budget, value, layout, depth + 1)
            };
            if layout.sort_keys {
                let sorted = compare::sorted(entries.iter().collect(), |(a, _), (b, _)| {
                    compare::less(budget, a, b)
                })?;
                sorted
                    .into_iter()
                    .enumerate()
                    .try_for_each(|(index, entry)| member(index, entry))?;
            } else {
                entries.iter().enumerate().try_for_each(|(index, entry)| member(index, entry))?;
            }
            close(out, layout, depth, entries.is_empty())?;
            out.push("}")
        }
        // Python cannot serialize a generator. Templates written for other engines expect a list.
        Value::Object(object) if let Object::Generator(generator) = &**object => {
            let items = Value::list(budget, generator.remaining())?;
            write(out, budget, &items, layout, depth)
        }
        other => {
            type_error(format!("Object of type {} is not JSON serializable", other.type_name()))
        }
    }
}

fn separate(out: &mut TextBuilder, layout: &Layout, depth: usize, first: bool) -> Result<()> {
    if !first {
        out.push_text(&layout.between_items)?;
    }
    new_line(out, layout, depth + 1)
}

fn close(out: &mut TextBuilder, layout: &Layout, depth: usize, empty: bool) -> Result<()> {
    if empty { Ok(()) } else { new_line(out, layout, depth) }
}

fn new_line(out: &mut TextBuilder, layout: &Layout, depth: usize) -> Result<()> {
    if let Some(indent) = &layout.indent {
        out.push("\n")?;
        for _ in 0..depth {
            out.push_text(indent)?;
        }
    }
    Ok(())
}

fn float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        number::float(number)
    }
}

fn key_text(budget: &Rc<Budget>, key: &Value) -> Result<Text> {
    match key {
        Value::Text(text) => Ok(text.clone()),
        Value::None => Text::plain(budget, "null"),
        Value::Bool(flag) => Text::plain(budget, if *flag { "true" } else { "false" }),
        Value::Int(..) | Value::Big(_) => print::text(budget, key),
        Value::Float(number, origin) => Text::with_origin(budget, &float(*number), *origin),
        other => type_error(format!(
            "keys must be str, int, float, bool or None, not {}",
            other.type_name()
        )),
    }
}

fn string(out: &mut TextBuilder, text: &Text, ensure_ascii: bool) -> Result<()> {
    out.push("\"")?;
    let mut done = 0;
    while let Some((at, c)) = next_escaped(text, done, ensure_ascii) {
        let escaped = match c {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\u{8}' => "\\b".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\0'..='\u{1f}' => format!("\\u{:04x}", u32::from(c)),
            _ => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        };
        push_part(out, text, QuotedPart::Verbatim(done..at))?;
        push_part(out, text, QuotedPart::Escaped(&escaped, at))?;
        done = at + c.len_utf8();
    }
    if done == 0 {
        out.push_text(text)?;
    } else {
        push_part(out, text, QuotedPart::Verbatim(done..text.len()))?;
    }
    out.push("\"")
}

/// The next character from byte `from` on that JSON escapes.
fn next_escaped(text: &str, from: usize, ensure_ascii: bool) -> Option<(usize, char)> {
    let last = if ensure_ascii { b'~' } else { u8::MAX };
    let is_escaped = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\' || *byte > last;
    let at = from + text.as_bytes()[from..].iter().position(is_escaped)?;
    Some((at, text[at..].chars().next()?))
}
