//! A format and calls -> the text that a template writes for them, byte for byte.
//!
//! In: the syntax of calls, the calls, and the style of values. Out: the section of the calls
//! alone. This is the strict reverse of parsing. It proves that a template writes a format; models
//! may deviate from it.

use std::ops::Range;

use serde_json::Value;

use super::format::{
    CallPart, CallSyntax, Encoding, IdForm, Keywords, Tagged, with_entities, written_name,
};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WrittenCall {
    /// The function's name.
    pub(crate) name: String,
    /// The arguments, an object.
    pub(crate) arguments: Value,
    /// The call's id.
    pub(crate) id: String,
}

/// The notation of values. Readers accept all notations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ValueStyle {
    /// Whether JSON has no space after commas and colons.
    pub(crate) compact: bool,
    /// Whether values outside JSON are in Python's notation: `True`, `None`.
    pub(crate) python: bool,
    /// Whether lists outside JSON are in Python's notation.
    pub(crate) python_lists: bool,
    /// Whether objects outside JSON are in Python's notation.
    pub(crate) python_objects: bool,
    /// Whether strings of keyword arguments are in Python's notation: `'x'`.
    pub(crate) python_strings: bool,
}

impl ValueStyle {
    /// All combinations that templates use, the most common first.
    pub(crate) fn all() -> impl Iterator<Item = ValueStyle> {
        (0..10).map(|flags| ValueStyle {
            compact: flags % 2 == 1,
            python: flags >= 2,
            python_lists: flags >= 4,
            python_objects: flags >= 6,
            python_strings: flags >= 8,
        })
    }

    /// All values outside JSON as Python's `repr` writes them.
    pub(crate) fn repr() -> ValueStyle {
        ValueStyle {
            compact: false,
            python: true,
            python_lists: true,
            python_objects: true,
            python_strings: true,
        }
    }
}

/// The text of a section. Bytes outside the ranges in `values` belong to the format.
#[derive(Debug, Default)]
pub(crate) struct CallText {
    pub(crate) text: String,
    /// The bytes of names, ids and arguments, in order.
    pub(crate) values: Vec<ValueRange>,
}

/// Bytes of one member of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueRange {
    pub(crate) bytes: Range<usize>,
    /// The index of the call.
    pub(crate) call: usize,
    pub(crate) member: CallMember,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallMember {
    /// The function's name.
    Name,
    /// The call's id.
    Id,
    Arguments,
}

/// Writes one member of a call into the text of its section.
struct MemberWriter<'t> {
    out: &'t mut CallText,
    call: usize,
    member: CallMember,
}

