//! `str(value)` and `repr(value)`.

use std::fmt;
use std::rc::Rc;

use super::compare::{MAX_DEPTH, too_deep};
use super::text::{Text, TextBuilder};
use super::{Object, Value, number};
use crate::jinja::budget::Budget;
use crate::jinja::error::Result;
use crate::jinja::literals::{QuotedPart, quote, quoted_string};

/// `str(value)`. Undefined is empty. Spends the steps for reading a text.
pub(crate) fn text(budget: &Rc<Budget>, value: &Value) -> Result<Text> {
    match value {
        Value::Text(text) => {
            budget.read(text.len())?;
            Ok(text.clone())
        }
        _ => {
            let mut out = TextBuilder::new(budget);
            write(&mut out, budget, value)?;
            out.finish()
        }
    }
}

/// Appends `str(value)`.
pub(crate) fn write(out: &mut TextBuilder, budget: &Rc<Budget>, value: &Value) -> Result<()> {
    match value {
        Value::Text(text) => out.push_text(text),
        Value::Undefined(_) => Ok(()),
        Value::Int(number, origin) => out.push_from(&number.to_string(), *origin),
        _ => repr(out, budget, value, 0),
    }
}

/// Appends `repr(value)`.
pub(crate) fn repr(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    value: &Value,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    budget.step(1)?;
    match value {
        Value::Undefined(_) => out.push("Undefined"),
        Value::None => out.push("None"),
        Value::Bool(flag) => out.push(if *flag { "True" } else { "False" }),
        Value::Int(number, origin) => out.push_from(&number.to_string(), *origin),
        Value::Big(number) => out.push_from(&number::digits(number)?, value.number_origin()),
        Value::Float(number, origin) => out.push_from(&number::float(*number), *origin),
        Value::Text(text) if text.is_safe() => {
            out.push("Markup(")?;
            quoted(out, text)?;
            out.push(")")
        }
        Value::Text(text) => quoted(out, text),
        Value::List(list) => {
            out.push("[")?;
            items(out, budget, &list.unlogged(), depth)?;
            out.push("]")
        }
        Value::Tuple(list) => {
            out.push("(")?;
            items(out, budget, &list.unlogged(), depth)?;
            out.push(if list.len() == 1 { ",)" } else { ")" })
        }
        Value::Dict(dict) => {
            let entries = dict.unlogged().iter().map(|(key, value)| (key, value));
            members(out, budget, entries, depth)
        }
        Value::Range(range) => {
            let mut text = format!("range({}, {}", range.start, range.stop);
            if range.step != 1 {
                text.push_str(&format!(", {}", range.step));
            }
            out.push(&text)?;
            out.push(")")
        }
        Value::Namespace(namespace) => {
            out.push("<Namespace ")?;
            let attributes = namespace.attributes().clone();
            let attributes: Vec<(Value, Value)> =
                attributes.into_iter().map(|(name, value)| (Value::Text(name), value)).collect();
            members(out, budget, attributes.iter().map(|(key, value)| (key, value)), depth)?;
            out.push(">")
        }
        Value::Object(object) => match &**object {
            Object::View { kind, items: values, .. } => {
                out.push(kind.type_name())?;
                out.push("([")?;
                items(out, budget, values, depth)?;
                out.push("])")
            }
            object => out.push(&object.describe()),
        },
    }
}

fn items(out: &mut TextBuilder, budget: &Rc<Budget>, items: &[Value], depth: usize) -> Result<()> {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        repr(out, budget, item, depth + 1)?;
    }
    Ok(())
}

fn members<'a>(
    out: &mut TextBuilder,
    budget: &Rc<Budget>,
    entries: impl Iterator<Item = (&'a Value, &'a Value)>,
    depth: usize,
) -> Result<()> {
    out.push("{")?;
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            out.push(", ")?;
        }
        repr(out, budget, key, depth + 1)?;
        out.push(": ")?;
        repr(out, budget, value, depth + 1)?;
    }
    out.push("}")
}

/// Appends a quoted part. Each byte keeps its origin.
pub(crate) fn push_part(out: &mut TextBuilder, text: &Text, piece: QuotedPart<'_>) -> Result<()> {
    match piece {
        QuotedPart::Added(added) => out.push(added),
        QuotedPart::Verbatim(range) => out.push_text(&text.slice(range)),
        QuotedPart::Escaped(escaped, at) => out.push_from(escaped, text.origin_at(at)),
    }
}

fn quoted(out: &mut TextBuilder, text: &Text) -> Result<()> {
    quote(text, &mut |piece| push_part(out, text, piece))
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number, _) => write!(f, "{number}"),
            Value::Text(text) => {
                f.write_str(&quoted_string(&text.chars().take(60).collect::<String>()))
            }
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Float(number, _) => f.write_str(&number::float(*number)),
            other => write!(f, "<{}>", other.type_name()),
        }
    }
}
