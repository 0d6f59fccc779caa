//! A token or key that is sent to a server, and its removal from text that leaves the library.
//!
//! In: errors and JSON that contain text from servers. Out: the same, with a placeholder for each
//! word that contains a secret. All errors of a client pass through one redactor.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::error::Error;

/// The shortest part of a secret that counts as an occurrence, in bytes.
const PART: usize = 8;
/// A shorter secret counts only as a separate word, because it may occur inside any word by chance.
const MIN_PART: usize = 4;
/// Marks the place where a message was cut off. Shorter parts count beside it.
const CUT: &[u8] = b"...";
/// How often a character may be escaped.
const MAX_ESCAPED: usize = 2;
/// The escapes of URLs, JSON, Rust and HTML: what begins and ends them, the radix, and the maximum
/// number of digits.
const ESCAPES: [(&str, &str, u32, usize); 6] = [
    ("%", "", 16, 2),
    ("\\u{", "}", 16, 6),
    ("\\u", "", 16, 4),
    ("\\x", "", 16, 2),
    ("&#x", ";", 16, 6),
    ("&#", ";", 10, 7),
];

/// The secret, and the placeholder that replaces it in a server's text. No message and no debug
/// output shows it.
#[derive(Clone)]
pub(crate) struct Secret {
    text: String,
    placeholder: &'static str,
}

impl Secret {
    /// Trims the text. `None` if an HTTP header cannot carry it.
    pub(crate) fn new(text: &str, placeholder: &'static str) -> Option<Secret> {
        let text = text.trim();
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        is_printable.then(|| Secret { text: text.to_owned(), placeholder })
    }

    /// The value of the `Authorization` header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.placeholder)
    }
}

/// Removes a client's secrets. A redactor without secrets changes nothing.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Vec<SecretParts>>);

impl Redactor {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Redactor {
        let secrets = secrets.into_iter().filter(|secret| !secret.text.is_empty());
        Redactor(Arc::new(secrets.map(SecretParts::new).collect()))
    }

    /// Whether the text contains a whole secret.
    #[cfg(feature = "hub")]
    pub(crate) fn finds_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| secret.is_whole_in(text))
    }

    /// Replaces each word that contains a part of a secret. Words end at whitespace.
    pub(crate) fn text(&self, text: &str) -> String {
        let words = text.split_inclusive(char::is_whitespace).map(|with_space| {
            let word = with_space.trim_end();
            match self.0.iter().find(|secret| secret.is_in(word)) {
                Some(secret) => format!("{}{}", secret.placeholder, &with_space[word.len()..]),
                None => with_space.to_owned(),
            }
        });
        words.collect()
    }

    /// Replaces secrets in the strings, numbers and member names of a JSON value.
    pub(crate) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Number(number) => {
                let (text, redacted) = (number.to_string(), self.text(&number.to_string()));
                if text == redacted { value.clone() } else { redacted.into() }
            }
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
            }
            Value::Null | Value::Bool(_) => value.clone(),
        }
    }

    /// Replaces secrets in the error's texts. Drops its source, whose text could show a secret.
    pub(crate) fn error(&self, error: Error) -> Error {
        if self.0.is_empty() {
            return error;
        }
        let redacted = Error::new(error.code(), self.text(error.message()));
        let details = error.details().into_iter().flatten();
        details.fold(redacted, |redacted, (name, value)| redacted.with(name, self.value(value)))
    }
}

/// What a redactor looks for, in lower case.
struct SecretParts {
    whole: Vec<u8>,
    /// The parts of the secret, of its hexadecimal digits and of its Base64.
    parts: BTreeSet<Vec<u8>>,
    /// The lengths of the parts.
    lengths: BTreeSet<usize>,
    placeholder: &'static str,
}

