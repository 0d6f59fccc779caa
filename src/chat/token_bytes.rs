//! The bytes of the tokens in log probabilities.

use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::engine::{Logprob, SampledLogprobs, Vocab};

/// Adds the bytes of each token. For a control token these are its name, whether it is visible or
/// not.
pub(super) fn with_bytes(vocab: &dyn Vocab, logprobs: &[SampledLogprobs]) -> Vec<SampledToken> {
    let token = |logprob: &Logprob| TokenLogprob {
        bytes: vocab.piece(logprob.token, true),
        logprob: logprob.logprob,
    };
    let sampled = logprobs.iter();
    sampled
        .map(|each| SampledToken {
            sampled: token(&each.sampled),
            top: each.top.iter().map(token).collect(),
        })
        .collect()
}
