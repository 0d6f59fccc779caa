//! The vocabulary of a model, and prompts in which only text of the template may spell special
//! tokens.
//!
//! In: a prompt, and the ranges that the request wrote. Out: tokens in which every reserved token
//! comes from the template. Text of a user or a tool is plain text, even if it spells a special
//! token. The text between special tokens is tokenized in one piece, as in llama.cpp, so apart from
//! those spellings the tokens are the same.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::backend::TokenId;
use super::interrupt::Interrupt;
use super::media::{MediaPiece, PlacedMedia};
use super::spelling_finder::{SpellingFinder, common_prefix};
use crate::error::Result;

/// The vocabulary. It is immutable and may be used from any thread.
pub trait Vocab: Send + Sync {
    /// The number of tokens.
    fn len(&self) -> usize;

    /// Whether there are no tokens.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts text to tokens without adding BOS or EOS. With `parse_special`, text that spells a
    /// special token becomes that token. Otherwise the result contains no reserved token.
    ///
    /// `CANCELLED` when `interrupt` asks for it, `CONTEXT_OVERFLOW` if the text is too long.
    fn tokenize(
        &self,
        text: &str,
        parse_special: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>>;

    /// Like [`Vocab::tokenize`] without special tokens, for a text that follows other tokens.
    fn tokenize_after(&self, text: &str, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        self.tokenize(text, false, interrupt)
    }

    /// The most bytes of text that one token stands for; `None` if that is unknown. It may look at
    /// all tokens, once.
    fn longest_token(&self) -> Option<usize> {
        None
    }

    /// The bytes of a token. A control token has none unless `special` is true.
    fn piece(&self, token: TokenId, special: bool) -> Vec<u8>;

    /// Whether the token ends a generation.
    fn is_end_of_generation(&self, token: TokenId) -> bool;

    /// The token that must begin every prompt. `None` if the vocabulary requires none.
    fn required_bos(&self) -> Option<TokenId>;

    /// The spellings of the tokens around a text with a gap: before the text, before what follows
    /// the gap, and at the end. `None` if the vocabulary has no such tokens.
    fn fill_spellings(&self) -> Option<[String; 3]> {
        None
    }

    /// Tokens that must never be sampled.
    fn suppressed(&self) -> &[TokenId] {
        &[]
    }

    /// The tokens that are matched in a text before the rest of it is tokenized.
    fn special_tokens(&self) -> &SpecialTokens;
}

/// A token that is matched in a text before the rest of it is tokenized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// The spelling.
    pub text: String,
    /// The token id.
    pub token: TokenId,
    /// Whether this is a control token. A control token prints nothing.
    pub control: bool,
    /// Whether only the template may write this token: a control token, or one that begins or ends
    /// a text or a turn. Other special tokens are words of the vocabulary, and mean the same in a
    /// message.
    pub reserved: bool,
    /// Whether a match also consumes the whitespace before it.
    pub strips_before: bool,
    /// Whether a match also consumes the whitespace after it.
    pub strips_after: bool,
}

/// A tokenized prompt, which a later prompt with the same beginning can reuse.
#[derive(Default)]
pub struct TokenizedPrompt {
    /// The tokens.
    pub tokens: Vec<TokenId>,
    /// The media among them, in order.
    pub media: Vec<PlacedMedia>,
    /// The ranges in which no reserved token was matched.
    plain: Vec<Range<usize>>,
    cuts: Vec<TokenBoundary>,
}

/// A boundary after a special token: the tokens before it do not depend on what follows.
#[derive(Debug, Clone, Copy, Default)]
struct TokenBoundary {
    byte: usize,
    tokens: usize,
    /// Whether the token consumes the whitespace that follows.
    strips: bool,
}

impl TokenizedPrompt {
    /// A prompt of given tokens.
    pub fn from_tokens(tokens: Vec<TokenId>) -> TokenizedPrompt {
        TokenizedPrompt { tokens, ..TokenizedPrompt::default() }
    }