impl SecretParts {
    fn new(secret: &Secret) -> SecretParts {
        let whole = secret.text.to_ascii_lowercase().into_bytes();
        let mut parts = BTreeSet::new();
        let mut add = |spelling: &[u8], length: usize| {
            parts.extend(spelling.windows(length.min(spelling.len())).map(<[u8]>::to_vec));
        };
        add(&whole, PART);
        if whole.len() >= MIN_PART {
            let digits = |byte| format!("{byte:02x}");
            add(secret.text.bytes().map(digits).collect::<String>().as_bytes(), 2 * PART);
            for offset in 0..3 {
                // Eight bytes determine at least nine digits, whatever surrounds them.
                let digits = base64(secret.text.as_bytes(), offset);
                add(digits.as_bytes(), 9);
                add(digits.replace('+', "-").replace('/', "_").as_bytes(), 9);
            }
        }
        let lengths = parts.iter().map(Vec::len).collect();
        SecretParts { whole, parts, lengths, placeholder: secret.placeholder }
    }

    fn is_short(&self) -> bool {
        self.whole.len() < MIN_PART
    }

    /// Whether a word contains a part of the secret in any spelling.
    fn is_in(&self, word: &str) -> bool {
        let beginning = &self.whole[..self.whole.len().min(MIN_PART - 1)];
        readings(word).any(|text| {
            let is_cut = !self.is_short() && contains(&text, CUT) && contains(&text, beginning);
            is_cut || self.lengths.iter().any(|length| self.has_part(&text, *length))
        })
    }

    fn has_part(&self, text: &[u8], length: usize) -> bool {
        let is_letter = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphanumeric);
        text.windows(length).enumerate().any(|(at, part)| {
            let is_separate = || !is_letter(at.wrapping_sub(1)) && !is_letter(at + length);
            self.parts.contains(part) && (!self.is_short() || is_separate())
        })
    }

    #[cfg(feature = "hub")]
    fn is_whole_in(&self, text: &str) -> bool {
        !self.is_short() && readings(text).any(|text| contains(&text, &self.whole))
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The Base64 digits, in lower case, that depend on these bytes alone when `offset` bytes precede
/// them.
fn base64(bytes: &[u8], offset: usize) -> String {
    const DIGITS: &[u8] = b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = [&b"\0\0"[..offset], bytes].concat();
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    let digit = |bits: &[u8]| bits.iter().fold(0, |digit, bit| digit << 1 | usize::from(*bit));
    let digits = bits.chunks_exact(6).skip((offset * 8).div_ceil(6));
    digits.map(|bits| char::from(DIGITS[digit(bits)])).collect()
}

/// A word in lower case: as it is, and without escapes.
fn readings(word: &str) -> impl Iterator<Item = Vec<u8>> {
    let next = |text: &Vec<u8>| Some(unescaped(text)).filter(|plain| plain.len() < text.len());
    std::iter::successors(Some(word.to_ascii_lowercase().into_bytes()), next).take(1 + MAX_ESCAPED)
}

/// The text without its escapes. Secrets are ASCII, so every other character only needs to differ
/// from ASCII.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), text);
    while let [first, after @ ..] = rest {
        let (character, after) = match (escape(rest), after) {
            (Some(escape), _) => escape,
            (None, [other, after @ ..]) if *first == b'\\' && other.is_ascii_punctuation() => {
                (*other, after)
            }
            (None, after) => (*first, after),
        };
        plain.push(character.to_ascii_lowercase());
        rest = after;
    }
    plain
}

