//! An open model for embeddings and scores.

use serde_json::Value;

use super::members::Members;
use crate::api::EmbedOptions;
use crate::diagnostic::Diagnostic;
use crate::embed::{RankResponse, TruncatedText};
use crate::error::Result;
use crate::ffi::OwnedEmbedder;

/// An open model that computes embeddings of texts, or scores of documents.
///
/// [`Model::embedder`](super::Model::embedder) opens one. All methods may be called from any thread;
/// calls run one after another, in order of arrival. When it is dropped, its calls end and its
/// memory is freed.
#[derive(Debug)]
pub struct Embedder(OwnedEmbedder);

impl Embedder {
    pub(super) fn open(options: impl FnOnce() -> Result<EmbedOptions>) -> Result<Embedder> {
        OwnedEmbedder::open(options).map(Embedder)
    }

    /// The embeddings of texts.
    ///
    /// # Errors
    /// [`ContextOverflow`](super::Code::ContextOverflow) for a text that is too long, and
    /// [`Cancelled`](super::Code::Cancelled).
    ///
    /// ```
    #[doc = include_str!("scripted.txt")]
    /// # let path = scripted("embedding.gguf");
    /// use llb::{EmbedRequest, Model};
    ///
    /// let embedder = Model::new(path).embedder()?;
    /// let embeddings = embedder.embed(&EmbedRequest::new(["a river", "a mountain"]))?;
    /// assert_eq!(embeddings.vectors.len(), 2);
    /// let length: f32 = embeddings.vectors[0].iter().map(|number| number * number).sum();
    /// assert!((length - 1.0).abs() < 1e-5);
    /// # Ok::<(), llb::Error>(())
    /// ```
    pub fn embed(&self, request: &EmbedRequest) -> Result<Embeddings> {
        let request = request.0.to_value("request")?;
        let (vectors, summary) = self.0.call(|model| model.embed_value(&request))?;
        Ok(Embeddings {
            vectors,
            prompt_tokens: summary.n_tokens,
            truncated: summary.truncated,
            diagnostics: summary.diagnostics,
            ignored_keys: summary.ignored_keys,
        })
    }

    /// Documents in the order of their scores for a query. Needs a model made for ranking.
    ///
    /// # Errors
    /// Those of [`Embedder::embed`].
    pub fn rank(&self, request: &RankRequest) -> Result<RankResponse> {
        let request = request.0.to_value("request")?;
        self.0.call(|model| model.rank_value(&request))
    }

    /// Ends the running call and all waiting ones with [`Cancelled`](super::Code::Cancelled). Does
    /// not wait.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// The texts to embed, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedRequest(Members);

impl EmbedRequest {
    /// A request for the embeddings of these texts.
    pub fn new(texts: impl IntoIterator<Item = impl Into<String>>) -> EmbedRequest {
        EmbedRequest(Members::default()).set("input", list(texts))
    }

    /// Sets a member by its name in JSON, such as `prefix`, `dimensions` and `truncate`
    /// (docs/embeddings.md).
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> EmbedRequest {
        self.0.set(name, value);
        self
    }
}

/// A query, and the documents to rank for it.
#[derive(Debug, Clone, PartialEq)]
pub struct RankRequest(Members);

impl RankRequest {
    /// A request to rank these documents.
    pub fn new(
        query: impl Into<String>,
        documents: impl IntoIterator<Item = impl Into<String>>,
    ) -> RankRequest {
        let request = RankRequest(Members::default()).set("query", query.into());
        request.set("documents", list(documents))
    }

    /// Sets a member by its name in JSON, such as `top_n` (docs/embeddings.md).
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> RankRequest {
        self.0.set(name, value);
        self
    }
}

fn list(texts: impl IntoIterator<Item = impl Into<String>>) -> Value {
    texts.into_iter().map(|text| Value::String(text.into())).collect()
}

/// The embeddings of texts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Embeddings {
    /// The vector of each text, in order. With the option `pooling` "none", the vectors of a text's
    /// tokens, one after another.
    pub vectors: Vec<Vec<f32>>,
    /// The number of tokens in all texts.
    pub prompt_tokens: usize,
    /// The texts that were cut because they were too long.
    pub truncated: Vec<TruncatedText>,
    /// What the caller should know about the model.
    pub diagnostics: Vec<Diagnostic>,
    /// The unknown members of the request, by path.
    pub ignored_keys: Vec<String>,
}