impl<'t> MemberWriter<'t> {
    fn new(out: &'t mut CallText, call: usize, member: CallMember) -> MemberWriter<'t> {
        MemberWriter { out, call, member }
    }

    /// Appends text of the format.
    fn push_str(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    /// Appends text of the member.
    fn push_value(&mut self, text: &str) {
        let start = self.out.text.len();
        self.out.text.push_str(text);
        let bytes = start..self.out.text.len();
        self.out.values.push(ValueRange { bytes, call: self.call, member: self.member });
    }
}

/// Writes the section of these calls.
pub(crate) fn section(calls: &CallSyntax, list: &[WrittenCall], style: ValueStyle) -> String {
    section_text(calls, list, style).text
}

/// Writes the section of these calls, with the bytes of their members.
pub(crate) fn section_text(
    calls: &CallSyntax,
    list: &[WrittenCall],
    style: ValueStyle,
) -> CallText {
    let mut out = CallText { text: calls.open.to_string(), values: Vec::new() };
    for (index, one) in list.iter().enumerate() {
        if index > 0 {
            out.text.push_str(&calls.separator);
        }
        call(&calls.call, one, index, style, &mut out);
    }
    out.text.push_str(&calls.close);
    out
}

fn call(
    parts: &[CallPart],
    call: &WrittenCall,
    index: usize,
    style: ValueStyle,
    out: &mut CallText,
) {
    for (at, part) in parts.iter().enumerate() {
        match part {
            CallPart::Text(text) => out.text.push_str(text),
            CallPart::Name => {
                let name = written_name(parts, at, &call.name);
                MemberWriter::new(out, index, CallMember::Name).push_value(&name)
            }
            CallPart::Id(IdForm::Free | IdForm::Alphanumeric(_)) => {
                MemberWriter::new(out, index, CallMember::Id).push_value(&call.id)
            }
            CallPart::Id(IdForm::Index(first)) => out.text.push_str(&(first + index).to_string()),
            CallPart::Id(IdForm::Named { prefix, infix }) => {
                out.text.push_str(prefix);
                MemberWriter::new(out, index, CallMember::Name).push_value(&call.name);
                out.text.push_str(&format!("{infix}{index}"));
            }
            CallPart::Arguments(encoding) => {
                let mut out = MemberWriter::new(out, index, CallMember::Arguments);
                write_arguments(encoding, &call.arguments, style, &mut out)
            }
        }
    }
}

/// The text of the arguments of a call.
pub(crate) fn arguments(encoding: &Encoding, arguments: &Value, style: ValueStyle) -> String {
    let mut out = CallText::default();
    let member = CallMember::Arguments;
    write_arguments(encoding, arguments, style, &mut MemberWriter::new(&mut out, 0, member));
    out.text
}

fn write_arguments(
    encoding: &Encoding,
    arguments: &Value,
    style: ValueStyle,
    out: &mut MemberWriter<'_>,
) {
    match encoding {
        Encoding::Json => out.push_value(&json_text(arguments, style)),
        Encoding::JsonText => {
            out.push_value(&json_text(&json_text(arguments, style).into(), style));
        }
        Encoding::Tagged(tags) => tagged(tags, arguments, style, out),
        Encoding::Elements { prefix, item } => elements(prefix, item, arguments, style, out),
        Encoding::Pairs { quote } => pairs(quote, arguments, style, out),
        Encoding::Python(keywords) => self::keywords(keywords, arguments, style, out),
    }
}

fn keywords(form: &Keywords, arguments: &Value, style: ValueStyle, out: &mut MemberWriter<'_>) {
    for (i, (key, value)) in members(arguments).enumerate() {
        out.push_str(if i > 0 { &form.separator } else { "" });
        out.push_value(key);
        out.push_str("=");
        match (value, form.raw_quote) {
            (Value::String(text), Some(quote)) => out.push_value(&format!("{quote}{text}{quote}")),
            (Value::String(_), None) if style.python_strings => out.push_value(&repr_text(value)),
            (Value::String(_), None) => out.push_value(&json_text(value, style)),
            _ => out.push_value(&bare(value, style)),
        }
    }
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn json_text(value: &Value, style: ValueStyle) -> String {
    let mut text = String::new();
    json(value, style.compact, &mut text);
    text
}

/// A value as Python's `repr` writes it.
pub(crate) fn repr_text(value: &Value) -> String {
    let mut text = String::new();
    repr(value, &mut text);
    text
}

/// Writes a value other than a string outside JSON.
fn bare(value: &Value, style: ValueStyle) -> String {
    let python = match value {
        Value::Array(_) => style.python_lists,
        Value::Object(_) => style.python_objects,
        _ => style.python,
    };
    match python {
        true => repr_text(value),
        false => json_text(value, style),
    }
}

fn tagged(tags: &Tagged, arguments: &Value, style: ValueStyle, out: &mut MemberWriter<'_>) {
    for (i, (key, value)) in members(arguments).enumerate() {
        out.push_str(if i > 0 { &tags.separator } else { "" });
        parameter(tags, Some(key), value, style, out);
    }
}

/// Writes the element of a parameter, or of an item without a key.
fn parameter(
    tags: &Tagged,
    key: Option<&str>,
    value: &Value,
    style: ValueStyle,
    out: &mut MemberWriter<'_>,
) {
    let kind = tags.kind.as_deref();
    let item = kind.and_then(|kind| kind.item.as_deref());
    match (key, kind, item) {
        (None, Some(kind), Some(item)) => {
            out.push_str(item);
            out.push_str(kind.words.of(value));
            out.push_str(kind.after_of_item(&tags.after_key));
        }
        (key, kind, _) => {
            let state = |before_key: bool, out: &mut MemberWriter<'_>| {
                if let Some(kind) = kind.filter(|kind| kind.before_key == before_key) {
                    out.push_str(kind.words.of(value));
                    out.push_str(&kind.after);
                }
            };
            out.push_str(&tags.open);
            state(true, out);
            out.push_value(&with_entities(key.unwrap_or_default(), tags.entities));
            out.push_str(&tags.after_key);
            state(false, out);
        }
    }
    match value {
        Value::String(text) => out.push_value(&with_entities(text, tags.entities)),
        Value::Object(_) if item.is_some() => tagged(tags, value, style, out),
        Value::Array(items) if item.is_some() => {
            items.iter().for_each(|value| parameter(tags, None, value, style, out))
        }
        value => out.push_value(&with_entities(&bare(value, style), tags.entities_of_json())),
    }
    out.push_str(&tags.close);
}

fn elements(
    prefix: &str,
    item: &str,
    value: &Value,
    style: ValueStyle,
    out: &mut MemberWriter<'_>,
) {
    let mut element = |name: &str, value: &Value| {
        out.push_str(prefix);
        out.push_value(&format!("<{name}>"));
        elements(prefix, item, value, style, out);
        out.push_str(prefix);
        out.push_value(&format!("</{name}>"));
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| match value {
            Value::Array(items) if item.is_empty() => {
                items.iter().for_each(|value| element(key, value))
            }
            value => element(key, value),
        }),
        Value::Array(items) if !item.is_empty() => {
            items.iter().for_each(|value| element(item, value))
        }
        Value::String(text) => out.push_value(text),
        value => out.push_value(&bare(value, style)),
    }
}

fn pairs(quote: &str, value: &Value, style: ValueStyle, out: &mut MemberWriter<'_>) {
    match value {
        Value::Object(members) => {
            out.push_str("{");
            for (i, (key, value)) in members.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                out.push_value(key);
                out.push_str(":");
                pairs(quote, value, style, out);
            }
            out.push_str("}");
        }
        Value::Array(items) => {
            out.push_str("[");
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                pairs(quote, item, style, out);
            }
            out.push_str("]");
        }
        Value::String(text) => {
            out.push_str(quote);
            out.push_value(text);
            out.push_str(quote);
        }
        Value::Null if style.python => out.push_value("None"),
        value => out.push_value(&value.to_string()),
    }
}

