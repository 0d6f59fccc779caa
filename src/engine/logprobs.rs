//! Log probabilities of sampled tokens.
//!
//! In: the model's logits, before bias, penalties, grammar, truncation and temperature. Out:
//! natural logarithms of their softmax, accurate to about 1e-7. The row was already read for the
//! draw, and only the likeliest tokens are sorted.

use std::collections::VecDeque;

use super::backend::TokenId;
use super::sampler::{LogitRow, likeliest_n, log_weight};

/// Replaces NaN and minus infinity, which JSON cannot represent.
const MIN: f64 = -9999.0;

/// A token and the logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: TokenId,
    /// Natural logarithm, at least -9999.
    pub logprob: f64,
}

/// A token that was sampled or forced, and the likeliest alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledLogprobs {
    /// The token of the reply.
    pub sampled: Logprob,
    /// The likeliest first; among equals, the one with the smaller id.
    pub top: Vec<Logprob>,
}

impl SampledLogprobs {
    /// The log probabilities of `sampled` and of the `n_top` likeliest tokens, from the logits of
    /// the whole vocabulary.
    pub fn of(row: &LogitRow, sampled: TokenId, n_top: usize) -> SampledLogprobs {
        let (greatest, logarithm) = (f64::from(row.greatest()), log_weight(row));
        let logprob = |token: TokenId| {
            let logit = usize::try_from(token).ok().and_then(|token| row.logits().get(token));
            let value = logit.map_or(f64::NAN, |logit| f64::from(*logit) - greatest - logarithm);
            // `f64::max` of NaN and a number is the number.
            Logprob { token, logprob: value.max(MIN) }
        };
        SampledLogprobs {
            sampled: logprob(sampled),
            top: likeliest_n(row, n_top).into_iter().map(logprob).collect(),
        }
    }
}

/// Log probabilities of tokens whose text is not sent yet: a character is incomplete, or a stop
/// string may have begun.
#[derive(Debug, Default)]
pub(crate) struct PendingLogprobs {
    /// Each entry with the length of the text up to the end of its token.
    waiting: VecDeque<(usize, SampledLogprobs)>,
    made: usize,
    shown: usize,
}

impl PendingLogprobs {
    /// Adds a token that completed `text`. Unless `whole`, the token also begins another character.
    pub(crate) fn push(&mut self, logprobs: SampledLogprobs, text: &str, whole: bool) {
        self.made += text.len();
        self.waiting.push_back((self.made + usize::from(!whole), logprobs));
    }

    /// The log probabilities to send with this text.
    pub(crate) fn shown(&mut self, text: &str) -> Vec<SampledLogprobs> {
        self.shown += text.len();
        let ready = self.waiting.iter().take_while(|(end, _)| *end <= self.shown).count();
        self.waiting.drain(..ready).map(|(_, logprobs)| logprobs).collect()
    }

    /// The log probabilities to send at the end.
    pub(crate) fn rest(&mut self) -> Vec<SampledLogprobs> {
        self.waiting.drain(..).map(|(_, logprobs)| logprobs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        logits: &[f32],
        sampled: TokenId,
        n_top: usize,
        expected: f64,
        top: &[TokenId],
    ) -> SampledLogprobs {
        let mut maxima = Vec::new();
        let logprobs = SampledLogprobs::of(&LogitRow::read(logits, &mut maxima), sampled, n_top);
        assert!((logprobs.sampled.logprob - expected).abs() < 1e-9, "{logprobs:?}");
        assert_eq!(logprobs.sampled.token, sampled);
        assert_eq!(logprobs.top.iter().map(|top| top.token).collect::<Vec<_>>(), top);
        logprobs
    }

    #[test]
    fn log_probabilities_are_logarithms_of_the_softmax() {
        check(&[0.0, 0.0], 1, 0, 0.5_f64.ln(), &[]);
        check(&[1000.0, 1000.0, 1000.0, 1000.0], 3, 2, 0.25_f64.ln(), &[0, 1]);
        let all = check(
            &[0.0, 2.0, -1.0, 2.0, 1.0],
            2,
            20,
            -1.0 - all_of(&[0.0, 2.0, -1.0, 2.0, 1.0]),
            &[1, 3, 4, 0, 2],
        );
        let sum: f64 = all.top.iter().map(|top| top.logprob.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    fn all_of(logits: &[f64]) -> f64 {
        logits.iter().map(|logit| logit.exp()).sum::<f64>().ln()
    }

    #[test]
    fn the_top_is_what_sorting_would_give() {
        // Values that rise and fall, some of them equal.
        let logits: Vec<f32> =
            (0..1000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 22) as f32 / 64.0).collect();
        let mut sorted: Vec<usize> = (0..logits.len()).collect();
        sorted.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        for n in [1, 2, 7, 20] {
            let mut maxima = Vec::new();
            let top = SampledLogprobs::of(&LogitRow::read(&logits, &mut maxima), 0, n).top;
            let top: Vec<usize> = top.iter().map(|each| each.token as usize).collect();
            assert_eq!(top, sorted[..n]);
        }
    }

    #[test]
    fn nan_and_infinity_are_replaced() {
        check(&[0.0, f32::NEG_INFINITY], 1, 2, MIN, &[0, 1]);
        check(&[0.0, f32::NAN], 1, 2, MIN, &[0]);
        check(&[f32::NAN, f32::NAN], 0, 1, MIN, &[]);
        check(&[0.0], -1, 0, MIN, &[]);
    }

    #[test]
    fn log_probabilities_wait_for_the_text_of_their_tokens() {
        let of =
            |token| SampledLogprobs { sampled: Logprob { token, logprob: 0.0 }, top: Vec::new() };
        let tokens = |logprobs: Vec<SampledLogprobs>| {
            logprobs.iter().map(|each| each.sampled.token).collect::<Vec<_>>()
        };
        let mut unsent = PendingLogprobs::default();
        unsent.push(of(1), "G", false);
        assert!(unsent.shown("G").is_empty(), "the character its last byte begins is not out");
        unsent.push(of(2), "\u{fc}n", true);
        assert_eq!(tokens(unsent.shown("\u{fc}")), [1]);
        unsent.push(of(3), "", true);
        assert!(unsent.shown("").is_empty());
        assert_eq!(tokens(unsent.shown("n")), [2, 3]);
        unsent.push(of(4), "STOP", true);
        assert_eq!(tokens(unsent.rest()), [4]);
    }
}
