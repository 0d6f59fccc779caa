//! Methods of Python's str, list and dict that the engine's own set lacks or answers differently.

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// What `value.method(args)` is when the value has no such method of its own.
pub(crate) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string(value.as_str().unwrap_or_default(), method, args),
        ValueKind::Seq => sequence(value, method, args),
        ValueKind::Map => mapping(value, method, args),
        _ => None,
    };
    own.unwrap_or_else(|| pycompat::unknown_method_callback(state, value, method, args))
}

fn string(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "strip" => strip(text, args, true, true),
        "lstrip" => strip(text, args, true, false),
        "rstrip" => strip(text, args, false, true),
        "title" => no_arguments(args).map(|()| Value::from(title(text))),
        "split" => split(text, args, false),
        "rsplit" => split(text, args, true),
        "splitlines" => from_args::<(Option<bool>,)>(args)
            .map(|(keep,)| lines(text, keep.unwrap_or(false)).into_iter().map(Value::from).collect()),
        "removeprefix" => from_args::<(&str,)>(args).map(|(prefix,)| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => from_args::<(&str,)>(args).map(|(suffix,)| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        "partition" => from_args::<(&str,)>(args).map(|(separator,)| match text.split_once(separator) {
            Some((before, after)) => triple(before, separator, after),
            None => triple(text, "", ""),
        }),
        "rpartition" => from_args::<(&str,)>(args).map(|(separator,)| match text.rsplit_once(separator) {
            Some((before, after)) => triple(before, separator, after),
            None => triple("", "", text),
        }),
        "index" | "rindex" => from_args::<(&str,)>(args).and_then(|(what,)| {
            let found = if method == "index" { text.find(what) } else { text.rfind(what) };
            found.map(|at| Value::from(text[..at].chars().count())).ok_or_else(|| failed("substring not found"))
        }),
        "zfill" => from_args::<(usize,)>(args).and_then(|(width,)| {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            Ok(Value::from(format!("{sign}{}{digits}", padding(width, text, '0')?)))
        }),
        "ljust" | "rjust" | "center" => justify(text, method, args),
        "swapcase" => no_arguments(args).map(|()| {
            let swapped: String = text
                .chars()
                .map(|c| if c.is_uppercase() { c.to_lowercase().to_string() } else { c.to_uppercase().to_string() })
                .collect();
            Value::from(swapped)
        }),
        "casefold" => no_arguments(args).map(|()| Value::from(text.to_lowercase().replace('ß', "ss"))),
        _ => return None,
    })
}

fn sequence(value: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "index" => from_args::<(&Value,)>(args).and_then(|(wanted,)| {
            let at = value.try_iter()?.position(|item| item == *wanted);
            at.map(Value::from).ok_or_else(|| failed("the value is not in the list"))
        }),
        "copy" => no_arguments(args).and_then(|()| Ok(value.try_iter()?.collect())),
        "append" | "pop" | "extend" | "insert" | "remove" | "clear" | "sort" | "reverse" => {
            Err(Error::new(ErrorKind::UnknownMethod, format!("list.{method}: this list cannot be changed")))
        }
        _ => return None,
    })
}

fn mapping(value: &Value, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "copy" => no_arguments(args).and_then(|()| {
            let mut pairs = Vec::new();
            for key in value.try_iter()? {
                pairs.push((key.clone(), value.get_item(&key)?));
            }
            Ok(Value::from_pairs(pairs))
        }),
        "update" | "pop" | "popitem" | "setdefault" | "clear" => {
            Err(Error::new(ErrorKind::UnknownMethod, format!("dict.{method}: this mapping cannot be changed")))
        }
        _ => return None,
    })
}

fn no_arguments(args: &[Value]) -> Result<(), Error> {
    from_args::<()>(args)
}

fn failed(problem: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

fn triple(before: &str, separator: &str, after: &str) -> Value {
    Value::from(Tuple::from(vec![Value::from(before), Value::from(separator), Value::from(after)]))
}

/// Python's `str.isspace` for one character: Unicode white space and the four ASCII separators.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

fn strip(text: &str, args: &[Value], left: bool, right: bool) -> Result<Value, Error> {
    let (chars,) = from_args::<(Option<&str>,)>(args)?;
    Ok(Value::from(trim(text, chars, left, right)))
}

/// `str.strip` and its one-sided forms.
pub(crate) fn trim<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let matches = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(matches) } else { text };
    if right { text.trim_end_matches(matches) } else { text }
}

/// `str.title`: a letter after anything that is not a letter starts a word.
pub(crate) fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

