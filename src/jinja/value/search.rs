//! String methods that search a string or split it.

use std::ops::Range;
use std::rc::Rc;

use num_bigint::Sign;

use super::Value;
use super::arguments::{Args, integer, string};
use super::text::Text;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, type_error};
use crate::jinja::unicode;

/// `startswith` and `endswith`.
pub(super) fn has_affix(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let ([affix], [start, end]) = args.bind(name, ["prefix"], ["start", "end"])?;
    let part = window(text, start, end)?.map(|window| text.slice(window));
    let matches = |affix: &Value| -> Result<bool> {
        budget.step(1)?;
        let affix = string(budget, affix, &format!("{name} first arg"))?.as_str();
        let Some(part) = &part else { return Ok(false) };
        Ok(if name == "startswith" { part.starts_with(affix) } else { part.ends_with(affix) })
    };
    let found = match affix {
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
            return type_error(format!(
                "{name} first arg must be str or a tuple of str, not {}",
                other.type_name()
            ));
        }
    };
    Ok(Value::Bool(found))
}

/// `removeprefix` and `removesuffix`.
pub(super) fn remove_affix(
    budget: &Rc<Budget>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let [affix] = args.required(name, ["affix"])?;
    let affix = string(budget, &affix, "argument")?.as_str();
    let rest =
        if name == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
    Ok(Value::Text(rest.map_or_else(|| text.clone(), |rest| text.part(rest))))
}

/// The byte range between two character indices. None if the start is after the end.
fn window(text: &Text, start: Option<Value>, end: Option<Value>) -> Result<Option<Range<usize>>> {
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

/// `find`, `rfind`, `index`, `rindex` and `count`.
pub(super) fn locate(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let ([part], [start, end]) = args.bind(name, ["sub"], ["start", "end"])?;
    let part = string(budget, &part, "argument")?;
    let Some(range) = window(text, start, end)? else {
        return match name {
            "count" => Ok(Value::int(0)),
            "find" | "rfind" => Ok(Value::int(-1)),
            _ => type_error("substring not found"),
        };
    };
    let searched = &text.as_str()[range.clone()];
    // A searcher reads all of a longer part.
    let fits = part.len() <= searched.len();
    if name == "count" {
        let count = if !fits {
            0
        } else if part.is_empty() {
            searched.chars().count() + 1
        } else {
            searched.matches(part.as_str()).count()
        };
        return Ok(Value::count(count));
    }
    let found = if !fits {
        None
    } else if name.starts_with('r') {
        searched.rfind(part.as_str())
    } else {
        searched.find(part.as_str())
    };
    match found {
        Some(at) => Ok(Value::count(text.as_str()[..range.start + at].chars().count())),
        None if name.ends_with("find") => Ok(Value::int(-1)),
        None => type_error("substring not found"),
    }
}

/// `split` and `rsplit`.
pub(super) fn split(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let [separator, limit] = args.optional(name, ["sep", "maxsplit"])?;
    let limit = limit.map_or(Ok(-1), |limit| integer(&limit))?;
    let limit = usize::try_from(limit).ok();
    let separator = match separator.filter(|separator| !separator.is_none()) {
        Some(separator) => Some(string(budget, &separator, "separator")?.clone()),
        None => None,
    };
    split_at(budget, text, separator.as_ref(), limit, name == "rsplit")
}

fn split_at(
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
        Some(separator) if separator.is_empty() => return type_error("empty separator"),
        Some(separator) if separator.len() > source.len() => push(&mut parts, source)?,
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

/// `partition` and `rpartition`.
pub(super) fn partition(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let [separator] = args.required(name, ["sep"])?;
    let separator = string(budget, &separator, "separator")?;
    if separator.is_empty() {
        return type_error("empty separator");
    }
    let from_end = name == "rpartition";
    let at = if separator.len() > text.len() {
        None
    } else if from_end {
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

pub(super) fn splitlines(budget: &Rc<Budget>, text: &Text, _: &str, args: Args) -> Result<Value> {
    let [keep_ends] = args.optional("splitlines", ["keepends"])?;
    let keep_ends = keep_ends.map_or(Ok(0), |keep| integer(&keep))? != 0;
    let count = line_parts(text, keep_ends).count();
    budget.step(count as u64)?;
    budget.can_allocate(count.saturating_mul(4 * size_of::<Value>()))?;
    Value::list(
        budget,
        line_parts(text, keep_ends).map(|part| Value::Text(text.part(part))).collect(),
    )
}
