//! The syntax of calls from an example that no family has: a JSON object with a name and arguments,
//! with or without tags, or a call in Python's notation in tags.

use std::ops::Range;

use super::prose::{Prose, ProsePattern};
use crate::output::format::{CallPart, CallSyntax, Encoding};

/// Possible keys of the function's name.
const NAME_KEYS: [&str; 5] = ["name", "function", "tool_name", "tool", "function_name"];
/// Possible keys of the arguments.
const ARGUMENT_KEYS: [&str; 6] =
    ["arguments", "parameters", "args", "params", "input", "tool_input"];

/// The syntax of a call in tags, and the range of its example. `is_call` distinguishes examples
/// from other text.
pub(super) fn tagged_call(
    prose: &Prose<'_>,
    is_call: &dyn Fn(&Range<usize>) -> bool,
) -> Option<(CallSyntax, Range<usize>)> {
    let mut found: Vec<(CallSyntax, Range<usize>)> = Vec::new();
    for call in objects().chain([python()]) {
        for bytes in ProsePattern::of(&syntax("", call.clone(), "")).matches(prose) {
            let tags = tags(prose.text, &bytes).filter(|_| is_call(&bytes));
            found.extend(
                tags.map(|(open, close, bytes)| (syntax(&open, call.clone(), &close), bytes)),
            );
        }
    }
    found.into_iter().min_by_key(|(_, bytes)| bytes.start)
}

/// The syntax of a call that is an object without tags, and the range of its example.
pub(super) fn bare_call(
    prose: &Prose<'_>,
    is_call: &dyn Fn(&Range<usize>) -> bool,
) -> Option<(CallSyntax, Range<usize>)> {
    let found = objects().flat_map(|object| {
        let bare = syntax("", object, "");
        let matches = ProsePattern::of(&bare).matches(prose).into_iter();
        matches.filter(is_call).map(move |bytes| (bare.clone(), bytes)).collect::<Vec<_>>()
    });
    found.min_by_key(|(_, bytes)| bytes.start)
}

/// The objects that may be calls.
fn objects() -> impl Iterator<Item = Vec<CallPart>> {
    NAME_KEYS.into_iter().flat_map(|name| {
        ARGUMENT_KEYS.into_iter().flat_map(move |arguments| {
            [true, false].map(|name_first| object(name, arguments, name_first))
        })
    })
}

/// The parts of `{name}({arguments})`.
fn python() -> Vec<CallPart> {
    let text = |text: &str| CallPart::Text(text.to_owned().into());
    vec![CallPart::Name, text("("), CallPart::Arguments(Encoding::python()), text(")")]
}

/// The parts of `{"name": "{name}", "arguments": {arguments}}`.
fn object(name: &str, arguments: &str, name_first: bool) -> Vec<CallPart> {
    let text = |text: String| CallPart::Text(text.into());
    let json = CallPart::Arguments(Encoding::Json);
    if name_first {
        vec![
            text(format!("{{\"{name}\": \"")),
            CallPart::Name,
            text(format!("\", \"{arguments}\": ")),
            json,
            text("}".to_owned()),
        ]
    } else {
        vec![
            text(format!("{{\"{arguments}\": ")),
            json,
            text(format!(", \"{name}\": \"")),
            CallPart::Name,
            text("\"}".to_owned()),
        ]
    }
}

/// A call whose object follows `open` and is followed by `close`. Calls in a list share the tags.
fn syntax(open: &str, object: Vec<CallPart>, close: &str) -> CallSyntax {
    let list = open.trim_end().ends_with('[');
    let text = |text: &str| CallPart::Text(text.to_owned().into());
    let (mut section, mut call) = ((String::new(), String::new()), object);
    if list {
        section = (open.to_owned(), close.to_owned());
    } else if !open.is_empty() {
        call.insert(0, text(open));
        call.push(text(close));
    }
    CallSyntax {
        open: section.0.into(),
        close: section.1.into(),
        separator: if list { ", " } else { "\n" }.into(),
        call,
        parallel: true,
    }
}

/// The tags around an example, with the whitespace and the bracket between them, and the range of
/// all of it.
fn tags(text: &str, example: &Range<usize>) -> Option<(String, String, Range<usize>)> {
    let before = text[..example.start].trim_end_matches(|c: char| c.is_whitespace() || c == '[');
    let start = tag_before(before)?;
    let between = &text[before.len()..example.start];
    let after = &text[example.end..];
    let at = after.find(['<', '['])?;
    // An ellipsis may stand for more calls.
    let more = |c: char| c.is_whitespace() || matches!(c, ']' | ',' | '.');
    let close = if after[..at].chars().all(more) { &after[..at] } else { return None };
    let close = &close[close.rfind(']').or(close.rfind('.').map(|at| at + 1)).unwrap_or(0)..];
    let end = at + closing_tag(&after[at..], &before[start..])?;
    let open = format!("{}{between}", &before[start..]);
    Some((open, format!("{close}{}", &after[at..end]), start..example.end + end))
}

/// The start of the tag at the end of a text: `<call>`, `<|call|>`, `[CALL]`.
fn tag_before(text: &str) -> Option<usize> {
    let open = match text.chars().next_back()? {
        '>' => '<',
        ']' => '[',
        _ => return None,
    };
    let start = text.rfind(open)?;
    let tag = &text[start..];
    (tag.len() > 2 && !tag.contains(char::is_whitespace)).then_some(start)
}

/// The length of the tag at the start of a text, if it can close `open`.
fn closing_tag(text: &str, open: &str) -> Option<usize> {
    let close = match text.chars().next()? {
        '<' => '>',
        '[' => ']',
        _ => return None,
    };
    let end = text.find(close)? + 1;
    let tag = &text[..end];
    (!tag.contains(char::is_whitespace) && tag != open).then_some(end)
}
