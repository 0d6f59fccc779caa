//! Builds replies from a format's own markers, and checks properties of parsing them.

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use llb::output::format::Format;
use llb::output::{Delta, ParsedReply, ReplyParser, ReplyParserInput};
use serde_json::{Value, json};

use crate::in_time;

/// All families, and the format of our polyfill.
pub fn families() -> &'static [Format] {
    static FAMILIES: LazyLock<Vec<Format>> = LazyLock::new(llb::output::families);
    &FAMILIES
}

/// Options of a request.
#[derive(Debug, Clone, Default, Arbitrary)]
pub struct Options {
    /// Whether there are no tools, or tools that must not be called.
    pub no_calls: bool,
    pub untold_reasoning: bool,
    pub json: bool,
    pub single: bool,
    /// Special tokens of the vocabulary that may begin a call.
    #[arbitrary(default)]
    pub special: Vec<String>,
    /// Whether markers of the format and special tokens may be control tokens.
    pub controls: bool,
    /// The parameters of `f`.
    #[arbitrary(default)]
    pub parameters: Option<Value>,
}

const PIECES: [&str; 40] = [
    "f",
    "get_weather",
    "unknown",
    "functions.f:0",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "{\"a\": 1}",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u00e9",
    "\\ud83d\\ude00",
    "\\ud800",
    ":",
    ",",
    "a",
    "text",
    "null",
    "true",
    "None",
    "-1.5e10",
    "'",
    "(",
    ")",
    "=",
    " ",
    "\n",
    "\r\n",
    "```",
    "```json\n",
    "<",
    ">",
    "</",
    "<![CDATA[",
    "]]>",
    "é\u{301}🦀",
    "\0",
    "call_1",
];

/// The next piece of a reply: a marker, a part of a marker, text that occurs in calls, or any text.
pub fn piece(
    u: &mut Unstructured<'_>,
    format: &Format,
    text: &mut String,
) -> arbitrary::Result<()> {
    let markers = format.texts();
    match u.int_in_range(0..=9)? {
        0..=3 if !markers.is_empty() => text.push_str(u.choose(&markers)?),
        4 if !markers.is_empty() => {
            let marker = *u.choose(&markers)?;
            let cut = u.int_in_range(0..=marker.len())?;
            text.push_str(&marker[..marker.floor_char_boundary(cut)]);
        }
        9 => text.push_str(u.arbitrary::<&str>()?),
        _ => text.push_str(u.choose(&PIECES)?),
    }
    Ok(())
}

