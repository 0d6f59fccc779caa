//! Verbatim text, up to its closing tag.

use serde_json::Value;

use super::lark::{Lark, Symbol, escaped, literal};
use super::schema::SchemaReport;
use super::shape::{StringShape, ValueShape};
use crate::error::Result;

/// The reason for refusing a union of types.
pub(super) const MIXED: &str = "a union of constrained strings and other types cannot be enforced";

/// The symbols for a text of this schema and its closing tag. The text never contains the tag, with
/// or without the whitespace around the tag.
pub(super) fn closed_text(lark: &mut Lark, text: &StringShape, close: &str) -> Vec<Symbol> {
    text_or_values(lark, text, &[], close, close)
}

/// The symbols for a text without `forbidden`, or one of these other values, and the closing tag. A
/// text that ends at a tag must be one terminal, and no other terminal may begin like it.
pub(super) fn text_or_values(
    lark: &mut Lark,
    text: &StringShape,
    others: &[String],
    forbidden: &str,
    close: &str,
) -> Vec<Symbol> {
    let forbidden = if forbidden.trim().is_empty() { forbidden } else { forbidden.trim() };
    let body = format!("{} & ~/(?s:.*){}(?s:.*)/", text.terminal("."), escaped(forbidden));
    let body = format!("({})", [&[body], others].concat().join(" | "));
    let mut rest = lark.symbols(close);
    let Some(Symbol::Text(first)) = rest.first().cloned() else {
        return [vec![lark.terminal(&body)], rest].concat();
    };
    rest.remove(0);
    let tag_end = first.trim_end().len();
    if tag_end == 0 && !rest.is_empty() {
        // The closing tag is whitespace followed by a special token, which ends the text.
        let body = format!("{body} {}", literal(&first));
        return [vec![lark.terminal(&body)], rest].concat();
    }
    let (ending, after) = first.split_at(if tag_end == 0 { first.len() } else { tag_end });
    let body = format!("{body} {}", literal(ending));
    [vec![lark.lazy(&body), Symbol::Text(after.to_owned())], rest].concat()
}

/// The symbols for a text without escapes in quotes that it does not contain.
pub(super) fn quoted(lark: &mut Lark, text: &StringShape, quote: &str) -> Vec<Symbol> {
    [lark.symbols(quote), closed_text(lark, text, quote)].concat()
}

/// The symbols for exactly this text and its closing tag. None if the text contains the tag.
pub(super) fn constant(lark: &Lark, text: &str, close: &str) -> Option<Vec<Symbol>> {
    let tag = close.trim();
    if !tag.is_empty() && text.contains(tag) {
        return None;
    }
    Some([vec![Symbol::Text(text.to_owned())], lark.symbols(close)].concat())
}

/// The terminal for a shape; None for arrays, objects and numbers with bounds.
fn terminal_of(shape: &ValueShape) -> Option<String> {
    match shape {
        ValueShape::Null => Some(r#""null""#.to_owned()),
        ValueShape::Boolean => Some(r#""true" | "false""#.to_owned()),
        ValueShape::Constant(value) if !value.is_array() && !value.is_object() => {
            Some(match value {
                Value::String(text) => literal(text),
                value => literal(&value.to_string()),
            })
        }
        ValueShape::Number(schema)
            if schema.as_object().is_some_and(|schema| schema.len() == 1) =>
        {
            Some(match schema["type"] == "integer" {
                true => r"/-?(0|[1-9][0-9]*)/".to_owned(),
                false => r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/".to_owned(),
            })
        }
        _ => None,
    }
}

/// The alternative for a union of a constrained text and other shapes; None for other unions. If a
/// terminal cannot express the union, it is refused, and any text is allowed instead.
pub(super) fn union(
    lark: &mut Lark,
    shapes: &mut Vec<ValueShape>,
    at: &str,
    report: &mut SchemaReport,
    forbidden: &str,
    close: &str,
) -> Result<Option<Vec<Symbol>>> {
    match text_and_values(shapes) {
        Ok(None) => Ok(None),
        Ok(Some((text, others))) => {
            Ok(Some(text_or_values(lark, &text, &others, forbidden, close)))
        }
        Err(()) => {
            report.refuse_in_encoding(at, "type", MIXED)?;
            *shapes = vec![ValueShape::String(StringShape::default())];
            Ok(None)
        }
    }
}

/// Splits a union into a constrained text and terminals for the other shapes. None unless the union
/// has both. `Err` if it has two constrained texts, or a shape that no terminal can express.
fn text_and_values(shapes: &[ValueShape]) -> Result<Option<(StringShape, Vec<String>)>, ()> {
    let is_constrained =
        |shape: &&ValueShape| matches!(shape, ValueShape::String(text) if !text.is_free());
    let constrained: Vec<_> = shapes.iter().filter(is_constrained).collect();
    if constrained.is_empty()
        || constrained.len() == shapes.len()
        || shapes.iter().any(ValueShape::is_free_text)
    {
        return Ok(None);
    }
    let ([ValueShape::String(text)], others) =
        (constrained.as_slice(), shapes.iter().filter(|shape| !is_constrained(shape)))
    else {
        return Err(());
    };
    let others = others.map(terminal_of).collect::<Option<Vec<_>>>().ok_or(())?;
    Ok(Some((text.clone(), others)))
}
