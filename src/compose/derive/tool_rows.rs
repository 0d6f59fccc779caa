//! Derives a catalogue that lists tools as rows of text. A row contains the name, the description
//! and the parameters of a tool, or the whole tool, between constant texts.

use std::ops::Range;

use serde_json::{Deserializer, Value};

use super::Compose;
use super::catalogue::{self, Catalogue, JsonSpelling};
use super::needles::contains_needle;
use super::wrapping::escaped;

/// A part of a tool that occurs in a text, and the slot for it.
struct ToolSlot {
    range: Range<usize>,
    slot: &'static str,
    /// Whether it is the tool's `function` member and not the tool.
    function: bool,
}

/// All occurrences of parts of this tool, in order.
fn find_slots(text: &str, tool: &Value) -> Vec<ToolSlot> {
    let function = &tool["function"];
    let texts = [("name", &function["name"]), ("description", &function["description"])];
    let values = [("tool", tool), ("tool", function), ("parameters", &function["parameters"])];
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(c) = rest.chars().next() else { break };
        let part = if c == '{' {
            let mut stream = Deserializer::from_str(rest).into_iter::<Value>();
            let value = stream.next().and_then(Result::ok);
            value.and_then(|value| {
                let (slot, known) = values.iter().find(|(_, known)| **known == value)?;
                Some((*slot, stream.byte_offset(), std::ptr::eq(*known, function)))
            })
        } else {
            texts.iter().find_map(|(slot, text)| {
                let text = text.as_str().filter(|text| rest.starts_with(*text))?;
                Some((*slot, text.len(), false))
            })
        };
        match part {
            Some((slot, length, function)) => {
                found.push(ToolSlot { range: at..at + length, slot, function });
                at += length;
            }
            None => at += c.len_utf8(),
        }
    }
    found
}

/// The byte range from the first to the last part of a tool, and its text with slots.
fn row(text: &str, slots: &[ToolSlot]) -> Option<(Range<usize>, String)> {
    let range = slots.first()?.range.start..slots.last()?.range.end;
    let mut row = String::new();
    let mut done = range.start;
    for slot in slots {
        row.push_str(&escaped(&text[done..slot.range.start]));
        row.push_str(&format!("{{{}}}", slot.slot));
        done = slot.range.end;
    }
    Some((range, row))
}

/// Finds the rows of these two tools. None if the rows differ in form.
pub(super) fn find(text: &str, tools: &[Value], compose: &Compose<'_>) -> Option<Catalogue> {
    let [one, two] = tools else { return None };
    let (first, second) = (find_slots(text, one), find_slots(text, two));
    let (one, template) = row(text, &first)?;
    let (two, other) = row(text, &second)?;
    let between = text.get(one.end..two.start)?;
    if template != other
        || !(template.contains("{name}") || template.contains("{tool}"))
        || contains_needle(&template)
    {
        return None;
    }
    let json = first.iter().find(|slot| matches!(slot.slot, "tool" | "parameters"));
    let style = json.map(|slot| JsonSpelling::of(&text[slot.range.clone()]));
    let picks = first.iter().any(|slot| slot.function);
    [false, true].into_iter().find_map(|sort_keys| {
        let formatter = style.as_ref().and_then(|style| style.formatter(Some("\n"), sort_keys));
        let written =
            catalogue::written(formatter.as_ref(), picks, Some(&template), tools, compose)?;
        (written == format!("{}{}", &text[one.clone()], &text[two.clone()])).then(|| Catalogue {
            range: one.start..two.end,
            formatter,
            picks,
            joiner: Some(between.to_owned()),
            row: Some(template.clone()),
        })
    })
}
