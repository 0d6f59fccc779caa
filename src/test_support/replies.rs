//! Runs the reply parser for tests: feeds a reply in pieces and checks what must be true of every
//! reply.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::random::Random;
use crate::output::families;
use crate::output::*;

/// The options of the reply parser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) calls_allowed: bool,
    pub(crate) parallel: bool,
    /// The part of the reply that the prompt contains.
    pub(crate) prompt: &'static str,
    /// The special tokens of the vocabulary that may begin a call.
    pub(crate) special: &'static [&'static str],
}

pub(crate) const PLAIN: Setting =
    Setting { calls_allowed: true, parallel: true, prompt: "", special: &[] };

pub(crate) fn family(name: &str) -> Format {
    let all = families::all().into_iter().chain([families::polyfilled()]);
    all.into_iter()
        .find(|format| format.family == name)
        .unwrap_or_else(|| panic!("no family {name}"))
}

/// Parses a reply to its end. Checks that the deltas form the message.
#[track_caller]
pub(crate) fn drive<'a>(
    mut parser: ReplyParser,
    pieces: impl IntoIterator<Item = &'a str>,
) -> ParsedReply {
    let mut ids = HashSet::new();
    let (mut content, mut reasoning, mut calls) =
        (String::new(), String::new(), Vec::<ToolCall>::new());
    let mut take = |deltas: Vec<Delta>, last: bool| {
        for delta in deltas {
            match delta {
                Delta::Content(text) => content += &text,
                Delta::Reasoning(text) => reasoning += &text,
                Delta::ToolCall { index, id, name } => {
                    assert_eq!(index, calls.len(), "calls come in order");
                    assert!(
                        !id.is_empty() && !name.is_empty() && ids.insert(id.clone()),
                        "{id} {name}"
                    );
                    calls.push(ToolCall { id, name, arguments: String::new() });
                }
                Delta::Arguments { index, fragment } => {
                    assert!(!fragment.is_empty());
                    assert_eq!(index + 1, calls.len(), "only the last call gets arguments");
                    calls[index].arguments += &fragment;
                }
            }
        }
        if let (false, Some(call)) =
            (last, calls.last().filter(|call| call.arguments.starts_with('{')))
        {
            assert!(!ends_in_escape(&call.arguments), "{}", call.arguments);
        }
    };
    for piece in pieces {
        take(parser.push(piece), false);
    }
    let (last, parsed) = parser.finish();
    take(last, true);
    // The prompt may contain the start of the message.
    assert!(parsed.content.ends_with(&content), "{content:?} {:?}", parsed.content);
    assert!(
        parsed.reasoning.as_deref().unwrap_or_default().ends_with(&reasoning),
        "{reasoning:?} {:?}",
        parsed.reasoning
    );
    assert_eq!(calls, parsed.tool_calls);
    let noted = |code: &str| parsed.diagnostics.iter().any(|diagnostic| diagnostic.code == code);
    if parsed.complete && !noted("arguments_invalid_json") && !noted("arguments_too_deep") {
        for call in &parsed.tool_calls {
            let value: Result<Value, _> = serde_json::from_str(&call.arguments);
            assert!(
                value.as_ref().is_ok_and(Value::is_object),
                "{} of {}",
                call.arguments,
                call.name
            );
        }
    }
    parsed
}

/// Whether JSON text ends inside an escape or a surrogate pair.
fn ends_in_escape(json: &str) -> bool {
    let (mut in_string, mut escape, mut half) = (false, String::new(), false);
    for c in json.chars() {
        if !escape.is_empty() {
            escape.push(c);
            let unit = escape.strip_prefix("\\u");
            let digits = unit.is_some_and(|unit| unit.chars().all(|c| c.is_ascii_hexdigit()));
            if unit.is_none_or(|unit| unit.len() == 4) || !digits {
                let unit = unit.and_then(|unit| u32::from_str_radix(unit, 16).ok());
                half = unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
                escape.clear();
            }
            continue;
        }
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => escape.push(c),
            _ => {}
        }
        half &= c == '\\';
    }
    in_string && (!escape.is_empty() || half)
}

