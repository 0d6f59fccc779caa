//! Finds the catalogue of declared tools in a prompt, and a formatter that writes the same text.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::probes::{Compose, contains_needle};
use super::wrapping::escaped;
use crate::json::{self, PlainValue};
use crate::probing::{Probe, tool};

/// A catalogue of tools in a prompt, and how it is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Catalogue {
    /// The byte range of all tools.
    pub(super) range: Range<usize>,
    /// The value of `tool_policy.formatter`; None for the default.
    pub(super) formatter: Option<Value>,
    /// Whether it lists the `function` members of the tools.
    pub(super) picks: bool,
    /// The text between the two tools. None if the tools are one list.
    pub(super) joiner: Option<String>,
    /// The value of `single_tool_template`, if each tool is a row of text. `joiner` is the text
    /// between rows.
    pub(super) row: Option<String>,
}

/// Finds the catalogue of these two tools. None if no formatter writes it.
pub(super) fn find(text: &str, tools: &[Value], compose: &Compose<'_>) -> Option<Catalogue> {
    let by_kind = |kind: &str, picks: bool, joiner: Option<&str>| {
        let formatter = json!({ "kind": kind });
        let written = written(Some(&formatter), picks, None, tools, compose)?;
        let start = text.find(&written)?;
        Some(Catalogue {
            range: start..start + written.len(),
            formatter: Some(formatter),
            picks,
            joiner: joiner.map(str::to_owned),
            row: None,
        })
    };
    json_catalogue(text, tools, compose)
        .or_else(|| by_kind("YamlFormatter", false, None))
        .or_else(|| by_kind("YamlFormatter", true, None))
        .or_else(|| by_kind("XmlFormatter", false, Some("\n")))
        .or_else(|| find_rows(text, tools, compose))
}

/// The formatter with the order of members of an XML catalogue. `render` renders declared tools.
pub(super) fn xml_order(
    render: &dyn Fn(&[Value]) -> Option<String>,
    compose: &Compose<'_>,
) -> Option<Value> {
    let parameter = json!({ "x-odd": 1, "enum": ["a"], "type": "string" });
    let schema = json!({ "required": ["a"], "x-more": {}, "type": "object", "properties": { "a": parameter } });
    let tools = [tool("qtoolone", "d", &schema)];
    let text = render(&tools)?;
    [(false, false), (true, true), (true, false), (false, true)].into_iter().find_map(
        |(first, last)| {
            let mut formatter = json!({ "kind": "XmlFormatter" });
            for (key, name, set) in [("first", "enum", first), ("last", "required", last)] {
                if set {
                    formatter[key] = json!([name]);
                }
            }
            text.contains(&written(Some(&formatter), false, None, &tools, compose)?)
                .then_some(formatter)
        },
    )
}

pub(super) fn contains_name(text: &str, tools: &[Value]) -> bool {
    let name =
        |tool: &Value| tool["function"]["name"].as_str().is_some_and(|name| text.contains(name));
    tools.iter().any(name)
}

/// The text that a formatter writes for these tools. `row` is the value of `single_tool_template`.
fn written(
    formatter: Option<&Value>,
    picks: bool,
    row: Option<&str>,
    tools: &[Value],
    compose: &Compose<'_>,
) -> Option<String> {
    let mut policy = Map::new();
    if let Some(formatter) = formatter {
        policy.insert("formatter".to_owned(), formatter.clone());
    }
    if picks {
        policy.insert("content_processor".to_owned(), json!({ "kind": "pick_function" }));
    }
    let spec = json!({
        "system_template": "{tools}",
        "user_template": "{content}",
        "assistant_template": "{content}",
        "single_tool_template": row,
        "tool_policy": policy,
    });
    compose(&spec)?.prompt(&Probe::from_user("").tools(tools))
}

/// A JSON value that was found in a text.
struct JsonMatch {
    range: Range<usize>,
    value: Value,
}

/// The first occurrence of one of the candidates at or after this byte.
fn find_value(text: &str, from: usize, candidates: &[&Value]) -> Option<JsonMatch> {
    let mut at = from;
    loop {
        at += text.get(at..)?.find(['[', '{'])?;
        if let Some((PlainValue(value), length)) = json::leading(&text[at..])
            && candidates.contains(&&value)
        {
            return Some(JsonMatch { range: at..at + length, value });
        }
        at += 1;
    }
}