/// `str.split(sep=None, maxsplit=-1)` and `str.rsplit`.
fn split(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (positional, kwargs) = from_args::<(Rest<Value>, Kwargs)>(args)?;
    let separator = match positional.first() {
        Some(separator) => Some(separator.clone()),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let limit = match positional.get(1) {
        Some(limit) => i64::try_from(limit.clone())?,
        None => kwargs.get::<Option<i64>>("maxsplit")?.unwrap_or(-1),
    };
    kwargs.assert_all_used()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let separator = separator.filter(|separator| !separator.is_none());
    let mut parts: Vec<&str> = match &separator {
        Some(separator) => {
            let separator = separator.as_str().ok_or_else(|| failed("the separator must be a string"))?;
            if separator.is_empty() {
                return Err(failed("empty separator"));
            }
            let count = limit.saturating_add(1);
            if from_right { text.rsplitn(count, separator).collect() } else { text.splitn(count, separator).collect() }
        }
        None => split_space(text, limit, from_right),
    };
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

fn split_space(text: &str, limit: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = trim(text, None, !from_right, from_right);
    while !rest.is_empty() {
        if parts.len() == limit {
            // What is left over keeps the white space at its far end.
            parts.push(rest);
            break;
        }
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(cut) = cut else {
            parts.push(rest);
            break;
        };
        if from_right {
            let width = rest[cut..].chars().next().map_or(0, char::len_utf8);
            parts.push(&rest[cut + width..]);
            rest = trim(&rest[..cut], None, false, true);
        } else {
            parts.push(&rest[..cut]);
            rest = trim(&rest[cut..], None, true, false);
        }
    }
    parts
}

/// `str.splitlines`, with all of Python's line ends.
pub(crate) fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}') {
            continue;
        }
        let mut end = at + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, next)| *next == '\n').is_some() {
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

fn padding(width: usize, text: &str, fill: char) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    if missing > 100_000 {
        return Err(failed("the width is too large"));
    }
    Ok(std::iter::repeat_n(fill, missing).collect())
}

fn justify(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill) = from_args::<(usize, Option<&str>)>(args)?;
    let fill = fill.unwrap_or(" ").chars().next().ok_or_else(|| failed("the fill character is empty"))?;
    let padding = padding(width, text, fill)?;
    Ok(Value::from(match method {
        "ljust" => format!("{text}{padding}"),
        "rjust" => format!("{padding}{text}"),
        _ => {
            // Python puts the odd one out on the left only when the width is odd.
            let missing = padding.chars().count();
            let left = missing / 2 + (missing & width & 1);
            let (before, after) = padding.split_at(left * fill.len_utf8());
            format!("{before}{text}{after}")
        }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use minijinja::Environment;

    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &str) {
        let mut env = Environment::new();
        env.set_unknown_method_callback(call);
        assert_eq!(env.render_str(&format!("{{{{ {expression} }}}}"), ()).unwrap(), expected);
    }

    #[test]
    fn strings() {
        check("'\\u001c x \\u0085'.strip() ~ '|'", "x|");
        check("'xxaxx'.strip('x') ~ 'xxa'.lstrip('x') ~ 'axx'.rstrip('x')", "aaa");
        check("'  a b  c '.split()", "['a', 'b', 'c']");
        check("'  a b  c '.split(none, 1)", "['a', 'b  c ']");
        check("'  a b  c '.rsplit(none, 1)", "['  a b', 'c']");
        check("'a,b,c'.split(',', 1) ~ 'a,b,c'.rsplit(',', 1)", "['a', 'b,c']['a,b', 'c']");
        check("'a,b,c'.split(',', maxsplit=1)[-1]", "b,c");
        check("\"they're bill's\".title()", "They'Re Bill'S");
        check("'a\\r\\nb\\x0bc\\n'.splitlines()", "['a', 'b', 'c']");
        check("'-42'.zfill(5)", "-0042");
        check("'ab'.center(5, '*') ~ 'abc'.center(6, '*')", "**ab**abc**");
        check("'a=b=c'.partition('=')[2] ~ 'a=b=c'.rpartition('=')[2]", "b=cc");
        check("'abc'.removeprefix('ab') ~ 'abc'.removesuffix('bc')", "ca");
        check("'hello'.upper()", "HELLO");
    }

    #[test]
    fn lists_and_mappings() {
        check("[1, 2, 3].index(2)", "1");
        check("{'items': 5}.items()|list", "[('items', 5)]");
        check("{'a': 1}.copy().get('a')", "1");
    }

    #[test]
    fn data_cannot_be_changed() {
        let mut env = Environment::new();
        env.set_unknown_method_callback(call);
        for expression in ["[1].append(2)", "{'a': 1}.update({'b': 2})", "'a'.split('')"] {
            assert!(env.render_str(&format!("{{{{ {expression} }}}}"), ()).is_err(), "{expression}");
        }
    }
}
