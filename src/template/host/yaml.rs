//! Declared tools as YAML, for which Jinja has no filter.
//!
//! Block style, two spaces, lists not indented under their key, keys in the caller's order, raw
//! text beyond ASCII, no folding. This is PyYAML's `safe_dump(allow_unicode=True, sort_keys=False,
//! width=inf)`, except that strings of several lines are in double quotes here.

use serde_json::{Number, Value};

use crate::jinja::print_float;

/// One document, with its final newline.
pub(crate) fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Array(items) if !items.is_empty() => list(&mut out, items, 0),
        Value::Object(members) if !members.is_empty() => object(&mut out, members, 0),
        leaf => {
            scalar(&mut out, leaf);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The items of a list: the first on the current line, the others on their own lines.
fn list(out: &mut String, items: &[Value], depth: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            indent(out, depth);
        }
        out.push_str("- ");
        match item {
            Value::Array(items) if !items.is_empty() => list(out, items, depth + 1),
            Value::Object(members) if !members.is_empty() => object(out, members, depth + 1),
            leaf => {
                scalar(out, leaf);
                out.push('\n');
            }
        }
    }
}

fn object(out: &mut String, members: &serde_json::Map<String, Value>, depth: usize) {
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            indent(out, depth);
        }
        string(out, key);
        out.push(':');
        match value {
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                indent(out, depth);
                list(out, items, depth);
            }
            Value::Object(members) if !members.is_empty() => {
                out.push('\n');
                indent(out, depth + 1);
                object(out, members, depth + 1);
            }
            leaf => {
                out.push(' ');
                scalar(out, leaf);
                out.push('\n');
            }
        }
    }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&self::number(number)),
        Value::String(text) => string(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

fn number(number: &Number) -> String {
    let text = number.to_string();
    if !text.contains(['.', 'e', 'E']) {
        return text;
    }
    let text = number.as_f64().map_or(text, print_float);
    match text.split_once('e') {
        // A float in YAML 1.1 must have a decimal point.
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0e{exponent}"),
        _ => text,
    }
}

fn string(out: &mut String, text: &str) {
    if text.chars().any(needs_escape) {
        double_quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

/// Control characters, all line breaks of YAML 1.1, and the byte order mark.
fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0' => out.push_str("\\0"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            '\u{85}' => out.push_str("\\N"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            c if needs_escape(c) && u32::from(c) <= 0xff => {
                out.push_str(&format!("\\x{:02X}", u32::from(c)))
            }
            c if needs_escape(c) => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether YAML 1.1 reads the text without quotes, in block style, as the same string.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return false };
    let second_is_space = chars.next().is_none_or(char::is_whitespace);
    let indicator = match first {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
        | '@' | '`' => true,
        '?' | ':' | '-' => second_is_space,
        _ => false,
    };
    !indicator
        && !text.starts_with(' ')
        && !text.ends_with([' ', ':'])
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.contains(": ")
        && !text.contains(" #")
        && !is_special(text)
}

/// Whether YAML 1.1 reads the text as something other than a string.
fn is_special(text: &str) -> bool {
    const WORDS: [&str; 7] = ["yes", "no", "true", "false", "on", "off", "null"];
    let word = WORDS.iter().any(|word| {
        let mut capital = word[..1].to_uppercase();
        capital.push_str(&word[1..]);
        text == *word || text == word.to_uppercase() || text == capital
    });
    word || matches!(text, "~" | "=" | "<<")
        || is_integer(text)
        || is_float(text)
        || is_timestamp(text)
}

fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(allowed)
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

/// Sexagesimal numbers such as `12` and `1:59`: every part after the first is from 0 to 59.
fn is_sexagesimal(text: &str, first: impl Fn(&str) -> bool) -> bool {
    let mut parts = text.split(':');
    let head = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let sixty = |part: &&str| match part.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    first(head) && !rest.is_empty() && rest.iter().all(sixty)
}

fn is_integer(text: &str) -> bool {
    let digits = unsigned(text);
    let from_one = |text: &str| {
        text.starts_with(|c: char| ('1'..='9').contains(&c))
            && all(text, |b| b.is_ascii_digit() || b == b'_')
    };
    let based = |prefix: &str, allowed: fn(u8) -> bool| {
        digits.strip_prefix(prefix).is_some_and(|digits| all(digits, |b| allowed(b) || b == b'_'))
    };
    digits == "0"
        || from_one(digits)
        || based("0b", |b| matches!(b, b'0' | b'1'))
        || based("0x", |b| b.is_ascii_hexdigit())
        || based("0", |b| (b'0'..=b'7').contains(&b))
        || is_sexagesimal(digits, from_one)
}

fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && digits(text);
    let exponent = |text: &str| {
        let signed = text.strip_prefix(['e', 'E']).and_then(|text| text.strip_prefix(['-', '+']));
        text.is_empty() || signed.is_some_and(|digits| all(digits, |b| b.is_ascii_digit()))
    };
    let fraction = |text: &str| {
        let at = text.find(['e', 'E']).unwrap_or(text.len());
        digits(&text[..at]) && exponent(&text[at..])
    };
    let body = unsigned(text);
    let Some((whole, rest)) = body.split_once('.') else { return false };
    if matches!(rest, "inf" | "Inf" | "INF") && whole.is_empty() {
        return true;
    }
    if whole.is_empty() {
        let nan = matches!(rest, "nan" | "NaN" | "NAN");
        return text.starts_with('.')
            && (nan || (rest.starts_with(|c: char| c.is_ascii_digit()) && fraction(rest)));
    }
    (number(whole) && fraction(rest)) || (is_sexagesimal(whole, number) && digits(rest))
}

/// `2024-07-26`, optionally with a time.
fn is_timestamp(text: &str) -> bool {
    let digits = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && all(text, |b| b.is_ascii_digit())
    };
    let at = text.find(['T', 't', ' ', '\t']).unwrap_or(text.len());
    let (date, time) = text.split_at(at);
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    if !digits(year, 4..=4) {
        return false;
    }
    if time.is_empty() {
        return digits(month, 2..=2) && digits(day, 2..=2);
    }
    let time = time.trim_start_matches(['T', 't', ' ', '\t']);
    let end =
        time.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(time.len());
    let (clock, zone) = time.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let parts: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else { return false };
    let zone = zone.trim_start();
    let offset = zone.strip_prefix(['-', '+']).is_some_and(|offset| {
        let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
        digits(hours, 1..=2) && digits(minutes, 2..=2)
    });
    digits(month, 1..=2)
        && digits(day, 1..=2)
        && digits(hours, 1..=2)
        && digits(minutes, 2..=2)
        && digits(seconds, 2..=2)
        && fraction.bytes().all(|b| b.is_ascii_digit())
        && (zone.is_empty() || zone == "Z" || offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(text: &str) -> String {
        let mut out = String::new();
        string(&mut out, text);
        out
    }

    #[test]
    fn structure() {
        let value = json!([
            {"a": {"b": [], "c": {}}, "d": [1, [2, 3], {"e": null, "f": true}]},
            "plain",
            [{"g": 2.0}],
        ]);
        let expected = "- a:\n    b: []\n    c: {}\n  d:\n  - 1\n  - - 2\n    - 3\n  - e: null\n    f: true\n- plain\n- - g: 2.0\n";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!({"x": 1e16})), "x: 1.0e+16\n");
    }

    #[test]
    fn strings_stay_strings() {
        for plain in [
            "a",
            "a b",
            "it's",
            "a:b",
            "a#b",
            "-a",
            "1.2.3",
            "2024-7-26",
            "1e5",
            "08",
            "y",
            "天气 😀",
            "<b>",
            "a, b [c]",
            "12:99",
            ":x",
            "nUll",
        ] {
            assert_eq!(shown(plain), plain);
        }
        for quoted in [
            "",
            " a",
            "a ",
            "a: b",
            "a:",
            "a #b",
            "#a",
            "- a",
            "-",
            "?",
            "[a",
            "*a",
            "'a",
            "true",
            "Yes",
            "OFF",
            "null",
            "~",
            "12",
            "-0",
            "0x1F",
            "017",
            "1_000",
            "3.5",
            ".5",
            "-.inf",
            ".nan",
            "1.",
            "1.5e+3",
            "12:30",
            "12:30:45.5",
            "2024-07-26",
            "2024-07-26T10:00:00Z",
            "2024-7-6 1:02:03 +1:30",
            "=",
            "<<",
            "---",
            "...",
            "@a",
            "%a",
        ] {
            assert_eq!(shown(quoted), format!("'{}'", quoted.replace('\'', "''")));
        }
        assert_eq!(shown("a\nb\t\"\\\u{1}\u{85}\u{2028}"), "\"a\\nb\\t\\\"\\\\\\x01\\N\\L\"");
    }
}
