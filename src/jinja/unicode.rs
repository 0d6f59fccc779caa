//! Character properties where Python differs from Rust.

/// `str.isspace` of one character: Unicode whitespace and the four separators below U+0020.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Whether `str.splitlines` breaks at the character. `\r\n` is one break.
pub(crate) fn is_line_break(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// `str.isprintable` of one character: not a control, format, surrogate, private-use, unassigned or
/// space character.
///
/// `escape_debug` follows the same categories. A preceding letter keeps a combining mark unescaped.
pub(crate) fn is_printable(c: char) -> bool {
    // An escape has more than one character.
    if matches!(c, ' '..='~') || c.escape_debug().len() == 1 {
        return true;
    }
    let mut text = [b'a'; 5];
    let length = 1 + c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.escape_debug().count() == 2
}

/// The value of a digit of any script or of a Latin letter, as in `int(text, 36)`.
pub(crate) fn digit(c: char) -> Option<u32> {
    decimal(c).unwrap_or(c).to_digit(36)
}

/// The zeros of the scripts with decimal digits. Nine more digits follow each.
#[rustfmt::skip]
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0, 0xf20,
    0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900,
    0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0,
    0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8,
    0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// The ASCII digit for a decimal digit of any script.
pub(crate) fn decimal(c: char) -> Option<char> {
    let code = u32::from(c);
    let zero = ZEROS[..ZEROS.partition_point(|zero| *zero <= code)].last()?;
    char::from_digit(code - zero, 10)
}

/// Whether the character is a digit but not decimal, such as a superscript or circled digit.
pub(crate) fn is_other_digit(c: char) -> bool {
    matches!(u32::from(c),
        0xb2..=0xb3 | 0xb9 | 0x1369..=0x1371 | 0x19da | 0x2070 | 0x2074..=0x2079 | 0x2080..=0x2089 | 0x2460..=0x2468
        | 0x2474..=0x247c | 0x2488..=0x2490 | 0x24ea | 0x24f5..=0x24fd | 0x24ff | 0x2776..=0x277e | 0x2780..=0x2788
        | 0x278a..=0x2792 | 0x10a40..=0x10a43 | 0x10e60..=0x10e68 | 0x11052..=0x1105a | 0x1f100..=0x1f10a)
}

/// `str.casefold` of one character.
pub(crate) fn fold(c: char, out: &mut String) {
    let other = |code: u32| char::from_u32(code).unwrap_or(c);
    match u32::from(c) {
        // Cherokee folds to upper case. The dotless i folds to itself.
        0x131 | 0x13a0..=0x13f5 => out.push(c),
        code @ 0x13f8..=0x13fd => out.push(other(code - 8)),
        code @ 0xab70..=0xabbf => out.push(other(code - 0x97d0)),
        _ => out.extend(c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)),
    }
}

/// The title case of a character.
pub(crate) fn to_title(c: char) -> String {
    match c {
        // Digraphs have a separate title case.
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        // Georgian letters have no title case. Some Greek letters are title case already.
        '\u{10d0}'..='\u{10ff}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}' => c.to_string(),
        '\u{149}' => c.to_uppercase().collect(),
        '\u{1f80}'..='\u{1faf}' => char::from_u32(u32::from(c) | 8).into_iter().collect(),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => {
            char::from_u32(u32::from(c) + 9).into_iter().collect()
        }
        _ => {
            let mut upper = c.to_uppercase();
            let mut title: String = upper.next().into_iter().collect();
            // A Greek iota becomes the subscript of its letter.
            let iota = ('\u{1f00}'..='\u{1fff}').contains(&c).then_some('\u{399}');
            for c in upper {
                if Some(c) == iota { title.push('\u{345}') } else { title.extend(c.to_lowercase()) }
            }
            title
        }
    }
}

/// `str.islower` and `str.isupper`.
pub(crate) fn is_case(text: &str, wanted: fn(char) -> bool) -> bool {
    let mut cased = false;
    for c in text.chars().filter(|c| is_cased(*c)) {
        if !wanted(c) {
            return false;
        }
        cased = true;
    }
    cased
}

/// Whether a character is upper, lower or title case.
pub(crate) fn is_cased(c: char) -> bool {
    c.is_lowercase()
        || c.is_uppercase()
        || matches!(c, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}')
}
