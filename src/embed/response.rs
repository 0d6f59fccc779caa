//! The reply of `llb_embed`, in the shape of OpenAI's embeddings API. Each computed vector is cut,
//! scaled to length 1, and encoded.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

use super::texts::TruncatedText;
use crate::api::{EmbedRequest, Pooling, VectorEncoding};
use crate::error::{Code, Error, Result};

/// The result for one text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Embedding {
    /// A vector.
    Floats(Vec<f32>),
    /// A vector as base64.
    Base64(String),
    /// A vector for each token.
    TokenFloats(Vec<Vec<f32>>),
    /// A vector for each token, as base64.
    TokenBase64(Vec<String>),
}

/// A finished reply of `llb_embed`.
#[derive(Debug)]
pub struct EmbedResponse {
    /// The model's name.
    pub model: String,
    /// The results, one for each text, in order.
    pub data: EmbeddingItems,
    /// The total number of tokens in all texts.
    pub n_tokens: usize,
    /// The texts that were cut because they were too long.
    pub truncated: Vec<TruncatedText>,
    /// The pooling that was used.
    pub pooling: Pooling,
    /// The length of each vector.
    pub dimensions: usize,
    /// The time of the call, without waiting for earlier calls.
    pub took: Duration,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
}

/// Token counts under OpenAI's names.
#[derive(Serialize)]
pub(super) struct EmbedUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl EmbedUsage {
    pub(super) fn of(n_tokens: usize) -> EmbedUsage {
        EmbedUsage { prompt_tokens: n_tokens, total_tokens: n_tokens }
    }
}

/// The time, under the names used in a chat's reply.
#[derive(Serialize)]
pub(super) struct EmbedTimings {
    prompt_ms: f64,
    prompt_per_second: f64,
}

impl EmbedTimings {
    pub(super) fn of(took: Duration, n_tokens: usize) -> EmbedTimings {
        let seconds = took.as_secs_f64();
        let prompt_per_second = if seconds > 0.0 { n_tokens as f64 / seconds } else { 0.0 };
        EmbedTimings { prompt_ms: seconds * 1000.0, prompt_per_second }
    }
}

impl EmbedResponse {
    /// Appends the reply object of the ABI.
    pub fn write_json(&self, json: &mut Vec<u8>) -> serde_json::Result<()> {
        #[derive(Serialize)]
        struct EmbedHead<'a> {
            r#type: &'static str,
            object: &'static str,
            model: &'a str,
        }
        #[derive(Serialize)]
        struct EmbedTail<'a> {
            usage: EmbedUsage,
            pooling: &'static str,
            dimensions: usize,
            truncated: &'a [TruncatedText],
            timings: EmbedTimings,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            ignored_keys: &'a [String],
        }
        let head = EmbedHead { r#type: "embeddings", object: "list", model: &self.model };
        let tail = EmbedTail {
            usage: EmbedUsage::of(self.n_tokens),
            pooling: self.pooling.as_str(),
            dimensions: self.dimensions,
            truncated: &self.truncated,
            timings: EmbedTimings::of(self.took, self.n_tokens),
            ignored_keys: &self.ignored_keys,
        };
        serde_json::to_writer(&mut *json, &head)?;
        // The closing brace of the head and the opening brace of the tail are removed, and `data`
        // is inserted there.
        json.pop();
        json.extend_from_slice(b",\"data\":[");
        json.extend_from_slice(&self.data.json);
        json.extend_from_slice(b"],");
        let opened = json.len();
        serde_json::to_writer(&mut *json, &tail)?;
        json.remove(opened);
        Ok(())
    }
}

/// The items of `data` as JSON. They are written while later ones are computed.
#[derive(Debug, Default)]
pub struct EmbeddingItems {
    json: Vec<u8>,
    count: usize,
}

impl EmbeddingItems {
    /// Adds the item of the next text.
    pub(super) fn push(&mut self, embedding: &Embedding) -> serde_json::Result<()> {
        #[derive(Serialize)]
        struct EmbeddingItem<'a> {
            object: &'static str,
            index: usize,
            embedding: &'a Embedding,
        }
        if self.count > 0 {
            self.json.push(b',');
        }
        let item = EmbeddingItem { object: "embedding", index: self.count, embedding };
        self.count += 1;
        serde_json::to_writer(&mut self.json, &item)
    }
}

/// The result of one text. `computed` has one vector of `width` numbers, or one such vector for
/// each token.
pub(super) fn embedding(
    index: usize,
    computed: &[f32],
    (width, pooling): (usize, Pooling),
    request: &EmbedRequest,
) -> Result<Embedding> {
    let of_tokens = pooling == Pooling::None;
    let length = request.dimensions.unwrap_or(width);
    let normalize = request.normalize.unwrap_or(!of_tokens);
    if !computed.iter().all(|number| number.is_finite()) {
        let message = format!(
            "input[{index}]: the model computed numbers that are not finite; its weights may be \
             damaged"
        );
        return Err(Error::new(Code::InferenceFailed, message));
    }
    let mut vectors = computed.chunks_exact(width).map(|vector| {
        let mut vector = vector[..length].to_vec();
        if normalize {
            bring_to_length_one(&mut vector);
        }
        vector
    });
    Ok(match (of_tokens, request.encoding) {
        (true, VectorEncoding::Float) => Embedding::TokenFloats(vectors.collect()),
        (true, VectorEncoding::Base64) => {
            Embedding::TokenBase64(vectors.map(|vector| base64_of(&vector)).collect())
        }
        (false, VectorEncoding::Float) => Embedding::Floats(vectors.next().unwrap_or_default()),
        (false, VectorEncoding::Base64) => {
            Embedding::Base64(base64_of(&vectors.next().unwrap_or_default()))
        }
    })
}

/// Scales a vector to length 1. A vector of zeros does not change.
fn bring_to_length_one(vector: &mut [f32]) {
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    }
}

/// Base64 (RFC 4648, with padding) of little-endian 32-bit floats, as OpenAI writes vectors.
fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_python() {
        // From `base64.b64encode(struct.pack('<3f', 1.0, -2.5, 0.1))` and shorter lists, CPython
        // 3.11.
        assert_eq!(base64_of(&[1.0, -2.5, 0.1]), "AACAPwAAIMDNzMw9");
        assert_eq!(base64_of(&[1.0, -2.5]), "AACAPwAAIMA=");
        assert_eq!(base64_of(&[1.0]), "AACAPw==");
        assert_eq!(base64_of(&[]), "");
    }

    #[test]
    fn lengths_are_one_or_zero() {
        let mut vector = [3.0, 0.0, 4.0];
        bring_to_length_one(&mut vector);
        assert_eq!(vector, [0.6, 0.0, 0.8]);
        let mut zeros = [0.0; 3];
        bring_to_length_one(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
        let mut huge = [f32::MAX, f32::MAX];
        bring_to_length_one(&mut huge);
        assert!((huge[0] - 0.5_f32.sqrt()).abs() < 1e-6);
    }
}
