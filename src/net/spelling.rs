//! The spellings of a secret that a server may send back, and where they occur in a text.
//!
//! In: a secret, then texts. Out: ranges of bytes. A spelling is the secret itself, its Base64 at
//! any offset, and its hexadecimal digits; Case is ignored, and any character may be escaped as in
//! URLs, JSON or HTML, up to twice. Long parts of a spelling count too, because a text may be cut
//! off.

use std::ops::Range;

/// The shortest part of a secret that counts as an occurrence, in bytes.
const PART: usize = 8;
/// A shorter secret counts only as a separate word, because it may occur inside any word by chance.
const MIN_PART: usize = 4;
/// The length of the longest usual escape, as in `\\u0061` with its backslash escaped, in bytes.
const MAX_ESCAPE: usize = 7;
/// Marks the place where a message was cut off.
const CUT: &[u8] = b"...";

/// The spellings of one secret.
pub(super) struct Spellings {
    /// The secret in lower case.
    secret: Vec<u8>,
    patterns: Vec<SpellingParts>,
}

/// All parts of a spelling that have the same length.
struct SpellingParts {
    length: usize,
    /// The parts in lower case, sorted.
    parts: Vec<Vec<u8>>,
}

impl SpellingParts {
    fn of(spelling: &str, length: usize) -> SpellingParts {
        let spelling = spelling.to_ascii_lowercase();
        let length = length.min(spelling.len());
        let mut parts: Vec<Vec<u8>> =
            spelling.as_bytes().windows(length.max(1)).map(<[u8]>::to_vec).collect();
        parts.sort_unstable();
        parts.dedup();
        SpellingParts { length, parts }
    }

    fn begins(&self, text: &[u8]) -> bool {
        text.get(..self.length)
            .is_some_and(|part| self.parts.binary_search_by(|known| (**known).cmp(part)).is_ok())
    }
}

impl Spellings {
    pub(super) fn of(secret: &str) -> Spellings {
        let mut patterns = vec![SpellingParts::of(secret, PART)];
        if secret.len() >= MIN_PART {
            let hexadecimal: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            patterns.push(SpellingParts::of(&hexadecimal, PART * 2));
            for offset in 0..3 {
                for alphabet in [b"+/", b"-_"] {
                    // Eight bytes determine at least nine digits, whatever surrounds them.
                    patterns
                        .push(SpellingParts::of(&base64(secret.as_bytes(), offset, alphabet), 9));
                }
            }
        }
        Spellings { secret: secret.to_ascii_lowercase().into_bytes(), patterns }
    }

    /// Passes the range of each occurrence in the text to `found`.
    pub(super) fn find(&self, text: &str, mut found: impl FnMut(Range<usize>)) {
        let mut view = View::of(text);
        for _ in 0..3 {
            for at in 0..view.bytes.len() {
                for pattern in self.patterns.iter().filter(|it| it.begins(&view.bytes[at..])) {
                    let end = at + pattern.length;
                    if self.secret.len() >= MIN_PART || view.is_word(at..end) {
                        found(view.source(at..end));
                    }
                }
                if view.bytes[at..].starts_with(CUT)
                    && let Some(start) = self.cut_start(&view.bytes[..at])
                {
                    found(view.source(start..at));
                }
            }
            match view.unescaped() {
                Some(unescaped) => view = unescaped,
                None => return,
            }
        }
    }

    /// Whether the text contains the whole secret.
    #[cfg(feature = "hub")]
    pub(super) fn are_in(&self, text: &str) -> bool {
        let mut view = View::of(text);
        loop {
            if view.bytes.windows(self.secret.len()).any(|part| part == self.secret) {
                return self.secret.len() >= MIN_PART;
            }
            match view.unescaped() {
                Some(unescaped) => view = unescaped,
                None => return false,
            }
        }
    }

    /// Where the secret's prefix starts at the end of a text that was cut off. The cut may also be
    /// inside an escape.
    fn cut_start(&self, before: &[u8]) -> Option<usize> {
        let longest = self.secret.len().min(PART);
        let at_end = |text: &[u8]| {
            let mut lengths = (MIN_PART - 1..longest).rev();
            let length = lengths.find(|length| text.ends_with(&self.secret[..*length]))?;
            Some(text.len() - length)
        };
        let last = before.len().saturating_sub(MAX_ESCAPE);
        let mut escapes =
            (last..before.len()).filter(|at| matches!(before[*at], b'%' | b'\\' | b'&'));
        at_end(before).or_else(|| escapes.find_map(|at| at_end(&before[..at])))
    }
}

