//! The texts between the values of a call, as the model's template writes them.
//!
//! A grammar forces less than a template writes. A value without quotes may contain almost any text,
//! so its closing tag is certain only when it is complete, and parameters may come in another order.
//! A model that has begun such a text nearly always continues it.

use std::sync::Arc;

use llguidance::toktrie::TokTrie;
use serde_json::Value;

use super::lark::SpecialTokenFinder;
use crate::api::{function_name, function_parameters};
use crate::json_schema::{strings, type_names};
use crate::output::call_writer::{ValueStyle, WrittenCall, section};
use crate::output::format::{CallPart, CallSyntax};

/// The maximum number of texts. Each is compared with the reply after each token.
const MAX_TEXTS: usize = 512;
/// How many characters of a text must be written before the rest is likely, whitespace not counted.
/// A value may well contain `<`.
const BEGUN: usize = 2;
/// The value of each parameter in a call that is written to find the texts around it. Its position
/// follows, in two digits.
const VALUE: &str = "73100000000";
const MAX_VALUES: usize = 100;

/// The texts of the calls that a request allows.
#[derive(Debug, Default)]
pub struct CallTexts {
    tools: Vec<ToolTexts>,
    longest: usize,
}

/// The texts of one tool: up to its first value, between its values, and after the last one.
#[derive(Debug)]
struct ToolTexts {
    texts: Vec<LikelyText>,
}

/// A text as llguidance writes it: a control token is its number in brackets after a marker.
#[derive(Debug)]
struct LikelyText {
    bytes: Vec<u8>,
    /// How much of it must be written before the rest is likely.
    evidence: usize,
}

impl CallTexts {
    pub(super) fn new(
        calls: &CallSyntax,
        tools: &[&Value],
        specials: SpecialTokenFinder,
    ) -> CallTexts {
        let mut all = CallTexts::default();
        let mut count = 0;
        for tool in tools {
            let Some(tool) = ToolTexts::new(calls, tool, specials) else { continue };
            count += tool.texts.len();
            if count > MAX_TEXTS {
                break;
            }
            let lengths = tool.texts.iter().map(|text| text.bytes.len());
            all.longest = lengths.fold(all.longest, usize::max);
            all.tools.push(tool);
        }
        all
    }
}

impl ToolTexts {
    /// None if a call has no values, or if they are not found in its text.
    fn new(calls: &CallSyntax, tool: &Value, specials: SpecialTokenFinder) -> Option<ToolTexts> {
        let name = function_name(tool);
        let call = WrittenCall { name: name.to_owned(), arguments: example(tool), id: value(0) };
        let style = if calls.is_python() { ValueStyle::repr() } else { ValueStyle::default() };
        let text = section(calls, &[call], style);
        // Further calls of a turn have no `open`. It is needed where a call begins with its name.
        let is_tagged =
            matches!(calls.call.first(), Some(CallPart::Text(text)) if !text.trim().is_empty());
        let from = if is_tagged { calls.open.len() } else { 0 };
        let text = text.get(from..)?.trim_start();
        let mut parts = between_values(text);
        let named = parts.first()?.find(name)? + name.len();
        if parts.len() < 2 {
            return None;
        }
        let last = parts.pop().map(|last| last.trim_end());
        let texts = parts.into_iter().chain(last).enumerate().map(|(index, part)| {
            let mut tag = part.char_indices().filter(|(_, char)| !char.is_whitespace());
            let begun = tag.nth(BEGUN - 1).map_or(part.len(), |(at, char)| at + char.len_utf8());
            LikelyText::new(part, if index == 0 { named } else { begun }, specials)
        });
        Some(ToolTexts { texts: texts.collect() })
    }
}

impl LikelyText {
    fn new(text: &str, evidence: usize, specials: SpecialTokenFinder) -> LikelyText {
        let controls = specials(text);
        let inside = controls.iter().find(|(range, _)| range.contains(&evidence));
        let evidence = inside.map_or(evidence, |(range, _)| range.end);
        let (mut bytes, mut shown, mut from) = (Vec::new(), None, 0);
        for (range, token) in controls.iter().cloned().chain([(text.len()..text.len(), 0)]) {
            if (from..=range.start).contains(&evidence) {
                shown = Some(bytes.len() + evidence - from);
            }
            bytes.extend_from_slice(&text.as_bytes()[from..range.start]);
            if !range.is_empty() {
                push_control(&mut bytes, token);
            }
            from = range.end;
        }
        LikelyText { evidence: shown.unwrap_or(bytes.len()), bytes }
    }

