//! String methods that search for another string.

use std::ops::Range;

use num_bigint::Sign;

use crate::jinja::error::{Result, type_error};
use crate::jinja::eval::arguments::{Args, integer, string};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::value::Value;
use crate::jinja::value::text::Text;

/// `startswith` and `endswith`.
pub(super) fn has_affix(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let ([affix], [start, end]) = args.bind(name, ["prefix"], ["start", "end"])?;
    let part = window(text, start, end)?.map(|window| text.slice(window));
    let matches = |affix: &Value| -> Result<bool> {
        interpreter.budget.step(1)?;
        let affix = string(&interpreter.budget, affix, &format!("{name} first arg"))?.as_str();
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
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let [affix] = args.required(name, ["affix"])?;
    let affix = string(&interpreter.budget, &affix, "argument")?.as_str();
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
pub(super) fn locate(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let ([part], [start, end]) = args.bind(name, ["sub"], ["start", "end"])?;
    let part = string(&interpreter.budget, &part, "argument")?;
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