/// The character of a numeric escape at the start of a text, and the text after it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    ESCAPES.iter().find_map(|(begin, end, radix, most)| {
        let (prefix, rest) = text.split_at_checked(begin.len())?;
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(*radix);
        let length = rest.iter().take(*most).take_while(is_digit).count();
        if prefix != begin.as_bytes() || length == 0 {
            return None;
        }
        let (digits, rest) = rest.split_at(length);
        let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, *radix).ok()?;
        let rest = rest.strip_prefix(end.as_bytes()).unwrap_or(rest);
        Some((u8::try_from(number).unwrap_or(u8::MAX), rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use serde_json::json;

    const KEY: &str = "sk-Ab/1+2=cdEF.gh";

    fn of(key: &str) -> Redactor {
        Redactor::new([&Secret::new(key, "[key]").expect("printable")])
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(of(KEY).text(text), expected, "{text}");
    }

    fn each(escaped: impl Fn(u32) -> String) -> String {
        KEY.chars().map(|c| escaped(u32::from(c))).collect()
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new(" hf_x\n", "[token]").expect("printable");
        assert_eq!(secret.bearer(), "Bearer hf_x");
        assert_eq!(format!("{secret:?}"), "[token]");
        assert!(Secret::new("hf\nx", "[token]").is_none());
    }

    #[test]
    fn spellings_of_a_key() {
        check("no key", "no key");
        check(&format!("bad Bearer {KEY}!"), "bad Bearer [key]");
        check(&format!("<{}>", KEY.to_lowercase()), "[key]");
        check(&format!("{}, {KEY}{KEY}", KEY.to_uppercase()), "[key] [key]");
        for escaped in [
            each(|c| format!("%{c:02x}")),
            each(|c| format!("%{c:02X}")),
            each(|c| format!("%25{c:02X}")),
            each(|c| format!("\\u{c:04x}")),
            each(|c| format!("\\\\u{c:04X}")),
            each(|c| format!("\\u{{{c:x}}}")),
            each(|c| format!("\\x{c:02x}")),
            each(|c| format!("&#{c};")),
            each(|c| format!("&#x{c:X};")),
            each(|c| format!("{c:02x}")),
            each(|c| format!("{c:02X}")),
            KEY.replace('/', "\\/"),
            KEY.replace('+', "%2B"),
        ] {
            check(&format!("\u{fc} {escaped} \u{fc}"), "\u{fc} [key] \u{fc}");
            check(&format!("\u{fc}{escaped}\u{fc}\n"), "[key]\n");
        }
        for encoded in [
            "c2stQWIvMSsyPWNkRUYuZ2g=",
            "OnNrLUFiLzErMj1jZEVGLmdo",
            "dTpzay1BYi8xKzI9Y2RFRi5naA==",
            "dXM6c2stQWIvMSsyPWNkRUYuZ2g=",
        ] {
            check(&format!("Basic {encoded}"), "Basic [key]");
        }
    }

    #[test]
    fn parts_of_a_key() {
        check("sk-Ab/1+", "[key]");
        check("sk-Ab/1", "sk-Ab/1");
        check("a xx/1+2=cdEyy b", "a [key] b");
        check("the key sk-A...", "the key [key]");
        check("\"sk-Ab/1...\" and sk-", "[key] and sk-");
        check("%73k-Ab%2F1...", "[key]");
        check("%73%6b%2d%41%...", "[key]");
        check("%73%6b%2d%41%6...", "[key]");
        check("\\u0073\\u006b\\u002d\\u004...", "[key]");
    }

    #[test]
    fn a_short_key_is_a_word() {
        for (key, text, expected) in [
            ("a", "a bad Bearer a, b%61", "[key] bad Bearer [key] b%61"),
            ("abc", "abcd abc", "abcd [key]"),
            ("abcd", "xABCDx abc", "[key] abc"),
            ("12345678", "n_ctx 123456789", "n_ctx [key]"),
        ] {
            assert_eq!(of(key).text(text), expected, "{key}");
        }
    }

    #[test]
    fn errors_and_values() {
        let error = Error::new(Code::HubNetwork, format!("no {KEY}"))
            .with("host", KEY)
            .with("list", vec![KEY, "x"])
            .caused_by(KEY);
        let error = of(KEY).error(error);
        assert_eq!(error.message(), "no [key]");
        assert_eq!(json!(error.details()), json!({ "host": "[key]", "list": ["[key]", "x"] }));
        assert!(std::error::Error::source(&error).is_none());
        let value = json!({ "a": [1, 123_456_789_u64, null, true], "123456789": 1.5 });
        assert_eq!(
            of("123456789").value(&value),
            json!({ "a": [1, "[key]", null, true], "[key]": 1.5 })
        );
        assert_eq!(Redactor::default().text(KEY), KEY);
    }

    #[cfg(feature = "hub")]
    #[test]
    fn whole_secrets_are_found() {
        assert!(of(KEY).finds_in(&format!("a/{}.gguf", KEY.to_lowercase())));
        assert!(!of(KEY).finds_in("a/sk-Ab/1+2.gguf") && !of("abc").finds_in("abc.gguf"));
    }
}
