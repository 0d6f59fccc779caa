//! Filters for strings.

use std::rc::Rc;

use super::by_attribute::AttributePath;
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, TemplateError, type_error};
use crate::jinja::eval::interpreter::Interpreter;
use crate::jinja::unicode;
use crate::jinja::value::arguments::{Args, integer};
use crate::jinja::value::compare::MAX_DEPTH;
use crate::jinja::value::text::{Text, TextBuilder};
use crate::jinja::value::{Value, format, markup, print, search, sequence, string_methods};

/// `soft_str(value)`: a string; markup stays markup.
fn soft_str(interpreter: &Interpreter<'_>, value: &Value) -> Result<Text> {
    print::text(&interpreter.budget, value)
}

fn cased(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    args: Args,
    name: &str,
) -> Result<Value> {
    args.expect_none(name)?;
    let text = soft_str(interpreter, value)?;
    let changed = string_methods::changed_case(&interpreter.budget, &text, name)?;
    Ok(Value::Text(changed.unwrap_or(text)))
}

pub(super) fn upper(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    cased(interpreter, &value, args, "upper")
}

pub(super) fn lower(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    cased(interpreter, &value, args, "lower")
}

pub(super) fn capitalize(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    cased(interpreter, &value, args, "capitalize")
}

/// The title case of Jinja2: words start after whitespace, hyphens and opening brackets.
pub(super) fn title(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("title")?;
    let text = soft_str(interpreter, &value)?;
    let mut starts = true;
    let titled = text.map_chars(&interpreter.budget, |_, c, out| {
        let separates = unicode::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
        if separates {
            out.push(c);
        } else if starts {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        starts = separates;
    })?;
    Ok(Value::Text(titled.with_safe(false)))
}

pub(super) fn string(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("string")?;
    // The whole container is converted to text, so for a probe all of it counts as read.
    note_all(&value, 0);
    Ok(Value::Text(soft_str(interpreter, &value)?))
}

fn note_all(value: &Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::List(list) if list.is_watched() => {
            list.items().iter().for_each(|item| note_all(item, depth + 1))
        }
        Value::Dict(dict) if dict.is_watched() => {
            dict.entries().iter().for_each(|(_, value)| note_all(value, depth + 1))
        }
        _ => {}
    }
}

pub(super) fn safe(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("safe")?;
    Ok(Value::Text(soft_str(interpreter, &value)?.with_safe(true)))
}

pub(super) fn escape(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    args.expect_none("escape")?;
    Ok(Value::Text(markup::escape(&interpreter.budget, &value)?))
}

pub(super) fn forceescape(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    args.expect_none("forceescape")?;
    let text = soft_str(interpreter, &value)?;
    Ok(Value::Text(markup::force_escape(&interpreter.budget, &text)?))
}

pub(super) fn striptags(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    args.expect_none("striptags")?;
    let text = soft_str(interpreter, &value)?;
    Ok(Value::Text(markup::strip_tags(&interpreter.budget, &text)?))
}

pub(super) fn trim(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [chars] = args.optional("trim", ["chars"])?;
    let text = soft_str(interpreter, &value)?;
    string_methods::trim(&interpreter.budget, &text, chars)
}

pub(super) fn replace(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let ([old, new], [count]) = args.bind("replace", ["old", "new"], ["count"])?;
    let budget = Rc::clone(&interpreter.budget);
    let count = match count.filter(|count| !count.is_none()) {
        Some(count) => usize::try_from(integer(&count)?).ok(),
        None => None,
    };
    let text = soft_str(interpreter, &value)?;
    let old = print::text(&budget, &old)?;
    let new = print::text(&budget, &new)?;
    if !interpreter.autoescape {
        return Ok(Value::Text(
            string_methods::replace(&budget, &text, &old, &new, count)?.with_safe(false),
        ));
    }
    let text = if old.is_safe() || new.is_safe() && !text.is_safe() {
        markup::escape_text(&budget, &text)?
    } else {
        text
    };
    let (old, new) =
        (markup::argument(&budget, &text, &old)?, markup::argument(&budget, &text, &new)?);
    Ok(Value::Text(
        string_methods::replace(&budget, &text, &old, &new, count)?.with_safe(text.is_safe()),
    ))
}

