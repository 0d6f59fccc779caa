//! String literals as Python's `repr` writes them.

use std::ops::Range;

use super::error::{Result, shown};
use super::unicode;

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