    /// Prepends a token that the text does not contain.
    pub fn prepend(&mut self, token: TokenId) {
        self.tokens.insert(0, token);
        self.media.iter_mut().for_each(|placed| placed.start += 1);
        self.cuts.iter_mut().for_each(|cut| cut.tokens += 1);
    }

    /// Appends media, which the text does not contain.
    pub fn push_media(&mut self, piece: Arc<MediaPiece>) {
        let start = self.tokens.len();
        self.tokens.extend(piece.places());
        self.media.push(PlacedMedia { start, piece });
    }

    /// Whether nothing follows the last media.
    pub fn ends_with_media(&self) -> bool {
        self.media.last().is_some_and(|placed| placed.range().end == self.tokens.len())
    }

    /// The last boundary within the first `bytes` bytes of the text: the number of tokens before
    /// it, and its byte offset. Text after a boundary does not change the tokens before it.
    pub fn boundary_before(&self, bytes: usize) -> (usize, usize) {
        let cut = self.cuts.iter().rfind(|cut| cut.byte <= bytes);
        cut.map_or((0, 0), |cut| (cut.tokens, cut.byte))
    }

    /// The tokens and boundaries within the first `bytes` bytes.
    fn up_to(&self, bytes: usize) -> (Vec<TokenId>, Vec<TokenBoundary>) {
        let cuts = &self.cuts[..self.cuts.partition_point(|cut| cut.byte <= bytes)];
        let tokens = cuts.last().map_or(0, |cut| cut.tokens);
        // A continued conversation reuses most of the prompt and adds the rest.
        let mut kept = Vec::with_capacity(self.tokens.len());
        kept.extend_from_slice(&self.tokens[..tokens]);
        (kept, cuts.to_vec())
    }

    /// The length of the prefix in which both prompts have the same plain ranges.
    fn common_plain(&self, plain: &[Range<usize>]) -> usize {
        let same = self.plain.iter().zip(plain).take_while(|(a, b)| a == b).count();
        match (self.plain.get(same), plain.get(same)) {
            (Some(a), Some(b)) if a.start == b.start => a.end.min(b.end),
            (a, b) => a.into_iter().chain(b).map(|range| range.start).min().unwrap_or(usize::MAX),
        }
    }
}

/// The special tokens of a vocabulary.
pub struct SpecialTokens {
    tokens: Vec<SpecialToken>,
    reserved: HashMap<TokenId, usize>,
    /// The length of the longest spelling, in bytes.
    longest: usize,
    /// `None` without special tokens, or if there are too many to search for.
    finder: Option<SpellingFinder>,
}

impl SpecialTokens {
    /// Collects the special tokens. Tokens without a spelling are ignored.
    pub fn new(mut tokens: Vec<SpecialToken>) -> SpecialTokens {
        tokens.retain(|special| !special.text.is_empty());
        let spellings = tokens.iter().map(|special| special.text.as_bytes());
        let finder = SpellingFinder::new(spellings).ok();
        let reserved = tokens.iter().enumerate().filter(|(_, special)| special.reserved);
        let reserved = reserved.map(|(place, special)| (special.token, place)).collect();
        let longest = tokens.iter().map(|special| special.text.len()).max().unwrap_or_default();
        SpecialTokens { finder: finder.filter(|_| !tokens.is_empty()), reserved, longest, tokens }
    }

    /// The spelling of a reserved token; `None` for any other token.
    pub fn reserved(&self, token: TokenId) -> Option<&str> {
        self.reserved.get(&token).map(|place| &*self.tokens[*place].text)
    }

    /// Whether a text is the spelling of a special token.
    pub fn contains(&self, text: &str) -> bool {
        self.tokens.iter().any(|special| special.text == text)
    }

