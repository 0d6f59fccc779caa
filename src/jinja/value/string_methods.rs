//! The table of string methods, and the methods that build a new string or classify characters.
//! The other methods are in `search`.

use std::collections::HashSet;
use std::rc::Rc;

use super::arguments::{Args, integer, string};
use super::markup::{strip_tags, unescape};
use super::text::{Text, TextBuilder};
use super::{Value, markup, search, sequence};
use crate::jinja::budget::Budget;
use crate::jinja::error::{Result, type_error};
use crate::jinja::unicode;

/// A method: called with the string, the name of the method and the arguments.
type StringMethod = fn(&Rc<Budget>, &Text, &str, Args) -> Result<Value>;

/// The methods of every string except `format` and `format_map`, by the function that implements
/// them.
static METHODS: [(&[&str], StringMethod); 14] = [
    (&["capitalize", "casefold", "lower", "swapcase", "title", "upper"], change_case),
    (&["center", "ljust", "rjust"], justify),
    (&["count", "find", "index", "rfind", "rindex"], search::locate),
    (&["endswith", "startswith"], search::has_affix),
    (&["expandtabs"], expandtabs),
    (
        &[
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
        ],
        is_class,
    ),
    (&["join"], join),
    (&["lstrip", "rstrip", "strip"], strip),
    (&["partition", "rpartition"], search::partition),
    (&["removeprefix", "removesuffix"], search::remove_affix),
    (&["replace"], replace_method),
    (&["rsplit", "split"], search::split),
    (&["splitlines"], search::splitlines),
    (&["zfill"], zfill),
];

/// The additional methods of `Markup`.
static MARKUP_METHODS: [(&[&str], StringMethod); 3] = [
    (&["escape"], |budget, _, _, args| {
        let [value] = args.required("escape", ["s"])?;
        Ok(Value::Text(markup::escape(budget, &value)?))
    }),
    (&["striptags"], |budget, text, _, args| {
        args.expect_none("striptags")?;
        Ok(Value::Text(strip_tags(budget, text)?))
    }),
    (&["unescape"], |budget, text, _, args| {
        args.expect_none("unescape")?;
        Ok(Value::Text(unescape(budget, text)?))
    }),
];

/// The method of this name.
fn find(text: &Text, name: &str) -> Option<StringMethod> {
    let by_name = |methods: &[(&[&str], StringMethod)]| {
        methods.iter().find(|(names, _)| names.contains(&name)).map(|(_, method)| *method)
    };
    by_name(&METHODS).or_else(|| if text.is_safe() { by_name(&MARKUP_METHODS) } else { None })
}

/// Whether a string has a method of this name.
pub(crate) fn has(text: &Text, name: &str) -> bool {
    find(text, name).is_some()
}

/// Calls a method that the string [has].
pub(crate) fn call(budget: &Rc<Budget>, text: &Text, name: &Text, args: Args) -> Result<Value> {
    budget.step_bytes(text.len())?;
    match find(text, name) {
        Some(method) => method(budget, text, name, args),
        None => type_error("'str' object is not callable"),
    }
}

fn change_case(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    args.expect_none(name)?;
    let changed = changed_case(budget, text, name)?;
    Ok(Value::Text(changed.unwrap_or_else(|| text.clone())))
}

fn is_class(_: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    args.expect_none(name)?;
    Ok(Value::Bool(is(text, name)))
}

fn strip(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let [chars] = args.optional(name, ["chars"])?;
    strip_chars(budget, text, name, chars)
}

