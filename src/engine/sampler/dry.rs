//! DRY: a penalty for tokens that would continue a repetition. The penalty grows with its length.
//!
//! The rule is llama.cpp's (b11429), which follows the original,
//! <https://github.com/oobabooga/text-generation-webui/pull/5677>. A sequence breaker ends a
//! repetition: tokens are never compared across it.

use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem;

use super::history::TokenHistory;
use crate::engine::backend::TokenId;
use crate::engine::interrupt::Interrupt;
use crate::engine::vocab::Vocab;
use crate::error::Result;

/// The maximum number of tokens of a breaker that are compared after its first.
const MAX_TAIL: usize = 20;
/// After how many tokens of the vocabulary the interrupt is checked.
const CHECK_EVERY: usize = 16;

/// The possible rests of breakers after a token, sorted, so that an empty one comes first.
type Tails = Arc<[Vec<TokenId>]>;

/// The token sequences that spell a breaker: their first token, and the possible rests. Tokens with
/// the same rests share them.
#[derive(Debug, Default)]
pub struct DryBreakers(HashMap<TokenId, Tails>);

impl DryBreakers {
    /// The tokens of these texts in a vocabulary. A breaker may begin within a token. A large
    /// vocabulary takes some milliseconds. May be called from any thread.
    ///
    /// # Errors
    /// Fails as [`Vocab::tokenize`] does.
    pub fn new(texts: &[String], vocab: &dyn Vocab, interrupt: &Interrupt) -> Result<DryBreakers> {
        let texts: Vec<BreakerText> =
            texts.iter().filter_map(|text| BreakerText::new(text)).collect();
        let mut breakers: HashMap<TokenId, Tails> = HashMap::new();
        let mut known: HashMap<Vec<&str>, Tails> = HashMap::new();
        let mut tails: HashMap<&str, Vec<TokenId>> = HashMap::new();
        for token in 0..vocab.len() {
            if token.is_multiple_of(CHECK_EVERY) {
                interrupt.check()?;
            }
            let token = token as TokenId;
            let piece = vocab.piece(token, true);
            let rests: Vec<&str> = texts.iter().flat_map(|text| text.rests(&piece)).collect();
            if rests.is_empty() {
                continue;
            }
            if let Some(of_rests) = known.get(&rests) {
                breakers.insert(token, Arc::clone(of_rests));
                continue;
            }
            let mut of_rests = Vec::with_capacity(rests.len());
            for rest in &rests {
                if !tails.contains_key(rest) {
                    let mut tail = vocab.tokenize(rest, false, interrupt)?;
                    tail.truncate(MAX_TAIL);
                    tails.insert(rest, tail);
                }
                of_rests.push(tails[rest].clone());
            }
            of_rests.sort_unstable();
            of_rests.dedup();
            let of_rests = Tails::from(of_rests);
            known.insert(rests, Arc::clone(&of_rests));
            breakers.insert(token, of_rests);
        }
        Ok(DryBreakers(breakers))
    }

    /// Whether the token contains a whole breaker.
    fn is_whole(&self, token: TokenId) -> bool {
        self.0.get(&token).is_some_and(|tails| tails.first().is_some_and(Vec::is_empty))
    }
}

/// The text of a breaker.
struct BreakerText<'a> {
    text: &'a str,
    first: u8,
    finder: memmem::Finder<'a>,
}

impl<'a> BreakerText<'a> {
    /// `None` for an empty text, which breaks nothing.
    fn new(text: &'a str) -> Option<BreakerText<'a>> {
        let first = *text.as_bytes().first()?;
        Some(BreakerText { text, first, finder: memmem::Finder::new(text) })
    }

    /// The rests of the text after a token that ends with a beginning of it. The only rest is empty
    /// if the token contains the whole text.
    fn rests(&self, piece: &[u8]) -> Vec<&'a str> {
        if self.finder.find(piece).is_some() {
            return vec![""];
        }
        let end = &piece[piece.len().saturating_sub(self.text.len() - 1)..];
        let starts = (0..end.len())
            .filter(|at| end[*at] == self.first && self.text.as_bytes().starts_with(&end[*at..]));
        // A rest that begins within a character is not UTF-8.
        starts.filter_map(|at| self.text.get(end.len() - at..)).collect()
    }
}

/// The numbers of llama.cpp's `dry_*` options.
#[derive(Debug, Clone, Copy)]
pub(super) struct DryOptions {
    pub(super) multiplier: f32,
    pub(super) base: f32,
    pub(super) allowed_length: usize,
}

