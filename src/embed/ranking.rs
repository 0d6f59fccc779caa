//! The scores of documents, and the reply of `llb_rank`, in the shape of Jina's, Cohere's and
//! llama-server's APIs.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::response::{EmbedTimings, EmbedUsage};
use super::texts::TruncatedText;
use crate::error::{Code, Error, Result};

/// A scored document.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RankResult {
    /// The index of the document in the request.
    pub index: usize,
    /// The relevance; a greater score is better.
    pub score: f32,
}

/// The results in descending order of score. `computed` has the scores of each document, and the
/// first of them is its relevance.
pub(super) fn results(computed: &[Vec<f32>], top_n: Option<usize>) -> Result<Vec<RankResult>> {
    let score = |(index, scores): (usize, &Vec<f32>)| match scores.first() {
        Some(score) if score.is_finite() => Ok(RankResult { index, score: *score }),
        _ => {
            let message = format!(
                "documents[{index}]: the model computed a score that is not finite; its weights \
                 may be damaged"
            );
            Err(Error::new(Code::InferenceFailed, message))
        }
    };
    let mut results = computed.iter().enumerate().map(score).collect::<Result<Vec<_>>>()?;
    // Equal scores stay in the order of the request.
    results.sort_by(|a, b| b.score.total_cmp(&a.score));
    results.truncate(top_n.unwrap_or(usize::MAX));
    Ok(results)
}

/// A finished reply of `llb_rank`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RankResponse {
    /// The model's name.
    pub model: String,
    /// The results, the best first.
    pub results: Vec<RankResult>,
    /// The documents of the request. None if they were not requested.
    pub documents: Option<Vec<String>>,
    /// The total number of tokens in all pairs.
    pub n_tokens: usize,
    /// The documents that were cut because they were too long.
    pub truncated: Vec<TruncatedText>,
    /// The time of the call, without waiting for earlier calls.
    pub took: Duration,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
}

/// The reply object of the ABI.
impl Serialize for RankResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            text: &'a str,
        }
        #[derive(Serialize)]
        struct RankedItem<'a> {
            index: usize,
            relevance_score: f32,
            #[serde(skip_serializing_if = "Option::is_none")]
            document: Option<Document<'a>>,
        }
        #[derive(Serialize)]
        struct RankingShape<'a> {
            r#type: &'static str,
            object: &'static str,
            model: &'a str,
            results: Vec<RankedItem<'a>>,
            usage: EmbedUsage,
            truncated: &'a [TruncatedText],
            timings: EmbedTimings,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            ignored_keys: &'a [String],
        }
        let document = |index: usize| Some(Document { text: self.documents.as_ref()?.get(index)? });
        let item = |result: &RankResult| RankedItem {
            index: result.index,
            relevance_score: result.score,
            document: document(result.index),
        };
        let shape = RankingShape {
            r#type: "ranking",
            object: "list",
            model: &self.model,
            results: self.results.iter().map(item).collect(),
            usage: EmbedUsage::of(self.n_tokens),
            truncated: &self.truncated,
            timings: EmbedTimings::of(self.took, self.n_tokens),
            ignored_keys: &self.ignored_keys,
        };
        shape.serialize(serializer)
    }
}