/// A reply parser that numbers the ids of calls.
pub(crate) fn reply_parser(format: &Format, tools: &[Value], setting: Setting) -> ReplyParser {
    let mut ids = 0;
    let mut parser = ReplyParser::new(ReplyParserInput {
        format: Some(format),
        tools: tools.to_vec().into(),
        calls_allowed: setting.calls_allowed,
        reasoning: true,
        json: false,
        parallel: setting.parallel,
        new_id: Box::new(move || {
            ids += 1;
            format!("id{ids}")
        }),
    });
    parser.set_special_openings(setting.special.iter().map(|tag| (*tag).to_owned()).collect());
    if !setting.prompt.is_empty() {
        parser.prime(setting.prompt, false);
    }
    parser
}

/// Parses the pieces of one reply.
#[track_caller]
pub(crate) fn feed<'a>(
    format: &Format,
    tools: &[Value],
    setting: Setting,
    pieces: impl IntoIterator<Item = &'a str>,
) -> ParsedReply {
    drive(reply_parser(format, tools, setting), pieces)
}

/// Parses a text as a whole, one character at a time, split in two at every position, and cut at
/// random. All results must be equal.
#[track_caller]
pub(crate) fn parse(format: &Format, tools: &[Value], setting: Setting, text: &str) -> ParsedReply {
    let whole = feed(format, tools, setting, [text]);
    let single: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(
        whole,
        feed(format, tools, setting, single.iter().map(String::as_str)),
        "one at a time: {text:?}"
    );
    if text.len() < 2000 {
        for (at, _) in text.char_indices() {
            let (head, tail) = text.split_at(at);
            assert_eq!(
                whole,
                feed(format, tools, setting, [head, tail]),
                "split at {at}: {text:?}"
            );
        }
    }
    let mut random = Random::new(1);
    for _ in 0..4 {
        assert_eq!(
            whole,
            feed(format, tools, setting, random.pieces(text)),
            "cut at random: {text:?}"
        );
    }
    whole
}

/// The words of the reply that are lost: in no part of the message and in no marker.
pub(crate) fn lost(format: &Format, text: &str, parsed: &ParsedReply) -> Vec<String> {
    const MARKUP: &str = "name arguments parameters parameter function functions type id json tool call code index string \
        true false null True False None assistant content object calls commentary analysis final constrain all to self user message atem number";
    let mut shown = vec![
        parsed.content.clone(),
        parsed.reasoning.clone().unwrap_or_default(),
        parsed.leftover.join(" "),
    ];
    shown.extend(
        parsed
            .diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.code == "id_generated")
            .map(|d| d.message.clone()),
    );
    for call in &parsed.tool_calls {
        // The name may also be in the call's id or in a header.
        shown.extend([
            call.name.clone(),
            call.name.clone(),
            call.id.clone(),
            call.arguments.clone(),
        ]);
        if let Ok(value) = serde_json::from_str(&call.arguments) {
            strings(&value, &mut shown);
        }
    }
    let mut have: HashMap<String, usize> = HashMap::new();
    for word in shown.iter().flat_map(|text| words(text)) {
        *have.entry(word.to_owned()).or_default() += 1;
    }
    let markup: Vec<String> = families::calls()
        .iter()
        .flat_map(|(_, calls)| {
            Format { calls: Some(calls.clone()), ..format.clone() }
                .texts()
                .join(" ")
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .chain([MARKUP.to_owned()])
        .collect();
    let markup: HashSet<&str> = markup.iter().flat_map(|text| words(text)).collect();
    let missing = words(text).filter(|word| !markup.contains(word)).filter(|word| {
        match have.get_mut(*word) {
            Some(remaining) if *remaining > 0 => {
                *remaining -= 1;
                false
            }
            _ => true,
        }
    });
    missing.map(str::to_owned).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn strings(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            out.push(key.clone());
            strings(value, out);
        }),
        other => out.push(other.to_string()),
    }
}
