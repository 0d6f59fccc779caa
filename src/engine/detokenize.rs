//! Converts the bytes of tokens to text that is cut at UTF-8 boundaries.
//!
//! NUL becomes U+FFFD. C strings cannot contain NUL, and the pieces of a stream must add up to the
//! reply.

/// Holds back the bytes of an incomplete character.
#[derive(Debug, Default)]
pub(crate) struct Utf8Assembler {
    held: Vec<u8>,
}

impl Utf8Assembler {
    /// Adds bytes and returns the text that is complete. Invalid bytes become U+FFFD, as in
    /// `String::from_utf8_lossy`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let text = self.complete();
        if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
    }

    fn complete(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.held.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.held = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.held = rest[bad..].to_vec();
                }
            }
        }
    }

    /// Whether no incomplete character is held back.
    pub(crate) fn is_between_characters(&self) -> bool {
        self.held.is_empty()
    }

    /// Ends the text and returns what was held back: an incomplete character becomes one U+FFFD.
    pub(crate) fn finish(&mut self) -> &'static str {
        let incomplete = !self.held.is_empty();
        self.held.clear();
        if incomplete { "\u{FFFD}" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        for split in 0..=bytes.len() {
            let mut assembler = Utf8Assembler::default();
            let mut text = assembler.push(&bytes[..split]);
            text += &assembler.push(&bytes[split..]);
            text += assembler.finish();
            assert_eq!(text, expected, "split at {split}");
        }
        let mut assembler = Utf8Assembler::default();
        let mut text: String = bytes.iter().map(|b| assembler.push(&[*b])).collect();
        text += assembler.finish();
        assert_eq!(text, expected, "byte by byte");
    }

    #[test]
    fn every_split_gives_the_same_text() {
        check("plain".as_bytes(), "plain");
        check(
            "gr\u{fc}n \u{1F600} \u{4f60}\u{597d}".as_bytes(),
            "gr\u{fc}n \u{1F600} \u{4f60}\u{597d}",
        );
        check(b"", "");
    }

    #[test]
    fn broken_bytes_become_replacement_characters() {
        check(b"a\xFFb", "a\u{FFFD}b");
        check(b"a\xE4\xBD", "a\u{FFFD}");
        check(b"\x80\x80", "\u{FFFD}\u{FFFD}");
        check(b"\xF0\x9F\x98x", "\u{FFFD}x");
        check(b"a\0b", "a\u{FFFD}b");
    }
}