fn strip_chars(
    budget: &Rc<Budget>,
    text: &Text,
    name: &str,
    chars: Option<Value>,
) -> Result<Value> {
    let set: Option<HashSet<char>> = match chars.filter(|chars| !chars.is_none()) {
        Some(chars) => {
            let chars = string(budget, &chars, &format!("{name} arg"))?.clone();
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

/// `text.strip(chars)`, for the filter `trim`.
pub(crate) fn trim(budget: &Rc<Budget>, text: &Text, chars: Option<Value>) -> Result<Value> {
    strip_chars(budget, text, "strip", chars)
}

fn replace_method(budget: &Rc<Budget>, text: &Text, _: &str, args: Args) -> Result<Value> {
    let ([old, new], [count]) = args.bind("replace", ["old", "new"], ["count"])?;
    let old = string(budget, &old, "replace() argument 1")?;
    let new = string(budget, &new, "replace() argument 2")?;
    let new = markup::argument(budget, text, new)?;
    let count = count.map_or(Ok(-1), |count| integer(&count))?;
    let replaced = replace(budget, text, old, &new, usize::try_from(count).ok())?;
    Ok(Value::Text(replaced.with_safe(text.is_safe())))
}

/// `text.replace(old, new, count)`
pub(crate) fn replace(
    budget: &Rc<Budget>,
    text: &Text,
    old: &Text,
    new: &Text,
    count: Option<usize>,
) -> Result<Text> {
    if old.len() > text.len() {
        return Ok(text.clone());
    }
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

fn join(budget: &Rc<Budget>, text: &Text, _: &str, args: Args) -> Result<Value> {
    let [items] = args.required("join", ["iterable"])?;
    let items = match &items {
        Value::None | Value::Int(..) | Value::Bool(_) | Value::Float(..) => {
            return type_error("can only join an iterable");
        }
        items => sequence::items(budget, items)?,
    };
    let mut out = TextBuilder::new(budget);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_text(text)?;
        }
        match item {
            item if text.is_safe() => out.push_text(&markup::escape(budget, item)?)?,
            Value::Text(item) => out.push_text(item)?,
            other => {
                return type_error(format!(
                    "sequence item {index}: expected str instance, {} found",
                    other.type_name()
                ));
            }
        }
    }
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

fn justify(budget: &Rc<Budget>, text: &Text, name: &str, args: Args) -> Result<Value> {
    let ([width], [fill]) = args.bind(name, ["width"], ["fillchar"])?;
    let width = integer(&width)?;
    let fill = match &fill {
        None => (' ', None),
        Some(fill) => {
            let fill = string(budget, fill, "The fill character")?;
            let mut chars = fill.chars();
            let (Some(c), None) = (chars.next(), chars.next()) else {
                return type_error("The fill character must be exactly one character long");
            };
            (c, fill.first_origin())
        }
    };
    let width = usize::try_from(width).unwrap_or(0);
    Ok(Value::Text(pad(budget, text, name, width, fill)?))
}

/// `center`, `ljust`, `rjust`, with the fill character and its origin.
pub(crate) fn pad(
    budget: &Rc<Budget>,
    text: &Text,
    name: &str,
    width: usize,
    (fill, origin): (char, Option<u32>),
) -> Result<Text> {
    let count = text.char_count();
    let padding = width.saturating_sub(count);
    if padding == 0 {
        return Ok(text.clone());
    }
    let left = match name {
        "rjust" => padding,
        // Python puts the odd character on this side.
        "center" => padding / 2 + (padding & width & 1),
        _ => 0,
    };
    let mut out = TextBuilder::new(budget);
    out.reserve(text.len().saturating_add(padding.saturating_mul(fill.len_utf8())))?;
    out.push_fill_from(fill, left, origin)?;
    out.push_text(text)?;
    out.push_fill_from(fill, padding - left, origin)?;
    Ok(out.finish()?.with_safe(text.is_safe()))
}

fn zfill(budget: &Rc<Budget>, text: &Text, _: &str, args: Args) -> Result<Value> {
    let [width] = args.required("zfill", ["width"])?;
    let width = usize::try_from(integer(&width)?).unwrap_or(0);
    let padding = width.saturating_sub(text.char_count());
    let sign = usize::from(text.starts_with(['+', '-']));
    let mut out = TextBuilder::new(budget);
    out.reserve(text.len().saturating_add(padding))?;
    out.push_text(&text.slice(0..sign))?;
    out.push_fill('0', padding)?;
    out.push_text(&text.slice(sign..text.len()))?;
    Ok(Value::Text(out.finish()?.with_safe(text.is_safe())))
}

fn expandtabs(budget: &Rc<Budget>, text: &Text, _: &str, args: Args) -> Result<Value> {
    let [size] = args.optional("expandtabs", ["tabsize"])?;
    let size = size.map_or(Ok(8), |size| integer(&size))?;
    let size = usize::try_from(size).unwrap_or(0);
    let mut out = TextBuilder::new(budget);
    let mut column = 0;
    for (at, c) in text.char_indices() {
        match c {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                budget.step_bytes(spaces)?;
                budget.can_allocate(spaces)?;
                out.push_from(&" ".repeat(spaces), text.origin_at(at))?;
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

/// `upper`, `lower`, `casefold`, `swapcase`, `capitalize` and `title`. None for other names.
pub(crate) fn changed_case(budget: &Rc<Budget>, text: &Text, name: &str) -> Result<Option<Text>> {
    let mut previous_cased = false;
    let changed = match name {
        "upper" => text.map_chars(budget, |_, c, out| out.extend(c.to_uppercase()))?,
        "casefold" => text.map_chars(budget, |_, c, out| unicode::fold(c, out))?,
        "lower" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| lower(source, at, c, out))?
        }
        "swapcase" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if c.is_uppercase() {
                    lower(source, at, c, out)
                } else {
                    out.extend(c.to_uppercase())
                }
            })?
        }
        "capitalize" => {
            let source = text.as_str();
            text.map_chars(budget, |at, c, out| {
                if at == 0 {
                    out.push_str(&unicode::to_title(c))
                } else {
                    lower(source, at, c, out)
                }
            })?
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

/// Lower-cases a character. A sigma at the end of a word has its own form.
fn lower(text: &str, at: usize, c: char, out: &mut String) {
    if c == 'Σ' {
        let ignorable =
            |c: &char| !matches!(c, '\'' | '.' | ':' | '\u{ad}' | '\u{b7}' | '\u{2019}');
        let cased = |c: Option<char>| c.is_some_and(unicode::is_cased);
        let before = text[..at].chars().rev().find(ignorable);
        let after = text[at + c.len_utf8()..].chars().find(ignorable);
        out.push(if cased(before) && !cased(after) { 'ς' } else { 'σ' });
    } else {
        out.extend(c.to_lowercase());
    }
}

/// `isalpha`, `isdigit` and the other character classes.
fn is(text: &Text, name: &str) -> bool {
    let all = |test: fn(char) -> bool| !text.is_empty() && text.chars().all(test);
    match name {
        "isalnum" => all(char::is_alphanumeric),
        "isalpha" => all(char::is_alphabetic),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(|c| unicode::decimal(c).is_some()),
        "isdigit" => all(|c| unicode::decimal(c).is_some() || unicode::is_other_digit(c)),
        "isnumeric" => all(char::is_numeric),
        "isidentifier" => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c))
                && chars.all(unicode_ident::is_xid_continue)
        }
        "islower" => unicode::is_case(text, char::is_lowercase),
        "isupper" => unicode::is_case(text, char::is_uppercase),
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
