//! Methods of strings.

use std::rc::Rc;

use crate::jinja::args::{Args, integer, string};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Error, Result};
use crate::jinja::interpreter::Interpreter;
use crate::jinja::markup;
use crate::jinja::predicates::is_case;
use crate::jinja::text::{Text, TextBuilder};
use crate::jinja::value::Value;
use crate::jinja::{format, iterate, unicode};

/// The methods of every string.
pub(super) const NAMES: [&str; 44] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
/// Those of markup alone.
pub(super) const MARKUP_NAMES: [&str; 2] = ["striptags", "unescape"];

pub(super) fn call(interpreter: &mut Interpreter<'_>, text: &Text, name: &Text, args: Args) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let budget = &budget;
    budget.read(text.len())?;
    match name.as_str() {
        "format" => format::format(interpreter, text, args),
        "format_map" => {
            let [mapping] = args.bind("format_map", ["mapping"], 1)?;
            let Some(Value::Dict(dict)) = mapping else { return Err(Error::value("format_map() takes a mapping")) };
            let named =
                dict.entries().iter().filter_map(|(key, value)| Some((key.as_text()?.clone(), value.clone()))).collect();
            format::format(interpreter, text, Args { positional: Vec::new(), named })
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            strip(budget, text, name, chars)
        }
        "startswith" | "endswith" => {
            let [affix, start, end] = args.bind(name, ["prefix", "start", "end"], 1)?;
            let part = text.slice(window(text, start, end)?.unwrap_or(0..0));
            let matches = |affix: &Value| -> Result<bool> {
                let affix = string(affix, &format!("{} first arg", name.as_str()))?;
                Ok(if name.as_str() == "startswith" {
                    part.starts_with(affix.as_str())
                } else {
                    part.ends_with(affix.as_str())
                })
            };
            let found = match affix.unwrap_or(Value::None) {
                Value::Tuple(affixes) => {
                    let mut found = false;
                    for affix in affixes.items().iter() {
                        found = found || matches(affix)?;
                    }
                    found
                }
                affix @ Value::Text(_) => matches(&affix)?,
                other => {
                    other.defined()?;
                    return Err(Error::value(format!(
                        "{} first arg must be str or a tuple of str, not {}",
                        name.as_str(),
                        other.type_name()
                    )));
                }
            };
            Ok(Value::Bool(found))
        }
        "split" | "rsplit" => {
            let [separator, limit] = args.bind(name, ["sep", "maxsplit"], 0)?;
            let limit = limit.map_or(Ok(-1), |limit| integer(&limit))?;
            let limit = usize::try_from(limit).ok();
            let separator = match separator.filter(|separator| !separator.is_none()) {
                Some(separator) => Some(markup::argument(budget, text, string(&separator, "separator")?)?),
                None => None,
            };
            split(budget, text, separator.as_ref(), limit, name.as_str() == "rsplit")
        }
        "splitlines" => {
            let [keep] = args.bind("splitlines", ["keepends"], 0)?;
            lines(budget, text, keep.is_some_and(|keep| keep.is_true()))
        }
        "replace" => {
            let [old, new, count] = args.bind("replace", ["old", "new", "count"], 2)?;
            let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
            let old = markup::argument(budget, text, string(&old, "replace() argument 1")?)?;
            let new = markup::argument(budget, text, string(&new, "replace() argument 2")?)?;
            let count = count.map_or(Ok(-1), |count| integer(&count))?;
            Ok(Value::Text(replace(budget, text, &old, &new, usize::try_from(count).ok())?.with_safe(text.is_safe())))
        }
        "join" => {
            let [items] = args.bind("join", ["iterable"], 1)?;
            let items = items.unwrap_or(Value::None);
            let items = match &items {
                Value::None | Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
                    return Err(Error::value("can only join an iterable"));
                }
                items => iterate::items(budget, items)?,
            };
            let mut out = TextBuilder::new(budget);
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_text(text)?;
                }
                match item {
                    Value::Text(item) => out.push_text(&markup::argument(budget, text, item)?)?,
                    other => {
                        return Err(Error::value(format!(
                            "sequence item {index}: expected str instance, {} found",
                            other.type_name()
                        )));
                    }
                }
            }
            Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, start, end] = args.bind(name, ["sub", "start", "end"], 1)?;
            let part = part.unwrap_or(Value::None);
            let part = string(&part, "argument")?;
            locate(text, name, part, start, end)
        }
        "partition" | "rpartition" => {
            let [separator] = args.bind(name, ["sep"], 1)?;
            let separator = separator.unwrap_or(Value::None);
            let separator = markup::argument(budget, text, string(&separator, "separator")?)?;
            if separator.is_empty() {
                return Err(Error::value("empty separator"));
            }
            let from_end = name.as_str() == "rpartition";
            let at = if from_end { text.rfind(separator.as_str()) } else { text.find(separator.as_str()) };
            let empty = || text.slice(0..0);
            let parts = match at {
                Some(at) => {
                    let after = at + separator.len();
                    [text.slice(0..at), text.slice(at..after), text.slice(after..text.len())]
                }
                None if from_end => [empty(), empty(), text.clone()],
                None => [text.clone(), empty(), empty()],
            };
            Value::tuple(budget, parts.into_iter().map(Value::Text).collect())
        }
        "removeprefix" | "removesuffix" => {
            let [affix] = args.bind(name, ["affix"], 1)?;
            let affix = affix.unwrap_or(Value::None);
            let affix = string(&affix, "argument")?;
            let rest = if name.as_str() == "removeprefix" {
                text.strip_prefix(affix.as_str())
            } else {
                text.strip_suffix(affix.as_str())
            };
            Ok(Value::Text(rest.map_or_else(|| text.clone(), |rest| text.part(rest))))
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = args.bind(name, ["width", "fillchar"], 1)?;
            let width = integer(&width.unwrap_or(Value::None))?;
            let fill = match &fill {
                None => ' ',
                Some(fill) => {
                    let fill = string(fill, "The fill character")?;
                    let mut chars = fill.chars();
                    match (chars.next(), chars.next()) {
                        (Some(fill), None) => fill,
                        _ => return Err(Error::value("The fill character must be exactly one character long")),
                    }
                }
            };
            Ok(Value::Text(pad(budget, text, name, usize::try_from(width).unwrap_or(0), fill)?))
        }
        "zfill" => {
            let [width] = args.bind("zfill", ["width"], 1)?;
            let width = usize::try_from(integer(&width.unwrap_or(Value::None))?).unwrap_or(0);
            let padding = width.saturating_sub(text.char_count());
            let sign = usize::from(text.starts_with(['+', '-']));
            let mut out = TextBuilder::new(budget);
            out.reserve(text.len().saturating_add(padding))?;
            out.push_text(&text.slice(0..sign))?;
            for _ in 0..padding {
                out.push("0")?;
            }
            out.push_text(&text.slice(sign..text.len()))?;
            Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
        }
        "expandtabs" => {
            let [size] = args.bind("expandtabs", ["tabsize"], 0)?;
            let size = size.map_or(Ok(8), |size| integer(&size))?;
            expand_tabs(budget, text, usize::try_from(size).unwrap_or(0))
        }
        "striptags" => args.none("striptags").and_then(|()| Ok(Value::Text(strip_tags(budget, text)?))),
        "unescape" => args.none("unescape").and_then(|()| Ok(Value::Text(unescape(budget, text)?))),
        other => {
            args.none(other)?;
            match changed_case(budget, text, other)? {
                Some(text) => Ok(Value::Text(text)),
                None => Ok(Value::Bool(is(text, other))),
            }
        }
    }
}

