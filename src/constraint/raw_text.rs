//! Verbatim text, up to its closing tag.

use regex_automata::nfa::thompson::pikevm::PikeVM;
use serde_json::Value;

use super::lark::{Lark, Symbol, escaped, literal};
use super::schema::SchemaReport;
use super::shape::{StringShape, ValueShape};
use crate::error::Result;
use crate::output::expressible::ValueEnds;

/// The reason for refusing a union of types.
pub(super) const MIXED: &str = "a union of constrained strings and other types cannot be enforced";

/// The symbols for a text of this schema and its closing tag. The text never contains the tag, with
/// or without the whitespace around the tag.
pub(super) fn closed_text(lark: &mut Lark, text: &StringShape, close: &str) -> Vec<Symbol> {
    text_or_values(lark, text, &[], &Excluded::text(close), close)
}

/// What a text does not have, as regular expressions.
#[derive(Debug, Clone)]
pub(super) struct Excluded {
    /// What is nowhere in the text.
    pub(super) nowhere: String,
    /// What the text does not begin with.
    pub(super) not_first: Option<String>,
}

impl Excluded {
    /// This text, with or without the whitespace around it.
    pub(super) fn text(text: &str) -> Excluded {
        let text = if text.trim().is_empty() { text } else { text.trim() };
        Excluded { nowhere: escaped(text), not_first: None }
    }

    /// Whether a text has nothing of it.
    pub(super) fn is_absent_from(&self, text: &str) -> bool {
        let first = self.not_first.iter().map(|first| format!("^({first})"));
        let mut all = first.chain([self.nowhere.clone()]);
        all.all(|excluded| match PikeVM::new(&excluded) {
            Ok(pattern) => !pattern.is_match(&mut pattern.create_cache(), text),
            Err(_) => false,
        })
    }
}

/// The symbols for a text without what is excluded, or one of these other values, and the closing
/// tag. A text that ends at a tag must be one terminal, and no other terminal may begin like it.
pub(super) fn text_or_values(
    lark: &mut Lark,
    text: &StringShape,
    others: &[String],
    excluded: &Excluded,
    close: &str,
) -> Vec<Symbol> {
    let mut body = format!("{} & ~/(?s:.*)({})(?s:.*)/", text.terminal("."), excluded.nowhere);
    if let Some(first) = &excluded.not_first {
        body.push_str(&format!(" & ~/({first})(?s:.*)/"));
    }
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

/// The symbols for exactly this text and its closing tag. None if the text has what is excluded.
pub(super) fn constant(
    lark: &Lark,
    text: &str,
    excluded: &Excluded,
    close: &str,
) -> Option<Vec<Symbol>> {
    let is_possible = excluded.is_absent_from(text);
    is_possible.then(|| [vec![Symbol::Text(text.to_owned())], lark.symbols(close)].concat())
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

/// A raw value: a text of this schema, or one of these other terminals.
#[derive(Debug, Clone, Default)]
pub(super) struct RawValue {
    pub(super) text: StringShape,
    pub(super) others: Vec<String>,
}

/// The symbols for a raw value and the text after it, up to a place where the value has certainly
/// ended. `next` begins with the end tag. Its first `certain` bytes decide that the value ends. The
/// value does not have the character `never`.
pub(super) fn ended(
    lark: &mut Lark,
    value: &RawValue,
    ends: &ValueEnds,
    never: Option<char>,
    next: &[Symbol],
    certain: usize,
) -> Vec<Symbol> {
    let body = [&[value.text.terminal(".")], value.others.as_slice()].concat();
    let body = body.iter().map(|body| format!("({body})")).collect::<Vec<_>>().join(" | ");
    let body = match never {
        Some(never) => format!("({body}) & /[^{never}]*/"),
        None => body,
    };
    let ends_pattern = ends_pattern(ends);
    let first = escaped(ends.never_first());
    let mut rest = next.to_vec();
    let text = match rest.first_mut() {
        Some(Symbol::Text(text)) if certain > 0 && text.len() >= certain => {
            let after = text.split_off(text[..certain].trim_end().len());
            let text = std::mem::replace(text, after);
            // The value ends at the first end that the text has.
            let body = format!(
                "(({body}) {}) & ~/(?s:.*)({ends_pattern})(?s:.+)/ & ~/{first}(?s:.*)/",
                literal(&text)
            );
            return [vec![lark.lazy(&body)], rest].concat();
        }
        Some(Symbol::Text(_)) => rest.remove(0),
        _ => Symbol::Text(String::new()),
    };
    // A special token ends the value.
    let Symbol::Text(text) = text else { unreachable!("the first symbol is a text") };
    let body = format!(
        "(({body}) {}) & ~/(?s:.*)({ends_pattern})(?s:.*)/ & ~/{first}(?s:.*)/",
        literal(&text)
    );
    [vec![lark.terminal(&body)], rest].concat()
}

/// The whitespace that may separate tags, as a regular expression.
const BETWEEN: &str = r"[ \t\r\n]*";

/// A regular expression for everything that ends a text.
fn ends_pattern(ends: &ValueEnds) -> String {
    let pieces = |pieces: &[&str]| {
        pieces.iter().map(|piece| escaped(piece)).collect::<Vec<_>>().join(BETWEEN)
    };
    let any = |tags: &[&str]| tags.iter().map(|tag| escaped(tag)).collect::<Vec<_>>().join("|");
    let close: Vec<&str> = ends.close().iter().map(String::as_str).collect();
    let after = ends.after().iter().map(|after| pieces(after)).collect::<Vec<_>>().join("|");
    let (closing, followers) = ends.call_ends();
    let tag = (!close.is_empty()).then(|| format!("{}{BETWEEN}({after})", pieces(&close)));
    let call =
        (!closing.is_empty()).then(|| format!("({}){BETWEEN}({})", any(&closing), any(&followers)));
    tag.into_iter().chain(call).collect::<Vec<_>>().join("|")
}

/// The alternative for a union of a constrained text and other shapes; None for other unions. If a
/// terminal cannot express the union, it is refused, and any text is allowed instead.
pub(super) fn union(
    shapes: &mut Vec<ValueShape>,
    at: &str,
    report: &mut SchemaReport,
) -> Result<Option<RawValue>> {
    match text_and_values(shapes) {
        Ok(None) => Ok(None),
        Ok(Some((text, others))) => Ok(Some(RawValue { text, others })),
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
