//! Numbers and literals of a value as JSON writes them.

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
        _ if is_literal(word) => return (word.into(), None),
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

fn is_literal(word: &str) -> bool {
    matches!(word, "true" | "false" | "null") || is_number(word)
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