/// `upper`, `lower` and their like.
pub(crate) fn changed_case(budget: &Rc<Budget>, text: &Text, name: &str) -> Result<Option<Text>> {
    let mut previous_cased = false;
    let changed = match name {
        "upper" => text.map_chars(budget, |_, c, out| out.extend(c.to_uppercase()))?,
        "casefold" => text.map_chars(budget, |_, c, out| match c {
            'ß' | 'ẞ' => out.push_str("ss"),
            'ς' => out.push('σ'),
            c => out.extend(c.to_lowercase()),
        })?,
        "lower" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| lower(source, at, c, out))?
        }
        "swapcase" => {
            let source = text.as_str();
            text.map_chars(
                budget,
                |at, c, out| {
                    if c.is_uppercase() { lower(source, at, c, out) } else { out.extend(c.to_uppercase()) }
                },
            )?
        }
        "capitalize" => {
            let source = text.as_str();
            text.map_chars(
                budget,
                |at, c, out| {
                    if at == 0 { out.push_str(&unicode::to_title(c)) } else { lower(source, at, c, out) }
                },
            )?
        }
        "title" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if previous_cased {
                    lower(source, at, c, out)
                } else {
                    out.push_str(&unicode::to_title(c))
                }
                previous_cased = unicode::is_cased(c);
            })?
        }
        _ => return Ok(None),
    };
    Ok(Some(changed))
}

