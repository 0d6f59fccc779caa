//! The bytes of tokens, by the decoder of a tokenizer.json.

use serde_json::Value;

use super::document::{PipelinePart, TokenizerDocument, invalid};
use crate::error::Result;

/// How the vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenSpelling {
    /// A character for each byte, as in GPT-2.
    ByteLevel,
    /// As in SentencePiece: `▁` is a space, and `<0x0A>` the byte 10.
    SentencePiece,
    /// As text.
    Plain,
}

impl TokenSpelling {
    /// The spelling that the decoder reads.
    pub(super) fn of(document: &TokenizerDocument) -> Result<TokenSpelling> {
        let mut spelling = TokenSpelling::Plain;
        let decoders = document.components(PipelinePart::Decoder)?;
        let words = document.components(PipelinePart::PreTokenizer)?;
        let components = if decoders.is_empty() { words } else { decoders };
        for component in components {
            spelling = match component["type"].as_str().unwrap_or_default() {
                "ByteLevel" => TokenSpelling::ByteLevel,
                "ByteFallback" | "Metaspace" => TokenSpelling::SentencePiece,
                "Replace" if is_space(component) => TokenSpelling::SentencePiece,
                // They do nothing to a token, except at the beginning or the end of a text.
                "Fuse" | "Strip" | "Split" | "Digits" | "Punctuation" | "Whitespace"
                | "WhitespaceSplit" => spelling,
                other => {
                    return Err(invalid(format_args!(
                        "decoder has the component {other:?}, which llb does not run; use a GGUF \
                         file of the model"
                    )));
                }
            };
        }
        Ok(spelling)
    }

    /// The bytes of a token.
    pub(super) fn bytes(self, text: &str) -> Vec<u8> {
        match self {
            TokenSpelling::Plain => text.as_bytes().to_vec(),
            TokenSpelling::SentencePiece => match byte_of(text) {
                Some(byte) => vec![byte],
                None => text.replace('\u{2581}', " ").into_bytes(),
            },
            TokenSpelling::ByteLevel => {
                let mut bytes = Vec::with_capacity(text.len());
                for char in text.chars() {
                    match byte_level(char) {
                        Some(byte) => bytes.push(byte),
                        // Not spelled by this rule.
                        None => return text.as_bytes().to_vec(),
                    }
                }
                bytes
            }
        }
    }
}

/// Whether a `Replace` makes the spaces of SentencePiece.
fn is_space(component: &Value) -> bool {
    component["pattern"]["String"] == "\u{2581}" && component["content"] == " "
}

/// The byte of a token such as `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that a character stands for: printable characters of Latin-1 for themselves, and the
/// characters from U+0100 on for the other bytes, in order.
fn byte_level(char: char) -> Option<u8> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let code = u32::from(char);
    match u8::try_from(code) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => {
            let place = usize::try_from(code - 0x100).ok()?;
            (0..=u8::MAX).filter(|byte| !is_printable(*byte)).nth(place)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_characters_of_their_own() {
        let bytes = |text: &str| TokenSpelling::ByteLevel.bytes(text);
        // The characters of GPT-2's encoder.py: bytes_to_unicode().
        assert_eq!(bytes("\u{120}Hi\u{10A}"), b" Hi\n");
        assert_eq!(
            bytes("\u{C3}\u{A9}\u{100}\u{143}\u{142}\u{121}"),
            [0xC3, 0xA9, 0, 0xAD, 0xA0, 0x7F]
        );
        assert_eq!(bytes("\u{144}").len(), 2);
        let mut all: Vec<u8> = ('\u{0}'..='\u{143}').filter_map(byte_level).collect();
        all.sort_unstable();
        assert_eq!(all, (0..=u8::MAX).collect::<Vec<_>>());
    }

    #[test]
    fn sentencepiece_spells_spaces_and_bytes() {
        let bytes = |text: &str| TokenSpelling::SentencePiece.bytes(text);
        assert_eq!(bytes("\u{2581}Hi\u{2581}"), b" Hi ");
        assert_eq!((bytes("<0x0A>"), bytes("<0xfF>")), (vec![10], vec![255]));
        assert_eq!(bytes("<0x0G>"), b"<0x0G>");
    }
}