/// The Base64 digits that depend on these bytes alone when `offset` bytes precede them.
fn base64(bytes: &[u8], offset: usize, last_digits: &[u8; 2]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    // The first digit whose bits all come from the bytes.
    let first = (6 - offset * 8 % 6) % 6;
    let starts = (first..bytes.len() * 8).step_by(6).filter(|start| start + 6 <= bytes.len() * 8);
    let digit = |start: usize| (start..start + 6).fold(0, |value, at| value << 1 | bit(at));
    starts
        .map(|start| match usize::from(digit(start)) {
            62 => last_digits[0].into(),
            63 => last_digits[1].into(),
            value => char::from(DIGITS[value]),
        })
        .collect()
}

/// A text in lower case, with the position of each byte in the original text.
struct View {
    bytes: Vec<u8>,
    sources: Vec<Range<usize>>,
}

impl View {
    fn of(text: &str) -> View {
        let bytes = text.to_ascii_lowercase().into_bytes();
        View { sources: (0..bytes.len()).map(|at| at..at + 1).collect(), bytes }
    }

    /// The range in the original text. `range` must not be empty.
    fn source(&self, range: Range<usize>) -> Range<usize> {
        self.sources[range.start].start..self.sources[range.end - 1].end
    }

    fn is_word(&self, range: Range<usize>) -> bool {
        let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let before = range.start.checked_sub(1).and_then(|at| self.bytes.get(at));
        !is_letter(before) && !is_letter(self.bytes.get(range.end))
    }

    /// The text without its escapes; `None` if it has none.
    fn unescaped(&self) -> Option<View> {
        let mut plain = View { bytes: Vec::new(), sources: Vec::new() };
        let mut at = 0;
        while at < self.bytes.len() {
            let (byte, length) = escape(&self.bytes[at..]).unwrap_or((self.bytes[at], 1));
            plain.bytes.push(byte.to_ascii_lowercase());
            plain.sources.push(self.source(at..at + length));
            at += length;
        }
        (plain.bytes.len() < self.bytes.len()).then_some(plain)
    }
}

/// Decodes the escape at the start of a lower-case text: the character, and the length of the
/// escape. Secrets are ASCII, so every other character only needs to differ from ASCII.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let digits = |from: usize, most: usize, is_digit: fn(&u8) -> bool| {
        text.get(from..)?.iter().take(most).take_while(|byte| is_digit(byte)).count().into()
    };
    let number = |from: usize, length: usize, radix: u32| {
        let digits = std::str::from_utf8(text.get(from..from + length)?).ok()?;
        let value = u32::from_str_radix(digits, radix).ok()?;
        Some(u8::try_from(value).unwrap_or(u8::MAX))
    };
    let hexadecimal = |from: usize, length: usize| {
        let found: Option<usize> = digits(from, length, u8::is_ascii_hexdigit);
        (found? == length).then(|| Some((number(from, length, 16)?, from + length)))?
    };
    let delimited = |from: usize, radix: u32, end: u8| {
        let is_digit = if radix == 16 { u8::is_ascii_hexdigit } else { u8::is_ascii_digit };
        let length: usize = digits(from, 8, is_digit)?;
        let value = number(from, length, radix)?;
        let closed = text.get(from + length) == Some(&end);
        Some((value, from + length + usize::from(closed)))
    };
    match text {
        [b'%', ..] => hexadecimal(1, 2),
        [b'\\', b'u', b'{', ..] => delimited(3, 16, b'}'),
        [b'\\', b'u', ..] => hexadecimal(2, 4),
        [b'\\', b'x', ..] => hexadecimal(2, 2),
        [b'\\', other, ..] if other.is_ascii_punctuation() => Some((*other, 2)),
        [b'&', b'#', b'x', ..] => delimited(3, 16, b';'),
        [b'&', b'#', ..] => delimited(2, 10, b';'),
        _ => None,
    }
}