/// A lower-case character; a sigma at the end of a word has a form of its own.
fn lower(text: &str, at: usize, c: char, out: &mut String) {
    if c == 'Σ' {
        let ignorable = |c: &char| !matches!(c, '\'' | '.' | ':' | '\u{ad}' | '\u{b7}' | '\u{2019}');
        let cased = |c: Option<char>| c.is_some_and(unicode::is_cased);
        let before = text[..at].chars().rev().find(ignorable);
        let after = text[at + c.len_utf8()..].chars().find(ignorable);
        out.push(if cased(before) && !cased(after) { 'ς' } else { 'σ' });
    } else {
        out.extend(c.to_lowercase());
    }
}

fn is(text: &Text, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(|c| c.is_numeric() && (c.is_ascii_digit() || is_decimal(c))),
        "isdigit" => all(|c| c.is_ascii_digit() || is_decimal(c) || is_digit_form(c)),
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c))
                && chars.all(unicode_ident::is_xid_continue)
        }
        "islower" => is_case(text, char::is_lowercase),
        "isupper" => is_case(text, char::is_uppercase),
        "isprintable" => text.chars().all(unicode::is_printable),
        "isspace" => all(unicode::is_space),
        "istitle" => {
            let mut previous_cased = false;
            let mut any = false;
            for c in text.chars() {
                let cased = unicode::is_cased(c);
                if cased && (c.is_lowercase() != previous_cased) {
                    return false;
                }
                any |= cased;
                previous_cased = cased;
            }
            any
        }
        _ => false,
    }
}

/// Decimal digits outside of ASCII: the blocks of ten that Unicode has them in.
fn is_decimal(c: char) -> bool {
    const ZEROS: [u32; 37] = [
        0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20, 0x1040,
        0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0,
        0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0,
    ];
    let code = u32::from(c);
    ZEROS.iter().any(|zero| (*zero..zero + 10).contains(&code)) || (0x1d7ce..=0x1d7ff).contains(&code)
}

/// Superscripts and their like: digits, but no decimals.
fn is_digit_form(c: char) -> bool {
    matches!(c, '²' | '³' | '¹' | '\u{2070}' | '\u{2074}'..='\u{2079}' | '\u{2080}'..='\u{2089}' | '\u{2460}'..='\u{2468}')
}

fn strip(budget: &Rc<Budget>, text: &Text, name: &str, chars: Option<Value>) -> Result<Value> {
    let _ = budget;
    let chars = chars.filter(|chars| !chars.is_none());
    let set: Option<Text> = match &chars {
        Some(chars) => Some(string(chars, &format!("{name} arg"))?.clone()),
        None => None,
    };
    let strips = |c: char| match &set {
        Some(set) => set.contains(c),
        None => unicode::is_space(c),
    };
    let mut rest = text.as_str();
    if name != "rstrip" {
        rest = rest.trim_start_matches(strips);
    }
    if name != "lstrip" {
        rest = rest.trim_end_matches(strips);
    }
    Ok(Value::Text(text.part(rest)))
}

/// `text.strip(chars)`, for the filter.
pub(crate) fn trim(budget: &Rc<Budget>, text: &Text, chars: Option<Value>) -> Result<Value> {
    strip(budget, text, "strip", chars)
}

/// The bytes between two indices that count characters; None where the start lies behind the end.
fn window(text: &Text, start: Option<Value>, end: Option<Value>) -> Result<Option<std::ops::Range<usize>>> {
    if start.is_none() && end.is_none() {
        return Ok(Some(0..text.len()));
    }
    let count = i64::try_from(text.char_count()).unwrap_or(i64::MAX);
    let bound = |value: Option<Value>, default: i64| -> Result<i64> {
        match value.filter(|value| !value.is_none()) {
            None => Ok(default),
            Some(value) => {
                let at = integer(&value)?;
                Ok(if at < 0 { at.saturating_add(count).max(0) } else { at })
            }
        }
    };
    let (start, end) = (bound(start, 0)?, bound(end, count)?.min(count));
    if start > end {
        return Ok(None);
    }
    let byte = |at: i64| {
        let at = usize::try_from(at).unwrap_or(0);
        if text.is_ascii() { at.min(text.len()) } else { text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte) }
    };
    Ok(Some(byte(start)..byte(end)))
}