fn joined<T>(
    (open, close): (char, char),
    comma: &str,
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    one: impl Fn(T, &mut String),
) {
    out.push(open);
    for (i, item) in items.into_iter().enumerate() {
        out.push_str(if i > 0 { comma } else { "" });
        one(item, out);
    }
    out.push(close);
}

/// Writes JSON as Python's `json.dumps`, or without spaces.
pub(crate) fn json(value: &Value, compact: bool, out: &mut String) {
    let (comma, colon) = if compact { (",", ":") } else { (", ", ": ") };
    match value {
        Value::Object(members) => joined(('{', '}'), comma, members, out, |(key, value), out| {
            out.push_str(&Value::from(key.as_str()).to_string());
            out.push_str(colon);
            json(value, compact, out);
        }),
        Value::Array(items) => {
            joined(('[', ']'), comma, items, out, |item, out| json(item, compact, out))
        }
        value => out.push_str(&value.to_string()),
    }
}

/// Writes a value as Python's `repr`.
fn repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            out.push(quote);
            for c in text.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
                    c if c == quote => out.extend(['\\', c]),
                    c => out.push(c),
                }
            }
            out.push(quote);
        }
        Value::Array(items) => joined(('[', ']'), ", ", items, out, repr),
        Value::Object(members) => joined(('{', '}'), ", ", members, out, |(key, value), out| {
            repr(&key.as_str().into(), out);
            out.push_str(": ");
            repr(value, out);
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::families;

    #[track_caller]
    fn check(family: &str, list: &[(&str, Value)], expected: &str) {
        let format = families::all()
            .into_iter()
            .find(|format| format.family == family)
            .expect("a family of the table");
        let calls = format.calls.expect("every family writes calls");
        let list: Vec<WrittenCall> = list
            .iter()
            .zip(["aB3dE6gH9", "bC4eF7hI0"])
            .map(|((name, arguments), id)| WrittenCall {
                name: (*name).into(),
                arguments: arguments.clone(),
                id: id.into(),
            })
            .collect();
        let style = match family {
            "lfm2" => ValueStyle::repr(),
            _ => ValueStyle::default(),
        };
        assert_eq!(section(&calls, &list, style), expected, "{family}");
    }

    /// The calls are `f` with 1, then `g` with 2.
    #[test]
    fn two_calls_in_every_encoding() {
        for (family, expected) in [
            (
                "hermes",
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": 2}}\n</tool_call>",
            ),
            (
                "mistral-array",
                "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"aB3dE6gH9\"}, {\"name\": \"g\", \"arguments\": {\"a\": 2}, \"id\": \"bC4eF7hI0\"}]",
            ),
            (
                "mistral-id",
                "[TOOL_CALLS]f[CALL_ID]aB3dE6gH9[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]bC4eF7hI0[ARGS]{\"a\": 2}",
            ),
            (
                "deepseek-r1",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{\"a\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            ),
            (
                "dsml",
                "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n<｜DSML｜parameter name=\"a\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            ),
            (
                "cohere-action",
                "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {\"a\": 2}}\n]<|END_ACTION|>",
            ),
            (
                "kimi-k2",
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{\"a\": 2}<|tool_call_end|><|tool_calls_section_end|>",
            ),
            (
                "kimi-k3",
                "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"g\" index=\"2\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
            ),
            (
                "minimax-m2",
                "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n<invoke name=\"g\">\n<parameter name=\"a\">2</parameter>\n</invoke>\n</minimax:tool_call>",
            ),
            (
                "glm-kv",
                "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>g\n<arg_key>a</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
            ),
            ("gemma4", "<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{a:2}<tool_call|>"),
            (
                "apertus",
                "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {\"a\": 2}}]<|tools_suffix|>",
            ),
            ("lfm2", "<|tool_call_start|>[f(a=1), g(a=2)]<|tool_call_end|>"),
        ] {
            check(family, &[("f", json!({ "a": 1 })), ("g", json!({ "a": 2 }))], expected);
        }
    }

    #[test]
    fn values_of_every_type() {
        let arguments = json!({ "a": "it's", "b": [true, null, { "c": -2.5 }] });
        for (family, expected) in [
            (
                "qwen-xml",
                "<tool_call>\n<function=f>\n<parameter=a>\nit's\n</parameter>\n<parameter=b>\n[true, null, {\"c\": -2.5}]\n</parameter>\n</function>\n</tool_call>",
            ),
            ("gemma4", "<|tool_call>call:f{a:<|\"|>it's<|\"|>,b:[true,null,{c:-2.5}]}<tool_call|>"),
            (
                "lfm2",
                "<|tool_call_start|>[f(a=\"it's\", b=[True, None, {'c': -2.5}])]<|tool_call_end|>",
            ),
        ] {
            check(family, &[("f", arguments.clone())], expected);
        }
        let m = "]<]minimax[>[";
        let expected = format!(
            "{m}<tool_call>\n{m}<invoke name=\"f\">{m}<a>it's{m}</a>{m}<b>{m}<item>true{m}</item>{m}<item>null{m}</item>{m}<item>{m}<c>-2.5{m}</c>{m}</item>{m}</b>{m}</invoke>\n{m}</tool_call>"
        );
        check("minimax-m3", &[("f", arguments)], &expected);
    }
}