fn json_catalogue(text: &str, tools: &[Value], compose: &Compose<'_>) -> Option<Catalogue> {
    let [one, two] = tools else { return None };
    let functions = [&one["function"], &two["function"]];
    let (list, function_list) = (json!([one, two]), json!(functions));
    let first = find_value(text, 0, &[&list, &function_list, one, functions[0]])?;
    let picks = first.value == function_list || first.value == *functions[0];
    let as_list = first.value.is_array();
    let (range, joiner) = if as_list {
        (first.range.clone(), None)
    } else {
        let second = find_value(text, first.range.end, &[if picks { functions[1] } else { two }])?;
        (first.range.start..second.range.end, Some(&text[first.range.end..second.range.start]))
    };
    if joiner.is_some_and(contains_needle) {
        return None;
    }
    let style = JsonSpelling::parse(&text[first.range]);
    [false, true].into_iter().find_map(|sort_keys| {
        let formatter = style.formatter(joiner, sort_keys);
        let same = written(formatter.as_ref(), picks, None, tools, compose)? == text[range.clone()];
        same.then(|| Catalogue {
            range: range.clone(),
            formatter,
            picks,
            joiner: joiner.map(str::to_owned),
            row: None,
        })
    })
}

/// How JSON is spelled in a prompt.
struct JsonSpelling {
    indent: Option<usize>,
    item: String,
    key: String,
    ascii: bool,
}

impl JsonSpelling {
    fn parse(written: &str) -> JsonSpelling {
        let (mut quoted, mut escaped) = (false, false);
        let (mut item, mut key) = (None, None);
        for (at, c) in written.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                ',' if !quoted && item.is_none() => item = Some(with_spaces(&written[at..])),
                ':' if !quoted && key.is_none() => key = Some(with_spaces(&written[at..])),
                _ => {}
            }
        }
        let line = written.split_once('\n').map(|(_, line)| line);
        let indent = line.map(|line| line.len() - line.trim_start_matches(' ').len());
        let or = |found: Option<&str>, usual: &str| found.unwrap_or(usual).to_owned();
        JsonSpelling {
            indent,
            item: or(item, ","),
            key: or(key, ":"),
            ascii: written.contains("\\u"),
        }
    }

    /// The value of `tool_policy.formatter`; None for the default.
    fn formatter(&self, joiner: Option<&str>, sort_keys: bool) -> Option<Value> {
        let mut members = Map::new();
        if let Some(indent) = self.indent {
            members.insert("indent".to_owned(), indent.into());
        }
        let usual = if self.indent.is_some() { "," } else { ", " };
        if (&*self.item, &*self.key) != (usual, ": ") {
            members.insert("separators".to_owned(), json!([self.item, self.key]));
        }
        if let Some(joiner) = joiner.filter(|joiner| *joiner != "\n") {
            members.insert("joiner".to_owned(), joiner.into());
        }
        for (name, set) in
            [("format_as_list", joiner.is_none()), ("sort_keys", sort_keys), ("ascii", self.ascii)]
        {
            if set {
                members.insert(name.to_owned(), true.into());
            }
        }
        if members.is_empty() {
            return None;
        }
        members.insert("kind".to_owned(), "JsonFormatter".into());
        Some(Value::Object(members))
    }
}

/// A separator, including the spaces after it.
fn with_spaces(text: &str) -> &str {
    &text[..1 + text[1..].len() - text[1..].trim_start_matches(' ').len()]
}

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
            json::leading(rest).and_then(|(PlainValue(value), length)| {
                let (slot, known) = values.iter().find(|(_, known)| **known == value)?;
                Some((*slot, length, std::ptr::eq(*known, function)))
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

/// Finds the rows of these two tools, which are text. A row contains the name, the description and
/// the parameters of a tool, or the whole tool, between constant texts. None if the rows differ in
/// form.
fn find_rows(text: &str, tools: &[Value], compose: &Compose<'_>) -> Option<Catalogue> {
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
    let style = json.map(|slot| JsonSpelling::parse(&text[slot.range.clone()]));
    let picks = first.iter().any(|slot| slot.function);
    [false, true].into_iter().find_map(|sort_keys| {
        let formatter = style.as_ref().and_then(|style| style.formatter(Some("\n"), sort_keys));
        let written = written(formatter.as_ref(), picks, Some(&template), tools, compose)?;
        (written == format!("{}{}", &text[one.clone()], &text[two.clone()])).then(|| Catalogue {
            range: one.start..two.end,
            formatter,
            picks,
            joiner: Some(between.to_owned()),
            row: Some(template.clone()),
        })
    })
}