fn locate(text: &Text, name: &str, part: &Text, start: Option<Value>, end: Option<Value>) -> Result<Value> {
    let Some(range) = window(text, start, end)? else {
        return match name {
            "count" => Ok(Value::Int(0)),
            "find" | "rfind" => Ok(Value::Int(-1)),
            _ => Err(Error::value("substring not found")),
        };
    };
    let searched = &text.as_str()[range.clone()];
    if name == "count" {
        let count = if part.is_empty() { searched.chars().count() + 1 } else { searched.matches(part.as_str()).count() };
        return Ok(Value::count(count));
    }
    let found = if name.starts_with('r') { searched.rfind(part.as_str()) } else { searched.find(part.as_str()) };
    match found {
        Some(at) => Ok(Value::count(text.as_str()[..range.start + at].chars().count())),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(Error::value("substring not found")),
    }
}

fn split(budget: &Rc<Budget>, text: &Text, separator: Option<&Text>, limit: Option<usize>, from_end: bool) -> Result<Value> {
    let source = text.as_str();
    let limit = limit.unwrap_or(usize::MAX);
    let mut parts: Vec<Value> = Vec::new();
    let push = |parts: &mut Vec<Value>, part: &str| -> Result<()> {
        if parts.len() == parts.capacity() {
            budget.can_allocate((parts.len() + 1) * 2 * size_of::<Value>())?;
        }
        parts.push(Value::Text(text.part(part)));
        Ok(())
    };
    match separator {
        Some(separator) if separator.is_empty() => return Err(Error::value("empty separator")),
        Some(separator) if from_end => {
            for part in source.rsplitn(limit.saturating_add(1), separator.as_str()) {
                push(&mut parts, part)?;
            }
            parts.reverse();
        }
        Some(separator) => {
            for part in source.splitn(limit.saturating_add(1), separator.as_str()) {
                push(&mut parts, part)?;
            }
        }
        None if from_end => {
            let mut rest = source.trim_end_matches(unicode::is_space);
            while !rest.is_empty() {
                if parts.len() == limit {
                    push(&mut parts, rest)?;
                    break;
                }
                let start =
                    rest.char_indices().rev().find(|(_, c)| unicode::is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
                push(&mut parts, &rest[start..])?;
                rest = rest[..start].trim_end_matches(unicode::is_space);
            }
            parts.reverse();
        }
        None => {
            let mut rest = source.trim_start_matches(unicode::is_space);
            while !rest.is_empty() {
                if parts.len() == limit {
                    push(&mut parts, rest)?;
                    break;
                }
                let end = rest.find(unicode::is_space).unwrap_or(rest.len());
                push(&mut parts, &rest[..end])?;
                rest = rest[end..].trim_start_matches(unicode::is_space);
            }
        }
    }
    budget.step(parts.len() as u64)?;
    Value::list(budget, parts)
}

/// The lines of a text.
pub(crate) fn line_parts(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !unicode::is_line_break(c) {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.peek().is_some_and(|(_, next)| *next == '\n') {
            chars.next();
            end += 1;
        }
        lines.push(&text[start..if keep_ends { end } else { at }]);
        start = end;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

fn lines(budget: &Rc<Budget>, text: &Text, keep_ends: bool) -> Result<Value> {
    budget.can_allocate(text.chars().filter(|c| unicode::is_line_break(*c)).count() * 2 * size_of::<Value>())?;
    let parts = line_parts(text, keep_ends);
    budget.step(parts.len() as u64)?;
    Value::list(budget, parts.into_iter().map(|part| Value::Text(text.part(part))).collect())
}

/// `text.replace(old, new, count)`
pub(crate) fn replace(budget: &Rc<Budget>, text: &Text, old: &Text, new: &Text, count: Option<usize>) -> Result<Text> {
    let count = count.unwrap_or(usize::MAX);
    let mut out = TextBuilder::new(budget);
    if old.is_empty() {
        let mut done = 0;
        let mut times = 0;
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
            if times == count {
                break;
            }
            out.push_text(&text.slice(done..at))?;
            out.push_text(new)?;
            done = at;
            times += 1;
        }
        out.push_text(&text.slice(done..text.len()))?;
        return out.finish();
    }
    let mut done = 0;
    let mut found_any = false;
    for (at, matched) in text.match_indices(old.as_str()).take(count) {
        found_any = true;
        out.push_text(&text.slice(done..at))?;
        out.push_text(new)?;
        done = at + matched.len();
        budget.step(1)?;
    }
    if !found_any {
        return Ok(text.clone());
    }
    out.push_text(&text.slice(done..text.len()))?;
    out.finish()
}

/// `center`, `ljust`, `rjust`.
pub(crate) fn pad(budget: &Rc<Budget>, text: &Text, name: &str, width: usize, fill: char) -> Result<Text> {
    let count = text.char_count();
    let padding = width.saturating_sub(count);
    if padding == 0 {
        return Ok(text.clone());
    }
    let left = match name {
        "rjust" => padding,
        // Python's rounding of the odd one.
        "center" => padding / 2 + (padding & width & 1),
        _ => 0,
    };
    let mut out = TextBuilder::new(budget);
    out.reserve(text.len().saturating_add(padding.saturating_mul(fill.len_utf8())))?;
    for _ in 0..left {
        out.push_char(fill)?;
    }
    out.push_text(text)?;
    for _ in left..padding {
        out.push_char(fill)?;
    }
    Ok(out.finish()?.with_safe(text.is_safe()))
}

fn expand_tabs(budget: &Rc<Budget>, text: &Text, size: usize) -> Result<Value> {
    let mut out = TextBuilder::new(budget);
    let mut column = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                budget.can_allocate(spaces)?;
                for _ in 0..spaces {
                    out.push_from(" ", text.source_at(at))?;
                }
                column += spaces;
            }
            c => {
                out.push_text(&text.slice(at..at + c.len_utf8()))?;
                column = if matches!(c, '\n' | '\r') { 0 } else { column + 1 };
            }
        }
    }
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

