//! Converts words and whole texts in JSON's or Python's notation to JSON text. Digits stay as
//! written.

use super::json_scanner::{ScanEvent, Scanner};
use crate::json_schema::TypeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonText {
    /// A value, without surrounding whitespace and with Python's notation rewritten.
    Value {
        text: String,
        json_type: TypeSet,
        python: bool,
    },
    /// A value that is nested too deeply.
    TooDeep,
    Invalid,
}

/// Reads a whole text as one JSON value. `True`, `False`, `None` and single quotes are accepted
/// too. At most `max_depth` levels may be nested.
pub(super) fn parse_json(text: &str, max_depth: usize) -> JsonText {
    let text = text.trim();
    let mut scanner = Scanner::default();
    let mut written = String::with_capacity(text.len());
    let mut begun = false;
    for c in text.chars() {
        if scanner.ends_word(c) {
            scanner.close_word(&mut written);
        }
        // The scanner accepts commas between values at the top level.
        if c == ',' && scanner.depth() == 0 && !scanner.in_string() {
            return JsonText::Invalid;
        }
        begun |= !matches!(scanner.step(c, &mut written), ScanEvent::None);
        if scanner.depth() > max_depth {
            return JsonText::TooDeep;
        }
        if scanner.faults().any() {
            return JsonText::Invalid;
        }
    }
    scanner.close_word(&mut written);
    if !begun || scanner.faults().any() || scanner.in_string() || scanner.depth() > 0 {
        return JsonText::Invalid;
    }
    let json_type = match written.as_bytes() {
        [b'"', ..] => TypeSet::STRING,
        [b'{', ..] => TypeSet::OBJECT,
        [b'[', ..] => TypeSet::ARRAY,
        [b't' | b'f', ..] => TypeSet::BOOLEAN,
        [b'n', ..] => TypeSet::NULL,
        _ if is_whole(&written) => TypeSet::INTEGER,
        _ => TypeSet::FRACTION,
    };
    JsonText::Value { text: written, json_type, python: scanner.faults().python }
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
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let exponent_digits =
        exponent.get(1..).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    let is_number = all_digits(whole)
        && (whole.len() < 2 || !whole.starts_with('0'))
        && fraction.is_none_or(all_digits)
        && !(whole.is_empty() && fraction.is_none_or(str::is_empty))
        && exponent_digits.is_none_or(|digits| !digits.is_empty() && all_digits(digits));
    if !is_number {
        return None;
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(match fraction {
        Some("") => format!("{sign}{whole}.0{exponent}"),
        Some(fraction) => format!("{sign}{whole}.{fraction}{exponent}"),
        None => format!("{sign}{whole}{exponent}"),
    })
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

/// Whether a JSON number has no fraction.
fn is_whole(number: &str) -> bool {
    if !number.contains(['.', 'e', 'E']) {
        return true;
    }
    number.parse::<f64>().is_ok_and(|value| value.is_finite() && value.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_as_json() {
        for (text, want) in [
            (" 1.50 ", Some("1.50")),
            ("12345678901234567890123456789", Some("12345678901234567890123456789")),
            ("{'a': [True, None]}", Some("{\"a\": [true, null]}")),
            ("\"x\"", Some("\"x\"")),
            ("", None),
            ("1,", None),
            ("1 2", None),
            ("{\"a\": 1", None),
            ("[1,]", None),
            ("hello", None),
            ("\"open", None),
            ("\"a\nb\"", None),
        ] {
            let got = match parse_json(text, 100) {
                JsonText::Value { text, .. } => Some(text),
                _ => None,
            };
            assert_eq!(got.as_deref(), want, "{text}");
        }
        assert_eq!(parse_json("[[[1]]]", 2), JsonText::TooDeep);
    }

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