    /// How much of the text is at the end of `written`. None if it is too little.
    fn begun(&self, written: &[u8]) -> Option<usize> {
        let last = *written.last()?;
        let lengths = (self.evidence.max(1)..=self.bytes.len()).rev();
        let mut lengths = lengths.filter(|length| self.bytes[length - 1] == last);
        lengths.find(|length| written.ends_with(&self.bytes[..*length]))
    }
}

/// What a reply has written of its calls.
#[derive(Clone, Default)]
pub(super) struct CallProgress {
    all: Arc<CallTexts>,
    /// The end of the reply.
    written: Vec<u8>,
    /// The tool whose call has begun.
    tool: Option<usize>,
}

impl CallProgress {
    pub(super) fn new(all: Arc<CallTexts>) -> CallProgress {
        CallProgress { all, ..CallProgress::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.tools.is_empty()
    }

    /// Takes the next token of the reply, which has these bytes in the vocabulary of the grammar.
    pub(super) fn accept(&mut self, token: i32, bytes: &[u8]) {
        if self.is_empty() {
            return;
        }
        push_token(&mut self.written, token, bytes);
        let surplus = self.written.len().saturating_sub(self.all.longest);
        if surplus > self.all.longest {
            self.written.drain(..surplus);
        }
        self.tool = self.all.tool_after(self.tool, &self.written);
    }

    /// The texts that are likely to follow after `more` tokens with their bytes, the likeliest
    /// first. Empty outside of a call, and before a value.
    pub(super) fn rest<'t>(&self, more: impl Iterator<Item = (i32, &'t [u8])>) -> Vec<&[u8]> {
        let mut written = self.written.clone();
        more.for_each(|(token, bytes)| push_token(&mut written, token, bytes));
        let tool = self.all.tool_after(self.tool, &written);
        let texts = tool.map(|tool| &*self.all.tools[tool].texts).unwrap_or_default();
        let begun: Vec<_> =
            texts.iter().filter_map(|text| Some((text, text.begun(&written)?))).collect();
        if begun.iter().any(|(text, length)| *length == text.bytes.len()) {
            return Vec::new();
        }
        let most = begun.iter().map(|(_, length)| *length).max();
        let likely = begun.iter().filter(|(_, length)| Some(*length) == most);
        likely.map(|(text, length)| &text.bytes[*length..]).collect()
    }
}

impl CallTexts {
    /// The tool whose call is open at the end of `written`, if it was `before` at an earlier end.
    fn tool_after(&self, before: Option<usize>, written: &[u8]) -> Option<usize> {
        let opened = |tool: &ToolTexts| tool.texts.first()?.begun(written);
        let opening = self.tools.iter().map(opened).enumerate();
        let opened = opening.max_by_key(|(index, length)| (*length, usize::MAX - index));
        if let Some((index, Some(_))) = opened {
            return Some(index);
        }
        let is_closed = |tool: &usize| {
            self.tools[*tool].texts.last().is_some_and(|text| written.ends_with(&text.bytes))
        };
        before.filter(|tool| !is_closed(tool))
    }
}

/// Appends a token. That of a control token is its number.
fn push_token(text: &mut Vec<u8>, token: i32, bytes: &[u8]) {
    match bytes.first() {
        Some(&TokTrie::SPECIAL_TOKEN_MARKER) => push_control(text, token),
        _ => text.extend_from_slice(bytes),
    }
}

fn push_control(text: &mut Vec<u8>, token: i32) {
    text.push(TokTrie::SPECIAL_TOKEN_MARKER);
    text.extend_from_slice(format!("[{token}]").as_bytes());
}

/// Arguments with a value for each required parameter, or for each parameter if none is required.
fn example(tool: &Value) -> Value {
    let parameters = function_parameters(tool);
    let member = |name: &str| parameters.and_then(|schema| schema.get(name));
    let required: Vec<&str> = strings(member("required")).collect();
    let properties = member("properties").and_then(Value::as_object).into_iter().flatten();
    let properties = properties
        .filter(|(name, _)| required.is_empty() || required.contains(&name.as_str()))
        .take(MAX_VALUES - 1);
    let values = properties.enumerate().map(|(index, (name, schema))| {
        let value = value(index + 1);
        let is_text = match (type_names(schema.get("type")), schema.get("enum")) {
            (Some(types), _) => types.contains(&"string"),
            (None, Some(values)) => values.get(0).is_some_and(Value::is_string),
            (None, None) => true,
        };
        let number = value.parse::<u64>().map(Value::from);
        (name.clone(), if is_text { value.into() } else { number.unwrap_or_default() })
    });
    Value::Object(values.collect())
}

