//! String methods that split.

use std::rc::Rc;

use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, type_error};
use crate::jinja::eval::arguments::{Args, integer, string};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::unicode;
use crate::jinja::value::Value;
use crate::jinja::value::text::Text;

/// `split` and `rsplit`.
pub(super) fn split(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let [separator, limit] = args.optional(name, ["sep", "maxsplit"])?;
    let limit = limit.map_or(Ok(-1), |limit| integer(&limit))?;
    let limit = usize::try_from(limit).ok();
    let separator = match separator.filter(|separator| !separator.is_none()) {
        Some(separator) => Some(string(&interpreter.budget, &separator, "separator")?.clone()),
        None => None,
    };
    split_at(&interpreter.budget, text, separator.as_ref(), limit, name == "rsplit")
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
pub(super) fn partition(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    name: &str,
    args: Args,
) -> Result<Value> {
    let [separator] = args.required(name, ["sep"])?;
    let separator = string(&interpreter.budget, &separator, "separator")?;
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
    Value::tuple(&interpreter.budget, parts.into_iter().map(Value::Text).collect())
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

pub(super) fn splitlines(
    interpreter: &mut Interpreter<'_>,
    text: &Text,
    _: &str,
    args: Args,
) -> Result<Value> {
    let budget = &interpreter.budget;
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
