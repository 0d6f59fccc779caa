//! Log probabilities of a reply, in OpenAI's shape.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A token and the natural logarithm of its probability.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The text of the token. It may not be valid UTF-8, because a token may end inside a
    /// character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of the probability.
    pub logprob: f64,
}

/// A token of the reply, and the most likely tokens at its position.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SampledToken {
    /// The token in the reply.
    pub sampled: TokenLogprob,
    /// The most likely tokens, in descending order.
    pub top: Vec<TokenLogprob>,
}

/// The `logprobs` member of a reply or of a chunk. It is written token by token, because a long
/// reply has many.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LogprobsMember<'a> {
    /// The tokens of the reply, in order.
    pub content: &'a [SampledToken],
}

impl TokenLogprob {
    fn write<S: SerializeStruct>(&self, entry: &mut S) -> Result<(), S::Error> {
        entry.serialize_field("token", &String::from_utf8_lossy(&self.bytes))?;
        entry.serialize_field("logprob", &self.logprob)?;
        entry.serialize_field("bytes", &self.bytes)
    }
}

impl Serialize for TokenLogprob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = serializer.serialize_struct("TokenLogprob", 3)?;
        self.write(&mut entry)?;
        entry.end()
    }
}

impl Serialize for SampledToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = serializer.serialize_struct("SampledToken", 4)?;
        self.sampled.write(&mut entry)?;
        entry.serialize_field("top_logprobs", &self.top)?;
        entry.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_openai_s_shape() {
        let token = |bytes: &[u8], logprob| TokenLogprob { bytes: bytes.to_vec(), logprob };
        let top = vec![token(b"a\"", -0.5), token(b"\xc3", f64::NEG_INFINITY)];
        let tokens = [
            SampledToken { sampled: top[0].clone(), top: top.clone() },
            SampledToken { sampled: token("ü".as_bytes(), -12.25), top: Vec::new() },
        ];
        let written = serde_json::to_string(&LogprobsMember { content: &tokens }).expect("JSON");
        // https://platform.openai.com/docs/api-reference/chat/object
        let expected = concat!(
            r#"{"content":[{"token":"a\"","logprob":-0.5,"bytes":[97,34],"top_logprobs":["#,
            r#"{"token":"a\"","logprob":-0.5,"bytes":[97,34]},"#,
            "{\"token\":\"\u{fffd}\",\"logprob\":null,\"bytes\":[195]}]},",
            r#"{"token":"ü","logprob":-12.25,"bytes":[195,188],"top_logprobs":[]}]}"#,
        );
        assert_eq!(written, expected);
    }
}
