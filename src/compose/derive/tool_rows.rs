//! A catalogue whose tools stand in rows of text: name, description and parameters of each, or all
//! of it, between constant text.

use std::ops::Range;

use serde_json::{Deserializer, Value};

use super::Compose;
use super::catalogue::{Catalogue, JsonSpelling, written_by};
use super::needles::contains_needle;
use super::wrapping::escape;

/// A part of a tool in a text, by the slot that stands for it.
struct ToolSlot {
    range: Range<usize>,
    slot: &'static str,
    /// The tool's `function` member, not all of it.
    function: bool,
}

/// All parts of this tool, in order.
fn tokens(text: &str, tool: &Value) -> Vec<ToolSlot> {
    let function = &tool["function"];
    let texts = [("name", &function["name"]), ("description", &function["description"])];
    let values = [("tool", tool), ("tool", function), ("parameters", &function["parameters"])];
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(c) = rest.chars().next() else { break };
        let mut token = None;
        if c == '{' {
            let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(value)) = stream.next()
                && let Some((slot, known)) = values.iter().find(|(_, known)| **known == value)
            {
                token = Some((*slot, stream.byte_offset(), std::ptr::eq(*known, function)));
            }
        } else {
            let known = texts.iter().find_map(|(slot, text)| {
                Some((*slot, text.as_str().filter(|text| rest.starts_with(*text))?))
            });
            token = known.map(|(slot, text)| (slot, text.len(), false));
        }
        match token {
            Some((slot, length, function)) => {
                found.push(ToolSlot { range: at..at + length, slot, function });
                at += length;
            }
            None => at += c.len_utf8(),
        }
    }
    found
}

/// From the first to the last part of a tool, and the same with slots.
fn row(text: &str, tokens: &[ToolSlot]) -> Option<(Range<usize>, String)> {
    let range = tokens.first()?.range.start..tokens.last()?.range.end;
    let mut row = String::new();
    let mut done = range.start;
    for token in tokens {
        row.push_str(&escape(&text[done..token.range.start]));
        row.push_str(&format!("{{{}}}", token.slot));
        done = token.range.end;
    }
    Some((range, row))
}

/// Finds the rows of these two tools; None when they do not look alike.
pub(super) fn find(text: &str, tools: &[Value], compose: &Compose<'_>) -> Option<Catalogue> {
    let [one, two] = tools else { return None };
    let (first, second) = (tokens(text, one), tokens(text, two));
    let (one, template) = row(text, &first)?;
    let (two, other) = row(text, &second)?;
    let between = text.get(one.end..two.start)?;
    if template != other
        || !(template.contains("{name}") || template.contains("{tool}"))
        || contains_needle(&template)
    {
        return None;
    }
    let json = first.iter().find(|token| matches!(token.slot, "tool" | "parameters"));
    let style = json.map(|token| JsonSpelling::of(&text[token.range.clone()]));
    let picks = first.iter().any(|token| token.function);
    [false, true].into_iter().find_map(|sort_keys| {
        let formatter = style.as_ref().and_then(|style| style.formatter(Some("\n"), sort_keys));
        let written = written_by(formatter.as_ref(), picks, Some(&template), tools, compose)?;
        (written == format!("{}{}", &text[one.clone()], &text[two.clone()])).then(|| Catalogue {
            range: one.start..two.end,
            formatter,
            picks,
            joiner: Some(between.to_owned()),
            row: Some(template.clone()),
        })
    })
}