/// `Markup(text).striptags()`: without comments and tags, blanks joined, entities resolved.
pub(crate) fn strip_tags(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    let source = text.as_str();
    let mut kept = TextBuilder::new(budget);
    let mut at = 0;
    // Comments first: they may hold tags.
    let mut without_comments = TextBuilder::new(budget);
    while let Some(found) = source[at..].find("<!--") {
        let start = at + found;
        let Some(end) = source[start..].find("-->") else { break };
        without_comments.push_text(&text.slice(at..start))?;
        at = start + end + 3;
    }
    without_comments.push_text(&text.slice(at..source.len()))?;
    let text = without_comments.finish()?;
    let source = text.as_str();
    at = 0;
    while let Some(found) = source[at..].find('<') {
        let start = at + found;
        let Some(end) = source[start..].find('>') else { break };
        kept.push_text(&text.slice(at..start))?;
        at = start + end + 1;
    }
    kept.push_text(&text.slice(at..source.len()))?;
    let kept = kept.finish()?;
    let mut joined = TextBuilder::new(budget);
    for (index, word) in kept.split(unicode::is_space).filter(|word| !word.is_empty()).enumerate() {
        if index > 0 {
            joined.push(" ")?;
        }
        joined.push_text(&kept.part(word))?;
    }
    unescape(budget, &joined.finish()?)
}

/// `html.unescape`, for numeric entities and the five names of escaping.
fn unescape(budget: &Rc<Budget>, text: &Text) -> Result<Text> {
    let source = text.as_str();
    let mut out = TextBuilder::new(budget);
    let mut at = 0;
    while let Some(found) = source[at..].find('&') {
        let start = at + found;
        out.push_text(&text.slice(at..start))?;
        let rest = &source[start + 1..];
        let end = rest.find(';').filter(|end| *end <= 10);
        let entity = end.and_then(|end| match &rest[..end] {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some('\u{a0}'),
            name => {
                let code = name.strip_prefix('#')?;
                let code = match code.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => code.parse().ok()?,
                };
                char::from_u32(code)
            }
        });
        match (entity, end) {
            (Some(c), Some(end)) => {
                out.push_from(c.encode_utf8(&mut [0; 4]), text.source_at(start))?;
                at = start + end + 2;
            }
            _ => {
                out.push_text(&text.slice(start..start + 1))?;
                at = start + 1;
            }
        }
    }
    out.push_text(&text.slice(at..source.len()))?;
    Ok(out.finish()?.with_safe(false))
}
