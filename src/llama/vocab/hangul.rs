//! Hangul syllables as their letters, for WordPiece.
//!
//! Models that strip accents read a text in Unicode's decomposed form (NFD). llama.cpp keeps only
//! the first letter of each syllable (docs/upstream.md). Letters pass through it unchanged.

use std::borrow::Cow;

use llama_cpp_sys_2 as sys;

use super::LlamaVocab;

impl LlamaVocab {
    /// The text to tokenize instead of this one.
    pub(super) fn normalized<'text>(&self, text: &'text str) -> Cow<'text, str> {
        match self.strips_accents() {
            true => with_letters(text),
            false => Cow::Borrowed(text),
        }
    }

    /// Whether WordPiece strips accents. By default it does if it ignores case, and it does that by
    /// default (`llama_vocab::impl::load`).
    fn strips_accents(&self) -> bool {
        *self.strips_accents.get_or_init(|| {
            let option = |name: &str| {
                let value = self.model.metadata(&format!("tokenizer.ggml.normalizer.{name}"));
                value.map(|value| value == "true")
            };
            self.kind() == sys::LLAMA_VOCAB_TYPE_WPM
                && option("strip_accents").or(option("lowercase")).unwrap_or(true)
        })
    }
}

/// The text with all letters of each syllable, as in NFD. The arithmetic is that of the Unicode
/// Standard, section 3.12.
fn with_letters(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_syllable) {
        return Cow::Borrowed(text);
    }
    let mut letters = String::with_capacity(text.len() * 3);
    for character in text.chars() {
        if is_syllable(character) {
            push_letters(&mut letters, character);
        } else {
            letters.push(character);
        }
    }
    Cow::Owned(letters)
}

fn is_syllable(character: char) -> bool {
    ('\u{AC00}'..='\u{D7A3}').contains(&character)
}

fn push_letters(text: &mut String, syllable: char) {
    const VOWELS: u32 = 21;
    // The first of them stands for no consonant.
    const FINALS: u32 = 28;
    let index = syllable as u32 - 0xAC00;
    let first = 0x1100 + index / (VOWELS * FINALS);
    let vowel = 0x1161 + index / FINALS % VOWELS;
    let last = index % FINALS;
    let letters = [first, vowel, 0x11A7 + last];
    let letters = &letters[..if last == 0 { 2 } else { 3 }];
    text.extend(letters.iter().filter_map(|letter| char::from_u32(*letter)));
}

#[cfg(test)]
mod tests {
    use super::with_letters;

    /// The expected texts are those of Python's `unicodedata.normalize("NFD", …)`.
    #[test]
    fn syllables_become_letters() {
        for (text, letters) in [
            ("가", "\u{1100}\u{1161}"),
            ("힣", "\u{1112}\u{1175}\u{11C2}"),
            ("한국어 é", "\u{1112}\u{1161}\u{11AB}\u{1100}\u{116E}\u{11A8}\u{110B}\u{1165} é"),
            ("ꯢ\u{D7B0}", "ꯢ\u{D7B0}"),
        ] {
            assert_eq!(with_letters(text), letters);
        }
    }
}
