//! Numbers and literals of a value -> their JSON text.

use std::borrow::Cow;

/// What JSON does not allow in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordFault {
    /// It is no number and no literal.
    Syntax,
    /// It is Python's.
    Python,
    /// The number has leading zeros.
    Zeros,
}

/// Whether the character belongs to a number or literal.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_')
}

/// Whether a word that begins with this character may be written differently in JSON.
pub(super) fn may_be_rewritten(first: char) -> bool {
    matches!(first, 'T' | 'F' | 'N' | '0' | '-')
}

/// The word as JSON: `True` is `true`, `007` is 7, or `"007"` if `zeros_are_text`. A word with
/// another fault is left as it is.
pub(super) fn as_json(word: &str, zeros_are_text: bool) -> (Cow<'_, str>, Option<WordFault>) {
    let python = match word {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        "true" | "false" | "null" => return (word.into(), None),
        _ if is_number(word) => return (word.into(), None),
        _ => {
            return match without_leading_zeros(word) {
                Some(_) if zeros_are_text => (format!("\"{word}\"").into(), Some(WordFault::Zeros)),
                Some(number) => (number.into(), Some(WordFault::Zeros)),
                None => (word.into(), Some(WordFault::Syntax)),
            };
        }
    };
    (python.into(), Some(WordFault::Python))
}

/// A number without its leading zeros: `-007` is `-7`. `None` if the word is not such a number.
pub(super) fn without_leading_zeros(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word),
    };
    let stripped = digits.trim_start_matches('0');
    let zero = if stripped.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
    let number = format!("{sign}{zero}{stripped}");
    (stripped.len() < digits.len() && number != word && is_number(&number)).then_some(number)
}

/// The JSON text of a bare word, if it is a number or a literal of JSON or Python: `1_000` is
/// `1000`, `.5` is `0.5`.
pub(super) fn word_to_json(word: &str) -> Option<String> {
    match word {
        "true" | "True" => return Some("true".to_owned()),
        "false" | "False" => return Some("false".to_owned()),
        "null" | "None" => return Some("null".to_owned()),
        _ => {}
    }
    let (sign, digits) = match word.strip_prefix(['+', '-']) {
        Some(digits) => (if word.starts_with('-') { "-" } else { "" }, digits),
        None => ("", word),
    };
    let plain = without_underscores(digits)?;
    let (mantissa, exponent) = match plain.find(['e', 'E']) {
        Some(at) if !plain.starts_with("0x") && !plain.starts_with("0X") => plain.split_at(at),
        _ => (plain.as_str(), ""),
    };
    if let Some(number) = other_base(mantissa) {
        return Some(format!("{sign}{number}"));
    }
    if !mantissa.trim_start_matches('.').starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let zero = if mantissa.starts_with('.') { "0" } else { "" };
    let fraction = if mantissa.ends_with('.') { "0" } else { "" };
    let number = format!("{zero}{mantissa}{fraction}{exponent}");
    is_number(&number).then(|| format!("{sign}{number}"))
}

/// Removes the underscores between digits. None if an underscore is in any other place.
fn without_underscores(digits: &str) -> Option<String> {
    let misplaced = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    (!misplaced).then(|| digits.replace('_', ""))
}

/// Python's `0x1f`, `0o17` and `0b11`.
fn other_base(digits: &str) -> Option<u128> {
    let (base, digits) = match digits.get(..2)? {
        "0x" | "0X" => (16, &digits[2..]),
        "0o" | "0O" => (8, &digits[2..]),
        "0b" | "0B" => (2, &digits[2..]),
        _ => return None,
    };
    digits
        .bytes()
        .all(|b| b.is_ascii_alphanumeric())
        .then(|| u128::from_str_radix(digits, base).ok())?
}

fn is_number(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    let (mantissa, exponent) = match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
        }
        None => (word, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_json() {
        for (text, want) in [
            ("True", Some("true")),
            ("None", Some("null")),
            ("1_000", Some("1000")),
            ("+1", Some("1")),
            ("-.5", Some("-0.5")),
            ("1.", Some("1.0")),
            ("1.5e10", Some("1.5e10")),
            ("1.e-5", Some("1.0e-5")),
            ("0x1f", Some("31")),
            ("1.50", Some("1.50")),
            ("007", None),
            (".", None),
            ("-", None),
            ("", None),
            ("1e", None),
            ("1__0", None),
            ("1-2", None),
            ("nan", None),
            ("+-1", None),
        ] {
            assert_eq!(word_to_json(text).as_deref(), want, "{text}");
        }
    }
}