    /// The control tokens in a text, in order.
    pub fn controls_in(&self, text: &str) -> Vec<(Range<usize>, TokenId)> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let (mut from, never) = (0, Interrupt::default());
        let found = std::iter::from_fn(|| {
            let (range, index) = finder.find(text, from, &never).ok()??;
            from = range.end;
            Some((range, &self.tokens[index]))
        });
        found
            .filter(|(_, special)| special.control)
            .map(|(range, special)| (range, special.token))
            .collect()
    }

    /// Tokenizes a prompt. Reserved tokens are matched only outside the `plain` ranges, which are
    /// in order and do not overlap.
    ///
    /// `before` is an earlier prompt with its tokens. The common prefix is not tokenized again,
    /// because a continued conversation mostly repeats the previous prompt.
    pub fn tokenize(
        &self,
        vocab: &dyn Vocab,
        prompt: &str,
        plain: Vec<Range<usize>>,
        before: Option<(&str, &TokenizedPrompt)>,
        interrupt: &Interrupt,
    ) -> Result<TokenizedPrompt> {
        let Some(finder) = &self.finder else {
            let tokens = vocab.tokenize(prompt, plain.is_empty(), interrupt)?;
            return Ok(TokenizedPrompt { tokens, plain, ..TokenizedPrompt::default() });
        };
        let (mut tokens, mut cuts) = match before {
            Some((other, tokenized)) => {
                let common = common_prefix(prompt.as_bytes(), other.as_bytes())
                    .min(tokenized.common_plain(&plain));
                // A spelling that begins shortly before the end of the prefix may match
                // differently.
                tokenized.up_to(common.saturating_sub(self.longest))
            }
            None => Default::default(),
        };
        let TokenBoundary { byte: mut done, strips: mut strip, .. } =
            cuts.last().copied().unwrap_or_default();
        let mut ranges = plain.iter().peekable();
        let mut from = done;
        while let Some((Range { start, end }, index)) = finder.find(prompt, from, interrupt)? {
            let special = &self.tokens[index];
            while ranges.peek().is_some_and(|range| range.end <= start) {
                ranges.next();
            }
            if special.reserved && ranges.peek().is_some_and(|range| range.start < end) {
                // The request wrote at least a part of this spelling. Another spelling may begin
                // inside it.
                interrupt.check()?;
                from = start + 1;
                continue;
            }
            let text = &prompt[done..start];
            let text = if strip { text.trim_start() } else { text };
            let text = if special.strips_before { text.trim_end() } else { text };
            push(vocab, text, &mut tokens, interrupt)?;
            tokens.push(special.token);
            strip = special.strips_after;
            (done, from) = (end, end);
            cuts.push(TokenBoundary { byte: end, tokens: tokens.len(), strips: strip });
        }
        let rest = &prompt[done..];
        let rest = if strip { rest.trim_start() } else { rest };
        push(vocab, rest, &mut tokens, interrupt)?;
        Ok(TokenizedPrompt { tokens, plain, cuts, media: Vec::new() })
    }
}

