//! Log probabilities of tokens -> of what they spell.

use crate::api::logprobs::{SampledToken, TokenLogprob};
use crate::engine::{Logprob, SampledLogprobs, Vocab};

/// With the bytes of each token; a control token's are its name, shown or not.
pub(super) fn spelt(vocab: &dyn Vocab, logprobs: Vec<SampledLogprobs>) -> Vec<SampledToken> {
    let spell = |logprob: &Logprob| TokenLogprob {
        bytes: vocab.piece(logprob.token, true),
        logprob: logprob.logprob,
    };
    let sampled = logprobs.iter();
    sampled
        .map(|each| SampledToken {
            sampled: spell(&each.sampled),
            top: each.top.iter().map(spell).collect(),
        })
        .collect()
}
