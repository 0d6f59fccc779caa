//! DRY: a penalty for tokens that would continue a repetition. The penalty grows with its length.
//!
//! The rule is llama.cpp's (b11429), which follows the original,
//! <https://github.com/oobabooga/text-generation-webui/pull/5677>. A sequence breaker ends a
//! repetition: tokens are never compared across it.

use std::collections::HashMap;
use std::sync::Arc;

use super::history::TokenHistory;
use crate::engine::backend::{TokenId, Vocab};
use crate::engine::interrupt::Interrupt;
use crate::error::Result;

/// The maximum number of tokens of a breaker that are compared after its first.
const LONGEST_TAIL: usize = 20;

/// The token sequences that spell a breaker: their first token, and the possible rests.
#[derive(Debug, Default)]
pub struct DryBreakers(HashMap<TokenId, Vec<Vec<TokenId>>>);

impl DryBreakers {
    /// The tokens of these texts in a vocabulary. A breaker may begin within a token. A large
    /// vocabulary takes some milliseconds. May be called from any thread.
    ///
    /// # Errors
    /// Fails as [`Vocab::tokenize`] does.
    pub fn new(texts: &[String], vocab: &dyn Vocab, interrupt: &Interrupt) -> Result<DryBreakers> {
        let mut breakers: HashMap<TokenId, Vec<Vec<TokenId>>> = HashMap::new();
        let mut tails: HashMap<&str, Vec<TokenId>> = HashMap::new();
        for token in 0..vocab.len() as TokenId {
            let piece = vocab.piece(token, true);
            for text in texts {
                for rest in rests(&piece, text) {
                    if !tails.contains_key(rest) {
                        let mut tail = vocab.tokenize(rest, false, interrupt)?;
                        tail.truncate(LONGEST_TAIL);
                        tails.insert(rest, tail);
                    }
                    let known = breakers.entry(token).or_default();
                    if !known.contains(&tails[rest]) {
                        known.push(tails[rest].clone());
                    }
                }
            }
        }
        Ok(DryBreakers(breakers))
    }

    /// Whether the token contains a whole breaker.
    fn is_whole(&self, token: TokenId) -> bool {
        self.0.get(&token).is_some_and(|tails| tails.iter().any(Vec::is_empty))
    }
}

/// The rests of `text` after a token that ends with a beginning of `text`. A rest is empty if the
/// token contains all of `text`.
fn rests<'a>(piece: &[u8], text: &'a str) -> Vec<&'a str> {
    if text.is_empty() {
        return Vec::new();
    }
    if piece.windows(text.len()).any(|window| window == text.as_bytes()) {
        return vec![""];
    }
    let lengths = (1..text.len().min(piece.len() + 1)).rev();
    let spelled = lengths.filter(|length| piece.ends_with(&text.as_bytes()[..*length]));
    // A rest that begins within a character is not UTF-8.
    spelled.filter_map(|length| text.get(length..)).collect()
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
