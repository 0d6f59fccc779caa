//! Number and string literals: how Jinja2 and Python read them, and how Python's `repr` writes
//! strings.

use std::ops::Range;

use super::error::{Result, shown};
use super::unicode;

/// The length of digits that single underscores may separate.
fn digits_length(text: &str, is_digit: impl Fn(u8) -> bool) -> usize {
    let bytes = text.as_bytes();
    let mut length = 0;
    while length < bytes.len() {
        let underscore = usize::from(length > 0 && bytes[length] == b'_');
        match bytes.get(length + underscore) {
            Some(byte) if is_digit(*byte) => length += underscore + 1,
            _ => break,
        }
    }
    length
}

pub(crate) fn float_length(text: &str) -> Option<usize> {
    let digits = |text: &str| digits_length(text, |byte| byte.is_ascii_digit());
    let whole = digits(text);
    let mut length = whole;
    let mut is_float = false;
    if text[length..].starts_with('.') {
        let fraction = digits(&text[length + 1..]);
        if fraction > 0 {
            length += 1 + fraction;
            is_float = true;
        }
    }
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let power = digits(&exponent[sign..]);
        if power > 0 {
            length += 1 + sign + power;
            is_float = true;
        }
    }
    is_float.then_some(length)
}

/// The length, the base, and the length of the prefix.
pub(crate) fn integer_length(text: &str) -> (usize, u32, usize) {
    for (prefix, base) in [("0b", 2), ("0o", 8), ("0x", 16)] {
        if text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
            let rest = &text[2..];
            let underscore = usize::from(rest.starts_with('_'));
            let length = digits_length(&rest[underscore..], |byte| char::from(byte).is_digit(base));
            if length > 0 {
                return (2 + underscore + length, base, 2);
            }
        }
    }
    if text.starts_with('0') {
        return (digits_length(text, |byte| byte == b'0'), 10, 0);
    }
    (digits_length(text, |byte| byte.is_ascii_digit()), 10, 0)
}

/// Resolves the Python escapes of a string literal.
pub(crate) fn unescape(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let Some(kind) = escape.chars().next() else { return Err("\\ at end of string") };
        rest = &escape[kind.len_utf8()..];
        let hex = |digits: usize| {
            let code =
                rest.get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
            code.and_then(|code| u32::from_str_radix(code, 16).ok())
        };
        match kind {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(kind),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'v' => out.push('\u{b}'),
            'x' | 'u' | 'U' => {
                let (digits, truncated) = match kind {
                    'x' => (2, "truncated \\xXX escape"),
                    'u' => (4, "truncated \\uXXXX escape"),
                    _ => (8, "truncated \\UXXXXXXXX escape"),
                };
                let code = hex(digits).ok_or(truncated)?;
                let c = char::from_u32(code).ok_or(if code > 0x0010_ffff {
                    "illegal Unicode character"
                } else {
                    "an escaped half of a surrogate pair is not supported"
                })?;
                out.push(c);
                rest = &rest[digits..];
            }
            '0'..='7' => {
                let digits =
                    escape.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
                let code = u32::from_str_radix(&escape[..digits], 8).unwrap_or(0);
                out.extend(char::from_u32(code));
                rest = &escape[digits..];
            }
            'N' => return Err("escapes by the name of a character are not supported"),
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// A part of a quoted string.
pub(crate) enum QuotedPart<'a> {
    /// Text that quoting adds.
    Added(&'a str),
    /// A byte range of the original string, unchanged.
    Verbatim(Range<usize>),
    /// The escape of the character at this byte.
    Escaped(&'a str, usize),
}

/// Quotes a string like Python's `repr`.
pub(crate) fn quote(text: &str, emit: &mut dyn FnMut(QuotedPart<'_>) -> Result<()>) -> Result<()> {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mark = if quote == '"' { "\"" } else { "'" };
    emit(QuotedPart::Added(mark))?;
    let mut done = 0;
    for (at, c) in text.char_indices() {
        let escaped = match c {
            '\\' => "\\\\".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            _ if c == quote => format!("\\{c}"),
            _ if unicode::is_printable(c) => continue,
            _ => match u32::from(c) {
                code @ 0..=0xff => format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            },
        };
        emit(QuotedPart::Verbatim(done..at))?;
        emit(QuotedPart::Escaped(&escaped, at))?;
        done = at + c.len_utf8();
    }
    emit(QuotedPart::Verbatim(done..text.len()))?;
    emit(QuotedPart::Added(mark))
}

/// Quotes the start of a string like Python's `repr`, for messages.
pub(crate) fn quoted_string(text: &str) -> String {
    let text = shown(text);
    let mut out = String::new();
    let written = quote(text, &mut |piece| {
        match piece {
            QuotedPart::Added(part) | QuotedPart::Escaped(part, _) => out.push_str(part),
            QuotedPart::Verbatim(range) => out.push_str(&text[range]),
        }
        Ok(())
    });
    debug_assert!(written.is_ok(), "nothing fails here");
    out
}
