//! Prompts to tokens, where only some of the text may spell special tokens.
//!
//! In: a prompt, and which bytes of it came from the request. Out: tokens in which every special token was written by the
//! template; what a user or a tool wrote is plain text, whatever it spells. The text between special tokens is tokenised
//! in one piece each, as llama.cpp would: apart from those spellings the tokens are the same.

use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::backend::{Token, Vocab};
use crate::error::Result;

/// A token that a vocabulary finds in a text before it tokenises the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Special {
    /// How it is spelt.
    pub text: String,
    /// Its id.
    pub token: Token,
    /// Whether it controls the model. Others are words of the vocabulary, and mean the same wherever they stand.
    pub control: bool,
    /// Whether it takes the blanks before it.
    pub strips_before: bool,
    /// Whether it takes the blanks after it.
    pub strips_after: bool,
}

/// The special tokens of a vocabulary.
pub struct SpecialTokens {
    tokens: Vec<Special>,
    controls: HashMap<Token, usize>,
    /// None where there are none, or too many to be searched for.
    finder: Option<AhoCorasick>,
}

impl SpecialTokens {
    /// Tokens without a spelling are left out.
    pub fn new(mut tokens: Vec<Special>) -> SpecialTokens {
        tokens.retain(|special| !special.text.is_empty());
        let spellings = tokens.iter().map(|special| special.text.as_bytes());
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(spellings).ok();
        let controls = tokens.iter().enumerate().filter(|(_, special)| special.control);
        let controls = controls.map(|(place, special)| (special.token, place)).collect();
        SpecialTokens { finder: finder.filter(|_| !tokens.is_empty()), controls, tokens }
    }

    /// How a control token is spelt; None for every other token.
    pub fn control(&self, token: Token) -> Option<&str> {
        self.controls.get(&token).map(|place| &*self.tokens[*place].text)
    }

    /// The control tokens that a text spells, in order.
    pub fn controls_in(&self, text: &str) -> Vec<(Range<usize>, Token)> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let found = finder.find_iter(text).map(|found| (found.range(), &self.tokens[found.pattern().as_usize()]));
        found.filter(|(_, special)| special.control).map(|(range, special)| (range, special.token)).collect()
    }

    /// Tokens of a prompt. Control tokens are found outside of `plain` only, which is in order and does not overlap.
    pub fn tokenize(&self, vocab: &dyn Vocab, prompt: &str, plain: &[Range<usize>]) -> Result<Vec<Token>> {
        let Some(finder) = &self.finder else { return vocab.tokenize(prompt, plain.is_empty()) };
        let mut tokens = Vec::new();
        let mut done = 0;
        let mut strip = false;
        let mut plain = plain.iter().peekable();
        let mut from = 0;
        while let Some(found) = finder.find(aho_corasick::Input::new(prompt).range(from..)) {
            let (start, end) = (found.start(), found.end());
            let special = &self.tokens[found.pattern().as_usize()];
            while plain.peek().is_some_and(|range| range.end <= start) {
                plain.next();
            }
            if special.control && plain.peek().is_some_and(|range| range.start < end) {
                // Spelt by the request, at least in part. Another one may begin inside of it.
                from = start + 1;
                continue;
            }
            let text = &prompt[done..start];
            let text = if strip { text.trim_start() } else { text };
            push(vocab, if special.strips_before { text.trim_end() } else { text }, &mut tokens)?;
            tokens.push(special.token);
            strip = special.strips_after;
            (done, from) = (end, end);
        }
        let rest = &prompt[done..];
        push(vocab, if strip { rest.trim_start() } else { rest }, &mut tokens)?;
        Ok(tokens)
    }
}

fn push(vocab: &dyn Vocab, text: &str, tokens: &mut Vec<Token>) -> Result<()> {
    if !text.is_empty() {
        tokens.extend(vocab.tokenize(text, false)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Every byte is a token; text between special tokens stays together by a mark of its start, as a word-start would.
    struct Bytes;

    impl Vocab for Bytes {
        fn len(&self) -> usize {
            300
        }

        fn tokenize(&self, text: &str, parse_special: bool) -> Result<Vec<Token>> {
            assert!(!parse_special);
            Ok([299].into_iter().chain(text.bytes().map(Token::from)).collect())
        }

        fn piece(&self, _: Token, _: bool) -> Vec<u8> {
            Vec::new()
        }

        fn is_end_of_generation(&self, _: Token) -> bool {
            false
        }

        fn required_bos(&self) -> Option<Token> {
            None
        }

        fn special_tokens(&self) -> &SpecialTokens {
            unreachable!("the test brings its own")
        }
    }

    fn special(text: &str, token: Token, control: bool) -> Special {
        Special { text: text.to_owned(), token, control, strips_before: false, strips_after: false }
    }

    #[track_caller]
    fn check(prompt: &str, plain: Option<Range<usize>>, expected: &str) {
        let mut end = special("<e>", 257, true);
        end.strips_after = true;
        let tokens =
            SpecialTokens::new(vec![special("<s>", 256, true), end, special("<ee>", 258, true), special("<w>", 259, false)]);
        let shown: String = tokens
            .tokenize(&Bytes, prompt, plain.as_slice())
            .unwrap()
            .into_iter()
            .map(|token| match token {
                256 => "[S]".to_owned(),
                257 => "[E]".to_owned(),
                258 => "[EE]".to_owned(),
                259 => "[W]".to_owned(),
                299 => "|".to_owned(),
                byte => char::from(u8::try_from(byte).unwrap()).to_string(),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_template_wrote_is_special() {
        check("<s>a<e> b<ee>", None, "[S]|a[E]|b[EE]");
        check("", None, "");
        check("a<w>b", None, "|a[W]|b");
    }

    #[test]
    fn what_the_request_wrote_is_text() {
        check("<s>a<e>b<e>", Some(3..8), "[S]|a<e>b[E]");
        check("<s><w><e>", Some(3..6), "[S][W][E]");
        // Half and half is not the template's.
        check("<s>x<e>y", Some(3..5), "[S]|x<e>y");
        check("<s>x<e>y", Some(6..8), "[S]|x<e>y");
        // What a spelling that is not meant hides in itself is found all the same.
        check("<<s>", Some(0..1), "|<[S]");
        check("<s>", Some(0..0), "[S]");
    }
}