fn value(index: usize) -> String {
    format!("{VALUE}{index:02}")
}

/// The parts of a text between the values of an example.
fn between_values(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(VALUE).collect();
    // The position of a value follows it.
    parts.iter_mut().skip(1).for_each(|part| *part = part.get(2..).unwrap_or_default());
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::families;

    /// The texts that are likely after each of these texts of a call of `book`. Control tokens are
    /// between `⟨` and `⟩`.
    #[track_caller]
    fn check(family: &str, cases: &[(&str, &[&str])]) {
        let format = families::all().into_iter().find(|format| format.family == family);
        let calls = format.and_then(|format| format.calls).expect("a family with calls");
        let tool = |name: &str| {
            let types = [("city", "string"), ("days", "integer"), ("note", "string")];
            let properties: serde_json::Map<String, Value> = types
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), json!({ "type": kind })))
                .collect();
            json!({ "function": { "name": name, "parameters": {
                "type": "object", "properties": properties, "required": ["days", "city"] } } })
        };
        let (book, other) = (tool("book"), tool("book_all"));
        let specials = |text: &str| match text.find("<|\"|>") {
            Some(at) => vec![(at..at + 5, 7)],
            None => Vec::new(),
        };
        let all = Arc::new(CallTexts::new(&calls, &[&other, &book], &specials));
        for (written, expected) in cases {
            let mut progress = CallProgress::new(Arc::clone(&all));
            for character in written.chars() {
                match character {
                    '⟨' => progress.accept(7, b"\xff<|\"|>"),
                    _ => progress.accept(1, character.to_string().as_bytes()),
                }
            }
            let rest: Vec<String> = progress
                .rest([].into_iter())
                .into_iter()
                .map(|text| String::from_utf8_lossy(text).replace("\u{fffd}[7]", "⟨"))
                .collect();
            assert_eq!(rest, *expected, "{family}: {written:?}");
        }
    }

    #[test]
    fn what_a_call_has_begun_is_continued() {
        let open = "Hi <tool_call>\n<function=book>\n<parameter=";
        let first = format!("{open}city>\nRome");
        let second = format!("{first}\n</parameter>\n<parameter=days>\n3");
        check(
            "qwen-xml",
            &[
                ("Say </ and", &[]),
                ("Say \n</", &[]),
                (open, &["city>\n"]),
                (&first, &[]),
                (&format!("{first}\n"), &[]),
                (&format!("{first}\n<"), &[]),
                (
                    &format!("{first}\n</"),
                    &["parameter>\n<parameter=days>\n", "parameter>\n</function>\n</tool_call>"],
                ),
                (
                    &format!("{first}\n</parameter>\n<"),
                    &["parameter=days>\n", "/function>\n</tool_call>"],
                ),
                (&format!("{first}\n</parameter>\n<parameter=n"), &[]),
                (&format!("{second}\n</parameter>\n</"), &["function>\n</tool_call>"]),
                (&format!("{second}\n</parameter>\n</function>\n</tool_call>"), &[]),
                (&format!("{second}\n</parameter>\n</function>\n</tool_call>\n<"), &[]),
            ],
        );
        check(
            "hermes",
            &[
                ("He said \"", &[]),
                ("<tool_call>\n{\"name\": \"book", &["\", \"arguments\": {\"city\": \""]),
                ("<tool_call>\n{\"name\": \"book_all", &["\", \"arguments\": {\"city\": \""]),
                ("<tool_call>\n{\"name\": \"book\", \"arguments\": {\"city\": \"", &[]),
                (
                    "<tool_call>\n{\"name\": \"book\", \"arguments\": {\"city\": \"Rome\",",
                    &[" \"days\": "],
                ),
                (
                    "<tool_call>\n{\"name\": \"book\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}",
                    &["\n</tool_call>"],
                ),
            ],
        );
        check(
            "gemma4",
            &[
                ("<|tool_call>call:book{", &["city:⟨"]),
                ("<|tool_call>call:book{city:⟨", &[]),
                ("<|tool_call>call:book{city:⟨Rome⟨", &[",days:"]),
                ("<|tool_call>call:book{city:⟨Rome⟨,days:3}<", &["tool_call|>"]),
            ],
        );
    }
}
