//! The reply of `llb_embed`, in the shape of OpenAI's embeddings API.

use std::time::Duration;

use serde::Serialize;

use super::texts::TruncatedText;
use crate::api::Pooling;

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