/// A part of a reply: text, or a control token.
#[derive(Debug, Clone, Copy)]
enum Part<'t> {
    Text(&'t str),
    Control(&'t str),
}

/// Splits a text into parts. Every other occurrence of a marker is a control token, and the rest
/// are text with the same spelling.
fn parts<'t>(text: &'t str, controls: &[String]) -> Vec<Part<'t>> {
    let mut parts = Vec::new();
    let (mut start, mut at, mut found) = (0, 0, 0);
    while at < text.len() {
        let rest = &text[at..];
        match controls.iter().find(|control| !control.is_empty() && rest.starts_with(&***control)) {
            Some(control) => {
                found += 1;
                if found % 2 == 1 {
                    parts.push(Part::Text(&text[start..at]));
                    parts.push(Part::Control(&text[at..at + control.len()]));
                    start = at + control.len();
                }
                at += control.len();
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    parts.push(Part::Text(&text[start..]));
    parts
}

/// Parses a text with control tokens, as a whole and character by character. The message must equal
/// the sum of the deltas.
pub fn check_controls(format: Option<&Format>, options: &Options, text: &str) {
    let texts = format.into_iter().flat_map(Format::texts).map(str::to_owned);
    let controls: Vec<String> = options.special.iter().cloned().chain(texts.step_by(2)).collect();
    let parts = parts(text, &controls);
    let whole = in_time(|| read_parts(format, options, parts.iter().copied()));
    let characters = parts.iter().flat_map(|part| match part {
        Part::Text(text) => text
            .char_indices()
            .map(|(at, c)| Part::Text(&text[at..at + c.len_utf8()]))
            .collect::<Vec<_>>(),
        control => vec![*control],
    });
    assert_eq!(read_parts(format, options, characters), whole, "by characters: {parts:?}");
}

/// Parses a text as a whole and in pieces. The message must equal the sum of the deltas.
pub fn check(format: Option<&Format>, options: &Options, text: &str, cuts: &[u8]) {
    let whole = in_time(|| read(format, options, [text].into_iter()));
    let characters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(read(format, options, characters), whole, "by characters: {text:?}");
    let mut rest = text;
    let mut lengths = cuts.iter().cycle().map(|cut| usize::from(*cut) + 1);
    let pieces = std::iter::from_fn(|| {
        let (piece, after) =
            rest.split_at(rest.ceil_char_boundary(lengths.next().unwrap_or(rest.len())));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(read(format, options, pieces), whole, "in pieces: {text:?}");
}

/// Parses prefixes of a text. The message of a longer prefix must only add to that of a shorter
/// one, and the message of the whole text to both.
pub fn check_beginnings(format: Option<&Format>, options: &Options, text: &str, cuts: &[u8]) {
    let mut last = ParsedReply::default();
    let mut end = 0;
    let ends = cuts.iter().take(24).map(|cut| {
        end = text.ceil_char_boundary((end + usize::from(*cut) + 1).min(text.len()));
        end
    });
    let beginnings = ends.map(|end| {
        let mut parser = parser(format, options);
        parser.expect_more();
        parser.push(&text[..end]);
        parser.finish().1
    });
    for parsed in beginnings.chain([read(format, options, [text].into_iter())]) {
        assert!(extends(&parsed, &last), "{text:?}: {last:?}, then {parsed:?}");
        last = parsed;
    }
}

fn extends(longer: &ParsedReply, shorter: &ParsedReply) -> bool {
    let reasoning = |parsed: &ParsedReply| parsed.reasoning.clone().unwrap_or_default();
    longer.content.starts_with(&shorter.content)
        && reasoning(longer).starts_with(&reasoning(shorter))
        && longer.tool_calls.len() >= shorter.tool_calls.len()
        && longer.tool_calls.iter().zip(&shorter.tool_calls).all(|(longer, shorter)| {
            longer.id == shorter.id
                && longer.name == shorter.name
                && longer.arguments.starts_with(&shorter.arguments)
        })
}

fn parser(format: Option<&Format>, options: &Options) -> ReplyParser {
    let city = json!({ "properties": { "city": { "type": "string" }, "n": { "type": "integer" } }, "required": ["city"] });
    let f = options
        .parameters
        .clone()
        .unwrap_or_else(|| json!({ "properties": { "a": { "type": ["integer", "string"] } } }));
    let tools = [("f", f), ("get_weather", city)];
    let tools =
        tools.map(|(name, parameters)| json!({ "type": "function", "function": { "name": name, "parameters": parameters } }));
    let mut ids = 0;
    let mut parser = ReplyParser::new(ReplyParserInput {
        format,
        tools: tools.to_vec().into(),
        calls_allowed: !options.no_calls,
        reasoning: !options.untold_reasoning,
        json: options.json,
        parallel: !options.single,
        new_id: Box::new(move || {
            ids += 1;
            format!("id{ids}")
        }),
    });
    parser.set_special_openings(options.special.clone().into());
    parser
}

fn read<'t>(
    format: Option<&Format>,
    options: &Options,
    pieces: impl Iterator<Item = &'t str>,
) -> ParsedReply {
    read_parts(format, options, pieces.map(Part::Text))
}

fn read_parts<'t>(
    format: Option<&Format>,
    options: &Options,
    parts: impl Iterator<Item = Part<'t>>,
) -> ParsedReply {
    let mut parser = parser(format, options);
    let mut deltas = Vec::new();
    for part in parts {
        deltas.extend(match part {
            Part::Text(text) => parser.push(text),
            Part::Control(text) => parser.push_control(text),
        });
    }
    let (rest, parsed) = parser.finish();
    deltas.extend(rest);
    add_up(&deltas, &parsed);
    parsed
}

fn add_up(deltas: &[Delta], parsed: &ParsedReply) {
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for delta in deltas {
        match delta {
            Delta::Content(text) => content.push_str(text),
            Delta::Reasoning(text) => reasoning.push_str(text),
            Delta::ToolCall { index, id, name } => {
                assert_eq!(*index, calls.len(), "calls come in order");
                calls.push((id.clone(), name.clone(), String::new()));
            }
            Delta::Arguments { index, fragment } => calls[*index].2.push_str(fragment),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(content, parsed.content);
    assert_eq!(reasoning, parsed.reasoning.clone().unwrap_or_default());
    let expected = parsed
        .tool_calls
        .iter()
        .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()));
    assert_eq!(calls, expected.collect::<Vec<_>>());
}
