//! Methods of strings.

use std::collections::HashSet;
use std::rc::Rc;

use num_bigint::Sign;

use crate::jinja::budget::Budget;
use crate::jinja::builtins::format;
use crate::jinja::error::{Result, TemplateError};
use crate::jinja::unicode;
use crate::jinja::value::Value;
use crate::jinja::value::iterate;
use crate::jinja::value::markup;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::vm::arguments::{Args, integer, string};
use crate::jinja::vm::interpreter::Interpreter;

use super::case::{changed_case, is};
use super::html::{strip_tags, unescape};

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
pub(super) const MARKUP_NAMES: [&str; 3] = ["escape", "striptags", "unescape"];

pub(super) fn call(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &Text,
    args: Args,
) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let budget = &budget;
    budget.step_bytes(text.len())?;
    match name.as_str() {
        "format" => {
            let named =
                args.named.into_iter().map(|(name, value)| (Value::Text(name), value)).collect();
            let named = Value::dict(budget, named)?;
            format::format(interpreter, text, args.positional, named)
        }
        "format_map" => {
            let [mapping] = args.bind("format_map", ["mapping"], 1)?;
            let Some(Value::Dict(dict)) = mapping else {
                return Err(TemplateError::value("format_map() takes a mapping"));
            };
            format::format(interpreter, text, Vec::new(), Value::Dict(dict))
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            strip(budget, text, name, chars)
        }
        "startswith" | "endswith" => {
            let [affix, start, end] = args.bind(name, ["prefix", "start", "end"], 1)?;
            let part = window(text, start, end)?.map(|window| text.slice(window));
            let matches = |affix: &Value| -> Result<bool> {
                budget.step(1)?;
                let affix = string(affix, &format!("{} first arg", name.as_str()))?;
                let Some(part) = &part else { return Ok(false) };
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
                    return Err(TemplateError::value(format!(
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
                Some(separator) => Some(string(&separator, "separator")?.clone()),
                None => None,
            };
            split(budget, text, separator.as_ref(), limit, name.as_str() == "rsplit")
        }
        "splitlines" => {
            let [keep] = args.bind("splitlines", ["keepends"], 0)?;
            let keep = keep.map_or(Ok(0), |keep| integer(&keep))? != 0;
            lines(budget, text, keep)
        }
        "replace" => {
            let [old, new, count] = args.bind("replace", ["old", "new", "count"], 2)?;
            let (old, new) = (old.unwrap_or(Value::None), new.unwrap_or(Value::None));
            let old = string(&old, "replace() argument 1")?;
            let new = markup::argument(budget, text, string(&new, "replace() argument 2")?)?;
            let count = count.map_or(Ok(-1), |count| integer(&count))?;
            Ok(Value::Text(
                replace(budget, text, old, &new, usize::try_from(count).ok())?
                    .with_safe(text.is_safe()),
            ))
        }
        "join" => {
            let [items] = args.bind("join", ["iterable"], 1)?;
            let items = items.unwrap_or(Value::None);
            let items = match &items {
                Value::None | Value::Int(_) | Value::Bool(_) | Value::Float(_) => {
                    return Err(TemplateError::value("can only join an iterable"));
                }
                items => iterate::items(budget, items)?,
            };
            let mut out = TextBuilder::new(budget);
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_text(text)?;
                }
                match item {
                    item if text.is_safe() => out.push_text(&markup::escape(budget, item)?)?,
                    Value::Text(item) => out.push_text(&markup::argument(budget, text, item)?)?,
                    other => {
                        return Err(TemplateError::value(format!(
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
            let separator = string(&separator, "separator")?;
            if separator.is_empty() {
                return Err(TemplateError::value("empty separator"));
            }
            let from_end = name.as_str() == "rpartition";
            let at = if from_end {
                text.rfind(separator.as_str())
            } else {
                text.find(separator.as_str())
            };
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
                        _ => {
                            return Err(TemplateError::value(
                                "The fill character must be exactly one character long",
                            ));
                        }
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
            out.push_fill('0', padding)?;
            out.push_text(&text.slice(sign..text.len()))?;
            Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
        }
        "expandtabs" => {
            let [size] = args.bind("expandtabs", ["tabsize"], 0)?;
            let size = size.map_or(Ok(8), |size| integer(&size))?;
            expand_tabs(budget, text, usize::try_from(size).unwrap_or(0))
        }
        "escape" => {
            let [value] = args.bind("escape", ["s"], 1)?;
            Ok(Value::Text(markup::escape(budget, &value.unwrap_or(Value::None))?))
        }
        "striptags" => {
            args.expect_none("striptags").and_then(|()| Ok(Value::Text(strip_tags(budget, text)?)))
        }
        "unescape" => {
            args.expect_none("unescape").and_then(|()| Ok(Value::Text(unescape(budget, text)?)))
        }
        other => {
            args.expect_none(other)?;
            match changed_case(budget, text, other)? {
                Some(text) => Ok(Value::Text(text)),
                None => Ok(Value::Bool(is(text, other))),
            }
        }
    }
}

fn strip(budget: &Rc<Budget>, text: &Text, name: &str, chars: Option<Value>) -> Result<Value> {
    let set: Option<HashSet<char>> = match chars.filter(|chars| !chars.is_none()) {
        Some(chars) => {
            let chars = string(&chars, &format!("{name} arg"))?.clone();
            budget.step_bytes(chars.len())?;
            budget.can_allocate(chars.len().saturating_mul(4 * size_of::<char>()))?;
            Some(chars.chars().collect())
        }
        None => None,
    };
    let strips = |c: char| match &set {
        Some(set) => set.contains(&c),
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
fn window(
    text: &Text,
    start: Option<Value>,
    end: Option<Value>,
) -> Result<Option<std::ops::Range<usize>>> {
    if start.is_none() && end.is_none() {
        return Ok(Some(0..text.len()));
    }
    let count = i64::try_from(text.char_count()).unwrap_or(i64::MAX);
    let bound = |value: Option<Value>, default: i64| -> Result<i64> {
        match value.filter(|value| !value.is_none()) {
            None => Ok(default),
            Some(Value::Big(number)) => Ok(if number.sign() == Sign::Minus { 0 } else { i64::MAX }),
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
    let byte = |at: i64| text.byte_of_char(usize::try_from(at).unwrap_or(usize::MAX));
    Ok(Some(byte(start)..byte(end)))
}

fn locate(
    text: &Text,
    name: &str,
    part: &Text,
    start: Option<Value>,
    end: Option<Value>,
) -> Result<Value> {
    let Some(range) = window(text, start, end)? else {
        return match name {
            "count" => Ok(Value::Int(0)),
            "find" | "rfind" => Ok(Value::Int(-1)),
            _ => Err(TemplateError::value("substring not found")),
        };
    };
    let searched = &text.as_str()[range.clone()];
    if name == "count" {
        let count = if part.is_empty() {
            searched.chars().count() + 1
        } else {
            searched.matches(part.as_str()).count()
        };
        return Ok(Value::count(count));
    }
    let found = if name.starts_with('r') {
        searched.rfind(part.as_str())
    } else {
        searched.find(part.as_str())
    };
    match found {
        Some(at) => Ok(Value::count(text.as_str()[..range.start + at].chars().count())),
        None if name.ends_with("find") => Ok(Value::Int(-1)),
        None => Err(TemplateError::value("substring not found")),
    }
}

fn split(
    budget: &Rc<Budget>,
    text: &Text,
    separator: Option<&Text>,
    limit: Option<usize>,
    from_end: bool,
) -> Result<Value> {
    let source = text.as_str();
    let limit = limit.unwrap_or(usize::MAX);
    let mut parts: Vec<Value> = Vec::new();
    let push = |parts: &mut Vec<Value>, part: &str| -> Result<()> {
        if parts.len() == parts.capacity() {
            budget.can_allocate((parts.len() + 1) * 4 * size_of::<Value>())?;
        }
        budget.step(1)?;
        parts.push(Value::Text(text.part(part)));
        Ok(())
    };
    match separator {
        Some(separator) if separator.is_empty() => {
            return Err(TemplateError::value("empty separator"));
        }
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
                let start = rest
                    .char_indices()
                    .rev()
                    .find(|(_, c)| unicode::is_space(*c))
                    .map_or(0, |(at, c)| at + c.len_utf8());
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
    Value::list(budget, parts)
}

/// The lines of a text.
pub(crate) fn line_parts(text: &str, keep_ends: bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = rest.find(unicode::is_line_break).unwrap_or(rest.len());
        let mut after = rest[length..].chars();
        if after.next() == Some('\r') && after.as_str().starts_with('\n') {
            after.next();
        }
        let end = rest.len() - after.as_str().len();
        let line = &rest[..if keep_ends { end } else { length }];
        rest = &rest[end..];
        Some(line)
    })
}

fn lines(budget: &Rc<Budget>, text: &Text, keep_ends: bool) -> Result<Value> {
    let count = line_parts(text, keep_ends).count();
    budget.step(count as u64)?;
    budget.can_allocate(count.saturating_mul(4 * size_of::<Value>()))?;
    Value::list(
        budget,
        line_parts(text, keep_ends).map(|part| Value::Text(text.part(part))).collect(),
    )
}

/// `text.replace(old, new, count)`
pub(crate) fn replace(
    budget: &Rc<Budget>,
    text: &Text,
    old: &Text,
    new: &Text,
    count: Option<usize>,
) -> Result<Text> {
    let count = count.unwrap_or(usize::MAX);
    let mut out = TextBuilder::new(budget);
    if old.is_empty() {
        let mut done = 0;
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]).take(count) {
            out.push_text(&text.slice(done..at))?;
            out.push_text(new)?;
            done = at;
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
pub(crate) fn pad(
    budget: &Rc<Budget>,
    text: &Text,
    name: &str,
    width: usize,
    fill: char,
) -> Result<Text> {
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
    out.push_fill(fill, left)?;
    out.push_text(text)?;
    out.push_fill(fill, padding - left)?;
    Ok(out.finish()?.with_safe(text.is_safe()))
}

fn expand_tabs(budget: &Rc<Budget>, text: &Text, size: usize) -> Result<Value> {
    let mut out = TextBuilder::new(budget);
    let mut column = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                budget.step_bytes(spaces)?;
                budget.can_allocate(spaces)?;
                out.push_from(&" ".repeat(spaces), text.source_at(at))?;
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