fn push(
    vocab: &dyn Vocab,
    text: &str,
    tokens: &mut Vec<TokenId>,
    interrupt: &Interrupt,
) -> Result<()> {
    if !text.is_empty() {
        interrupt.check()?;
        let following = match tokens.is_empty() {
            true => vocab.tokenize(text, false, interrupt)?,
            false => vocab.tokenize_after(text, interrupt)?,
        };
        tokens.extend(following);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Every byte is a token. The first token marks the start of each text, like the word-start of
    /// a real vocabulary.
    struct WordStartVocab;

    impl Vocab for WordStartVocab {
        fn len(&self) -> usize {
            300
        }

        fn tokenize(&self, text: &str, parse_special: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
            assert!(!parse_special);
            Ok([299].into_iter().chain(text.bytes().map(TokenId::from)).collect())
        }

        fn piece(&self, _: TokenId, _: bool) -> Vec<u8> {
            Vec::new()
        }

        fn is_end_of_generation(&self, _: TokenId) -> bool {
            false
        }

        fn required_bos(&self) -> Option<TokenId> {
            None
        }

        fn special_tokens(&self) -> &SpecialTokens {
            unreachable!("the test brings its own")
        }
    }

    fn special(text: &str, token: TokenId, control: bool) -> SpecialToken {
        SpecialToken {
            text: text.to_owned(),
            token,
            control,
            reserved: control,
            strips_before: false,
            strips_after: false,
        }
    }

    fn specials() -> SpecialTokens {
        let mut end = special("<e>", 257, true);
        end.strips_after = true;
        let mut word = special("<w>", 259, false);
        word.strips_before = true;
        SpecialTokens::new(vec![special("<s>", 256, true), end, special("<e><e>", 258, true), word])
    }

    #[track_caller]
    fn check(prompt: &str, plain: Option<Range<usize>>, expected: &str) {
        let shown: String = specials()
            .tokenize(
                &WordStartVocab,
                prompt,
                plain.into_iter().collect(),
                None,
                &Interrupt::default(),
            )
            .unwrap()
            .tokens
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
    fn spellings_of_the_template_are_special() {
        check("<s>a<e> b<e><e>", None, "[S]|a[E]|b[EE]");
        check("", None, "");
        check("a<w>b", None, "|a[W]|b");
    }

    #[test]
    fn spellings_of_the_request_are_text() {
        check("<s>a<e>b<e>", Some(3..8), "[S]|a<e>b[E]");
        check("<s><w><e>", Some(3..6), "[S][W][E]");
        // The request wrote a part of the spelling.
        check("<s>x<e>y", Some(3..5), "[S]|x<e>y");
        check("<s>x<e>y", Some(6..8), "[S]|x<e>y");
        // A spelling inside a refused one is found.
        check("<<s>", Some(0..1), "|<[S]");
        check("<s>", Some(0..0), "[S]");
    }

    /// All texts of this many pieces. Each piece is a special token, a part of one, or plain text.
    fn texts(pieces: u32) -> Vec<String> {
        const PIECES: [&str; 6] = ["<s>", "<e>", " <w>", " ", "a", "<e"];
        let text = |number: usize| -> String {
            (0..pieces)
                .map(|place| PIECES[number / PIECES.len().pow(place) % PIECES.len()])
                .collect()
        };
        (0..PIECES.len().pow(pieces)).map(text).collect()
    }

    #[test]
    fn reusing_a_prompt_changes_no_token() {
        let specials = specials();
        let tokens =
            |prompt: &str, plain: &[(usize, usize)], before: Option<(&str, &TokenizedPrompt)>| {
                let plain = plain.iter().map(|(start, end)| *start..*end).collect();
                let interrupt = Interrupt::default();
                let mut tokenized =
                    specials.tokenize(&WordStartVocab, prompt, plain, before, &interrupt).unwrap();
                if before.is_none() {
                    tokenized.prepend(300);
                }
                tokenized
            };
        // The plain ranges of one request and of the next.
        let plains: [[&[(usize, usize)]; 2]; 5] = [
            [&[], &[]],
            [&[(2, 5)], &[(2, 5)]],
            [&[(2, 5)], &[(2, 9)]],
            [&[(0, 1), (6, 9)], &[(0, 1)]],
            [&[], &[(3, 4)]],
        ];
        let tails = texts(2);
        let mut taken = 0;
        for (index, head) in texts(3).iter().enumerate() {
            let [old, new] = plains[index % plains.len()];
            for tail in &tails {
                let known = format!("{head}{tail}");
                let before = tokens(&known, old, None);
                for tail in &tails {
                    let prompt = format!("{head}{tail}");
                    let again = tokens(&prompt, new, Some((&known, &before)));
                    let mut anew = tokens(&prompt, new, None);
                    if again.tokens.first() != Some(&300) {
                        // Nothing was reused, so the prepended token is missing.
                        anew.tokens.remove(0);
                    } else {
                        taken += 1;
                    }
                    assert_eq!(again.tokens, anew.tokens, "{known:?} {old:?}, {prompt:?} {new:?}");
                }
            }
        }
        assert!(taken > 10_000, "{taken}");
    }
}
