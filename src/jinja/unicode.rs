//! Python's view of characters, where it is not Rust's.

/// `str.isspace` of one character: Unicode's white space and the four separators below U+0020.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Where `str.splitlines` breaks; `\r\n` is one break.
pub(crate) fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `str.isprintable` for one character: not a control, format, surrogate, private, unassigned or space character.
///
/// Rust's own escaping follows the same categories; the letter before it keeps a combining mark bare.
pub(crate) fn is_printable(c: char) -> bool {
    if matches!(c, ' '..='~') {
        return true;
    }
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(c);
    text.escape_debug().eq(text.chars())
}

/// The value of a digit or Latin letter, as `int(text, 36)` reads it.
pub(crate) fn digit(c: char) -> Option<u32> {
    c.to_digit(36)
}

/// The title case of a character.
pub(crate) fn to_title(c: char) -> String {
    match c {
        // The digraphs with a title case of their own.
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        // Georgian letters have no title case.
        '\u{10d0}'..='\u{10ff}' => c.to_string(),
        _ => {
            let mut upper = c.to_uppercase();
            let mut title: String = upper.next().into_iter().collect();
            title.extend(upper.flat_map(char::to_lowercase));
            title
        }
    }
}

/// Whether a character has an upper and a lower case.
pub(crate) fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || matches!(c, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}')
}