/// The recent tokens, and the repetitions in them.
#[derive(Debug)]
pub(super) struct Dry {
    options: DryOptions,
    breakers: Arc<DryBreakers>,
    history: TokenHistory,
    /// For each place in the history, how many tokens up to it equal the last tokens.
    repeats: Vec<usize>,
    /// The longest repetition that each token would continue, sorted by token.
    longest: Vec<(TokenId, usize)>,
    penalties: Vec<(TokenId, f32)>,
}

impl Dry {
    pub(super) fn new(options: DryOptions, most: usize, breakers: Arc<DryBreakers>) -> Dry {
        let history = TokenHistory::new(most);
        Dry {
            options,
            breakers,
            history,
            repeats: Vec::new(),
            longest: Vec::new(),
            penalties: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, token: TokenId) {
        self.history.push(token);
    }

    /// The tokens that would continue a repetition, sorted by id, each with the penalty to subtract
    /// from its logit.
    pub(super) fn penalties(&mut self) -> &[(TokenId, f32)] {
        self.longest.clear();
        let limit = self.limit();
        let allowed = self.options.allowed_length;
        if self.history.len() > allowed && limit >= allowed {
            self.find_repeats();
            // The last tokens also occur before `place`. The token after them would continue the
            // repetition.
            for place in 1..self.history.len() {
                let length = self.repeats[place].min(limit);
                let next = self.history.before_last(place - 1);
                if length >= allowed && !self.breakers.is_whole(next) {
                    self.longest.push((next, length));
                }
            }
            self.longest.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            self.longest.dedup_by_key(|(token, _)| *token);
        }
        let options = self.options;
        let penalties =
            self.longest.iter().map(|(token, length)| (*token, options.penalty(*length)));
        self.penalties.clear();
        self.penalties.extend(penalties);
        &self.penalties
    }

    /// How many of the last tokens come after the last breaker.
    fn limit(&self) -> usize {
        for place in 0..self.history.len() {
            let Some(tails) = self.breakers.0.get(&self.history.before_last(place)) else {
                continue;
            };
            let follows = |tail: &&Vec<TokenId>| {
                tail.len() <= place
                    && (0..tail.len())
                        .all(|offset| tail[offset] == self.history.before_last(place - 1 - offset))
            };
            if let Some(longest) = tails.iter().filter(follows).map(Vec::len).max() {
                return place - longest;
            }
        }
        self.history.len()
    }

    /// Computes the Z-function of the reversed history in linear time: for each place, how many
    /// tokens from it backwards equal the last tokens.
    fn find_repeats(&mut self) {
        let history = &self.history;
        let n = history.len();
        self.repeats.clear();
        self.repeats.resize(n, 0);
        // The match that reaches farthest, from `start` to before `end`.
        let (mut start, mut end) = (0, 0);
        for place in 1..n {
            let mut length =
                if place < end { self.repeats[place - start].min(end - place) } else { 0 };
            while place + length < n
                && history.before_last(length) == history.before_last(place + length)
            {
                length += 1;
            }
            self.repeats[place] = length;
            if place + length > end {
                (start, end) = (place, place + length);
            }
        }
    }
}

impl DryOptions {
    /// The penalty, `multiplier * base ^ (length - allowed_length)`. The exponent is limited so
    /// that the power stays finite.
    fn penalty(&self, length: usize) -> f32 {
        /// The natural logarithm of the largest `f32`.
        const GREATEST: f32 = 88.722_84;
        let mut exponent = (length - self.allowed_length).min(i32::MAX as usize) as i32;
        if self.base > 1.000_001 {
            exponent = exponent.min((GREATEST / self.base.ln()) as i32);
        }
        (f64::from(self.multiplier) * f64::from(self.base).powf(f64::from(exponent))) as f32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::engine::vocab::SpecialTokens;

    /// A vocabulary of pieces that are repeated, which counts what it is asked. A text becomes one
    /// token per byte.
    struct PieceVocab {
        pieces: Vec<&'static str>,
        len: usize,
        texts: AtomicUsize,
        /// Cancels the call after this many pieces.
        cancel: Option<(Arc<AtomicBool>, AtomicUsize)>,
    }

    impl PieceVocab {
        fn new(pieces: &[&'static str], len: usize) -> PieceVocab {
            PieceVocab { pieces: pieces.to_vec(), len, texts: AtomicUsize::new(0), cancel: None }
        }
    }

    impl Vocab for PieceVocab {
        fn len(&self) -> usize {
            self.len
        }

        fn tokenize(&self, text: &str, _: bool, _: &Interrupt) -> Result<Vec<TokenId>> {
            self.texts.fetch_add(1, Ordering::Relaxed);
            Ok(text.bytes().map(TokenId::from).collect())
        }

        fn piece(&self, token: TokenId, _: bool) -> Vec<u8> {
            if let Some((cancel, remaining)) = &self.cancel
                && remaining.fetch_sub(1, Ordering::Relaxed) == 1
            {
                cancel.store(true, Ordering::Relaxed);
            }
            self.pieces[token as usize % self.pieces.len()].as_bytes().to_vec()
        }

        fn is_end_of_generation(&self, _: TokenId) -> bool {
            false
        }

        fn required_bos(&self) -> Option<TokenId> {
            None
        }

        fn special_tokens(&self) -> &SpecialTokens {
            unreachable!("breakers have none")
        }
    }

    fn breakers(texts: &[&str], vocab: &PieceVocab) -> DryBreakers {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        DryBreakers::new(&texts, vocab, &Interrupt::default()).unwrap()
    }

    #[track_caller]
    fn check(texts: &[&str], piece: &'static str, expected: &[&str]) {
        let breakers = breakers(texts, &PieceVocab::new(&[piece], 1));
        let tails = breakers.0.get(&0).map_or(&[][..], |tails| tails);
        let bytes = |tail: &Vec<TokenId>| tail.iter().map(|byte| *byte as u8).collect();
        let tails: Vec<Vec<u8>> = tails.iter().map(bytes).collect();
        let expected: Vec<&[u8]> = expected.iter().map(|rest| rest.as_bytes()).collect();
        assert_eq!(tails, expected, "{texts:?} after {piece:?}");
        assert_eq!(breakers.is_whole(0), expected.contains(&&b""[..]));
    }

    #[test]
    fn a_breaker_may_begin_within_a_token() {
        check(&["\n"], "a", &[]);
        check(&["\n", ""], "a\nb", &[""]);
        check(&["\n"], "", &[]);
        check(&["abab"], "xaba", &["b", "bab"]);
        check(&["abab"], "abab", &[""]);
        check(&["abab", "ba", "bb"], "ab", &["a", "ab", "b"]);
        check(&["abab", "ba"], "aba", &["", "b", "bab"]);
        check(&["\u{e9}\u{e9}"], "\u{e9}", &["\u{e9}"]);
        check(&["aaa", "aab"], "aa", &["a", "aa", "ab", "b"]);
        let long = "a".repeat(30);
        check(&[&long], "xa", &[&"a".repeat(MAX_TAIL)]);
    }

    #[test]
    fn a_large_vocabulary_is_interrupted() {
        let interrupt = Interrupt::default();
        let mut vocab = PieceVocab::new(&["a"], 1 << 30);
        vocab.cancel = Some((Arc::clone(&interrupt.cancel), AtomicUsize::new(1_000)));
        let error = DryBreakers::new(&["\n".to_owned()], &vocab, &interrupt).unwrap_err();
        assert_eq!(error.code(), crate::error::Code::Cancelled);
        // At most `CHECK_EVERY` pieces were read after that.
        let (_, remaining) = vocab.cancel.unwrap();
        assert!(remaining.into_inner().wrapping_neg() < CHECK_EVERY);
    }

    #[test]
    fn tokens_with_the_same_rests_share_them() {
        let texts: Vec<String> =
            (0..64).map(|index| format!("{}{index}", "\n".repeat(30))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vocab = PieceVocab::new(&["\n\n\n", "x\n\n\n", "x"], 30_000);
        let breakers = breakers(&texts, &vocab);
        assert_eq!(breakers.0.len(), 20_000);
        assert!(breakers.0.values().all(|tails| Arc::ptr_eq(tails, &breakers.0[&0])));
        assert_eq!(vocab.texts.into_inner(), 3 * 64);
    }

    #[test]
    fn breakers_are_found_in_long_pieces() {
        // A comparison at each byte of each piece would take minutes.
        let long: &'static str = "a".repeat(60_000).leak();
        let texts: Vec<String> =
            (0..64).map(|index| format!("{}{index}", "a".repeat(37))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let breakers = breakers(&texts, &PieceVocab::new(&[long], 5_000));
        assert_eq!(breakers.0.len(), 5_000);
    }
}
