//! Log probabilities of a reply, in OpenAI's shape.

use serde_json::{Value, json};

/// A token and the natural logarithm of its probability.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The text of the token. It may not be valid UTF-8, because a token may end inside a
    /// character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of the probability.
    pub logprob: f64,
}

/// A token of the reply, and the most likely tokens at its position.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The token in the reply.
    pub sampled: TokenLogprob,
    /// The most likely tokens, in descending order.
    pub top: Vec<TokenLogprob>,
}

impl TokenLogprob {
    fn to_json(&self) -> Value {
        json!({ "token": String::from_utf8_lossy(&self.bytes), "logprob": self.logprob, "bytes": self.bytes })
    }
}

impl SampledToken {
    fn to_json(&self) -> Value {
        let mut entry = self.sampled.to_json();
        entry["top_logprobs"] = self.top.iter().map(TokenLogprob::to_json).collect();
        entry
    }
}

/// The `logprobs` member of a reply or of a chunk.
pub fn logprobs_json(tokens: &[SampledToken]) -> Value {
    json!({ "content": tokens.iter().map(SampledToken::to_json).collect::<Vec<_>>() })
}