pub(super) fn join(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [separator, attribute] = args.optional("join", ["d", "attribute"])?;
    let budget = Rc::clone(&interpreter.budget);
    let items = sequence::items(&budget, &value)?;
    let _working_memory = budget.charge_values(items.len().saturating_mul(2))?;
    let path = AttributePath::new(&budget, attribute.as_ref(), false)?;
    let separator = match separator {
        Some(separator) => print::text(&budget, &separator)?,
        None => Text::plain(&budget, "")?,
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in &items {
        budget.step(1)?;
        let item = path.of(interpreter, item)?;
        texts.push(print::text(&budget, &item)?);
    }
    let is_markup =
        interpreter.autoescape && (separator.is_safe() || texts.iter().any(Text::is_safe));
    let mut out = TextBuilder::new(&budget);
    for (index, text) in texts.iter().enumerate() {
        if is_markup {
            if index > 0 {
                out.push_text(&markup::escape_text(&budget, &separator)?)?;
            }
            out.push_text(&markup::escape_text(&budget, text)?)?;
        } else {
            if index > 0 {
                out.push_text(&separator)?;
            }
            out.push_text(text)?;
        }
    }
    Ok(Value::Text(out.finish()?.with_safe(is_markup)))
}

pub(super) fn format(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let budget = Rc::clone(&interpreter.budget);
    let template = soft_str(interpreter, &value)?;
    let value = match (args.positional.is_empty(), args.named.is_empty()) {
        (false, false) => {
            return type_error("can't handle positional and keyword arguments at the same time");
        }
        (_, true) => Value::tuple(&budget, args.positional)?,
        (true, false) => {
            let entries =
                args.named.into_iter().map(|(name, value)| (Value::Text(name), value)).collect();
            Value::dict(&budget, entries)?
        }
    };
    format::percent(&budget, &template, &value)
}

pub(super) fn center(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [width] = args.optional("center", ["width"])?;
    let width = width.map_or(Ok(80), |width| integer(&width))?;
    let text = soft_str(interpreter, &value)?;
    let width = usize::try_from(width).unwrap_or(0);
    Ok(Value::Text(string_methods::pad(&interpreter.budget, &text, "center", width, (' ', None))?))
}

pub(super) fn indent(interpreter: &mut Interpreter<'_>, value: Value, args: Args) -> Result<Value> {
    let [width, first, blank] = args.optional("indent", ["width", "first", "blank"])?;
    let budget = Rc::clone(&interpreter.budget);
    let indention = match width {
        None => Text::plain(&budget, "    ")?,
        Some(Value::Text(text)) => text,
        Some(width) => {
            let width = usize::try_from(integer(&width)?).unwrap_or(0);
            Text::fill(&budget, ' ', width)?
        }
    };
    let first = first.is_some_and(|first| first.is_true());
    let blank = blank.is_some_and(|blank| blank.is_true());
    let text = match value.defined()? {
        Value::Text(text) => text.clone(),
        other => {
            return type_error(format!(
                "unsupported operand type(s) for +=: '{}' and 'str'",
                other.type_name()
            ));
        }
    };
    let indention = if text.is_safe() { indention.with_safe(true) } else { indention };
    let mut out = TextBuilder::new(&budget);
    if first {
        out.push_text(&indention)?;
    }
    // Jinja2 appends a newline before splitting, which turns a final line break into an empty last
    // line.
    let last =
        (text.is_empty() || text.ends_with(unicode::is_line_break)).then_some(&text[text.len()..]);
    for (index, line) in search::line_parts(&text, false).chain(last).enumerate() {
        if index > 0 {
            let start = line.as_ptr() as usize - text.as_ptr() as usize;
            out.push_from("\n", text.origin_at(start.saturating_sub(1)))?;
            if blank || !line.is_empty() {
                out.push_text(&indention)?;
            }
        }
        out.push_text(&text.part(line))?;
    }
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

pub(super) fn truncate(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [length, killwords, end, leeway] =
        args.optional("truncate", ["length", "killwords", "end", "leeway"])?;
    let budget = Rc::clone(&interpreter.budget);
    let count = i64::try_from(sequence::length(&budget, &value)?).unwrap_or(i64::MAX);
    let length = length.map_or(Ok(255), |length| integer(&length))?;
    let leeway =
        leeway.filter(|leeway| !leeway.is_none()).map_or(Ok(5), |leeway| integer(&leeway))?;
    let end = match end {
        Some(Value::Text(end)) => end,
        Some(other) => {
            return type_error(format!("object of type '{}' has no len()", other.type_name()));
        }
        None => Text::plain(&budget, "...")?,
    };
    budget.read(end.len())?;
    let end_length = i64::try_from(end.char_count()).unwrap_or(i64::MAX);
    if length < end_length {
        return type_error(format!("expected length >= {end_length}, got {length}"));
    }
    if leeway < 0 {
        return type_error(format!("expected leeway >= 0, got {leeway}"));
    }
    if count <= length.saturating_add(leeway) {
        return Ok(value);
    }
    let Value::Text(text) = value else {
        return type_error(format!(
            "can only concatenate {0} (not \"str\") to {0}",
            value.type_name()
        ));
    };
    let keep = usize::try_from(length - end_length).unwrap_or(0);
    let mut kept = text.slice(0..text.byte_of_char(keep));
    if !killwords.is_some_and(|kill| kill.is_true())
        && let Some(blank) = kept.rfind(' ')
    {
        kept = kept.slice(0..blank);
    }
    let mut out = TextBuilder::new(&budget);
    out.push_text(&kept)?;
    out.push_text(&markup::argument(&budget, &kept, &end)?)?;
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

pub(super) fn wordcount(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    args.expect_none("wordcount")?;
    let text = soft_str(interpreter, &value)?;
    let words = text
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .count();
    Ok(Value::count(words))
}

pub(super) fn urlencode(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    args.expect_none("urlencode")?;
    let budget = Rc::clone(&interpreter.budget);
    let pairs = match &value {
        Value::Dict(dict) => {
            budget.step(dict.len() as u64)?;
            budget.can_allocate(dict.len().saturating_mul(2 * size_of::<Value>()))?;
            dict.entries().to_vec()
        }
        Value::Text(_)
        | Value::None
        | Value::Int(..)
        | Value::Big(_)
        | Value::Float(..)
        | Value::Bool(_) => {
            let text = soft_str(interpreter, &value)?;
            return Ok(Value::Text(quoted(&text, &budget, false)?));
        }
        other => {
            let mut pairs = Vec::new();
            for pair in sequence::items(&budget, other)? {
                match sequence::items(&budget, &pair)?.as_slice() {
                    [key, value] => pairs.push((key.clone(), value.clone())),
                    items => {
                        return type_error(format!(
                            "not enough values to unpack (expected 2, got {})",
                            items.len()
                        ));
                    }
                }
            }
            pairs
        }
    };
    let mut out = TextBuilder::new(&budget);
    for (index, (key, value)) in pairs.iter().enumerate() {
        budget.step(1)?;
        if index > 0 {
            out.push("&")?;
        }
        out.push_text(&quoted(&soft_str(interpreter, key)?, &budget, true)?)?;
        out.push("=")?;
        out.push_text(&quoted(&soft_str(interpreter, value)?, &budget, true)?)?;
    }
    Ok(Value::Text(out.finish()?))
}

fn quoted(text: &Text, budget: &Rc<Budget>, query: bool) -> Result<Text> {
    let quoted = text.map_chars(budget, |_, c, out| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' | '~' => out.push(c),
        '/' if !query => out.push(c),
        ' ' if query => out.push('+'),
        c => {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        }
    })?;
    Ok(quoted.with_safe(false))
}

pub(super) fn xmlattr(
    interpreter: &mut Interpreter<'_>,
    value: Value,
    args: Args,
) -> Result<Value> {
    let [autospace] = args.optional("xmlattr", ["autospace"])?;
    let budget = Rc::clone(&interpreter.budget);
    let Value::Dict(dict) = value.defined()? else {
        return Err(TemplateError::undefined(format!(
            "'{}' has no attribute 'items'",
            value.owner_name()
        )));
    };
    let mut out = TextBuilder::new(&budget);
    let autospace = autospace.is_none_or(|autospace| autospace.is_true());
    for (key, value) in dict.entries() {
        budget.step(1)?;
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let Value::Text(name) = key else {
            return type_error("expected string or bytes-like object");
        };
        budget.read(name.len())?;
        if name.contains([' ', '\t', '\n', '\r', '\u{b}', '\u{c}', '/', '>', '=']) {
            return type_error(format!("Invalid character in attribute name: {key:?}"));
        }
        if autospace || out.len() > 0 {
            out.push(" ")?;
        }
        out.push_text(&markup::escape_text(&budget, name)?)?;
        out.push("=\"")?;
        out.push_text(&markup::escape(&budget, value)?)?;
        out.push("\"")?;
    }
    Ok(Value::Text(out.finish()?.with_safe(interpreter.autoescape)))
}
