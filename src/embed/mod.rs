//! An open embedding model: turns texts into vectors, or pairs of texts into scores.
//!
//! ```text
//! EmbedRequest -> tokens of each text -> vectors -> cut, length 1, JSON -> EmbedResponse
//!                 (texts)               (thread)             (response)
//! RankRequest  -> tokens of each pair -> scores -> in order -> RankResponse
//!                 (pairs)               (thread)               (ranking)
//! ```
//!
//! The vectors of some texts are written as JSON while the next ones are computed.

mod kept;
mod loaded;
mod pairs;
mod ranking;
mod response;
mod texts;
mod thread;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::Value;

use crate::api::{EmbedOptions, EmbedRequest, Pooling, RankRequest};
use crate::chat::RequestQueue;
use crate::diagnostic::Diagnostic;
use crate::engine::Interrupt;
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::files_of;
use kept::KeptEmbedder;
use loaded::LoadedEmbedder;
use pairs::PairFormat;
pub use ranking::{RankResponse, RankResult};
pub use response::EmbedResponse;
pub(crate) use response::EmbedSummary;
use response::{EmbedWriter, VectorForm, VectorList, VectorSink};
use texts::TextLimit;
pub use texts::TruncatedText;

/// The most texts of a request. Each takes about a hundred bytes besides its text and its vector.
const MAX_TEXTS: usize = 65_536;

/// An open model. Every method may be called from any thread; calls run one after another.
pub struct EmbeddingModel {
    kept: Arc<KeptEmbedder>,
    pair_format: PairFormat,
    pooling: Pooling,
    /// The length of a vector, or the number of scores.
    width: usize,
    /// The model's name in its metadata, or else the name of the file.
    name: String,
    /// Whether the file is that of a chat model, and the caller has chosen no pooling.
    is_chat_model: bool,
    queue: RequestQueue,
}

impl EmbeddingModel {
    /// Reads and checks the header, then loads the weights.
    pub fn open(options: &EmbedOptions) -> Result<EmbeddingModel> {
        let path = Path::new(&options.model);
        let files = files_of(&options.load, &options.model);
        let header = ModelHeader::read_file(path).map_err(|error| match error.code() {
            Code::ModelNotFound => error.about("model"),
            _ => error,
        })?;
        header.check_before_load(path)?;
        let pooling = pooling(options, &header).map_err(|error| match error.code() {
            Code::ModelInvalid => error.about(&options.model),
            _ => error,
        })?;
        let kept = KeptEmbedder::open(options, pooling, files, &header)?;
        // With `keep_alive` 0 the end of this use unloads the model.
        let width = kept.acquire()?.model().width;
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(EmbeddingModel {
            kept,
            pair_format: PairFormat::of(header.rerank_template()),
            pooling,
            width,
            name: header.name().map_or_else(|| file.into_owned(), str::to_owned),
            is_chat_model: options.pooling.is_none()
                && header.pooling()?.is_none()
                && header.chat_template().is_some(),
            queue: RequestQueue::default(),
        })
    }

    /// The vectors of the texts of a request.
    ///
    /// # Errors
    /// Fails with `INVALID_REQUEST`, also if the request or its reply is too large; with
    /// `CONTEXT_OVERFLOW` if a text is too long; with `OUT_OF_MEMORY`; or with `CANCELLED` after a
    /// cancel or at the time-out.
    pub fn embed(&self, request: &str) -> Result<EmbedResponse> {
        let started = Instant::now();
        let request = EmbedRequest::parse(request)?;
        let begin =
            |form, n_tokens| EmbedWriter::begin(&self.name, form, request.input.len(), n_tokens);
        let (reply, summary) = self.compute(&request, started, begin)?;
        reply.end(&summary)
    }

    /// Like [`EmbeddingModel::embed`], for a request that is not text. Also returns what a reply
    /// says besides its vectors.
    pub(crate) fn embed_value(&self, request: &Value) -> Result<(Vec<Vec<f32>>, EmbedSummary)> {
        let started = Instant::now();
        let request = EmbedRequest::read(request)?;
        let begin = |form, n_tokens| VectorList::begin(form, request.input.len(), n_tokens);
        let (reply, summary) = self.compute(&request, started, begin)?;
        Ok((reply.into_vectors(), summary))
    }

    /// Passes the vectors of the texts to what `begin` makes of their form and of the number of
    /// their tokens.
    fn compute<V: VectorSink>(
        &self,
        request: &EmbedRequest,
        started: Instant,
        begin: impl FnOnce(VectorForm, usize) -> Result<V>,
    ) -> Result<(V, EmbedSummary)> {
        if self.pooling == Pooling::Rank {
            let message = "this model was opened to make scores (pooling \"rank\"); call llb_rank, \
                           or open it with another pooling";
            return Err(Error::new(Code::InvalidRequest, message));
        }
        check_count("input", request.input.len())?;
        self.check_dimensions(request)?;
        let deadline = request.timeout.map(|timeout| started + timeout);
        self.run(deadline, |model, interrupt, start| {
            let limit = TextLimit { n_ctx: model.n_ctx, truncate: request.truncate };
            let texts =
                model.tokenizer.texts(&request.input, &request.prefix, limit, &interrupt)?;
            let (n_tokens, truncated) = (texts.n_tokens(), texts.truncated);
            let form = VectorForm::of(request, self.width, self.pooling);
            let mut reply = begin(form, n_tokens)?;
            model.thread.compute(texts.tokens, interrupt, |computed| reply.push(&computed))?;
            let summary = EmbedSummary {
                n_tokens,
                truncated,
                pooling: self.pooling,
                took: start.elapsed(),
                diagnostics: self.diagnostics(),
                ignored_keys: request.ignored_keys.clone(),
            };
            Ok((reply, summary))
        })
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        let of_chat_model = self.is_chat_model.then(|| {
            let message = format!(
                "{:?} is a chat model: its file names no pooling, and it was not trained for \
                 embeddings; expect poor ones, or use a model for embeddings",
                self.name
            );
            Diagnostic::new("chat_model_embeds", message)
        });
        of_chat_model.into_iter().collect()
    }

    /// The scores of documents for a query, in descending order.
    ///
    /// # Errors
    /// Fails as [`EmbeddingModel::embed`] does.
    pub fn rank(&self, request: &str) -> Result<RankResponse> {
        let started = Instant::now();
        self.rank_by(RankRequest::parse(request)?, started)
    }

    /// Like [`EmbeddingModel::rank`], for a request that is not text.
    pub(crate) fn rank_value(&self, request: &Value) -> Result<RankResponse> {
        let started = Instant::now();
        self.rank_by(RankRequest::read(request)?, started)
    }

    fn rank_by(&self, request: RankRequest, started: Instant) -> Result<RankResponse> {
        if self.pooling != Pooling::Rank {
            let message = format!(
                "this model was opened to make vectors (pooling {:?}); ranking needs a model that \
                 makes scores, opened with pooling \"rank\", the default of its file",
                self.pooling.as_str()
            );
            return Err(Error::new(Code::InvalidRequest, message));
        }
        check_count("documents", request.documents.len())?;
        let deadline = request.timeout.map(|timeout| started + timeout);
        self.run(deadline, |model, interrupt, start| {
            let limit = TextLimit { n_ctx: model.n_ctx, truncate: request.truncate };
            let RankRequest { query, documents, .. } = &request;
            let (format, tokenizer) = (&self.pair_format, &model.tokenizer);
            let pairs = format.pairs(tokenizer, query, documents, limit, &interrupt)?;
            let (n_tokens, truncated) = (pairs.n_tokens(), pairs.truncated);
            let mut computed = Vec::with_capacity(documents.len());
            model.thread.compute(pairs.tokens, interrupt, |scores| {
                computed.push(scores);
                Ok(())
            })?;
            Ok(RankResponse {
                model: self.name.clone(),
                results: ranking::results(&computed, request.top_n)?,
                documents: request.return_documents.then_some(request.documents),
                n_tokens,
                truncated,
                took: start.elapsed(),
                ignored_keys: request.ignored_keys,
            })
        })
    }

    fn check_dimensions(&self, request: &EmbedRequest) -> Result<()> {
        match request.dimensions {
            Some(wanted) if wanted > self.width => Err(Error::invalid(
                "dimensions",
                format_args!("the model's vectors have {} numbers, got {wanted}", self.width),
            )),
            _ => Ok(()),
        }
    }

    /// Runs `body` once all earlier calls have ended, with the model in memory and the time before
    /// it was loaded.
    fn run<T>(
        &self,
        deadline: Option<Instant>,
        body: impl FnOnce(&LoadedEmbedder, Interrupt, Instant) -> Result<T>,
    ) -> Result<T> {
        let cancel = Arc::<AtomicBool>::default();
        let running = self.queue.enter(&cancel, deadline)?.ok_or_else(cancelled)?;
        let interrupt = Interrupt { cancel, deadline, ..Interrupt::default() };
        let start = Instant::now();
        let result = self.kept.acquire().and_then(|used| body(used.model(), interrupt, start));
        drop(running);
        result.map_err(|error| if error.code() == Code::Cancelled { cancelled() } else { error })
    }

    /// Cancels the running call and all waiting calls.
    pub fn cancel(&self) {
        self.queue.cancel_all();
    }

    /// Refuses further calls, cancels all others and waits until they have ended.
    pub fn close(&self) {
        self.queue.close();
    }
}

/// The pooling from the options, or else from the file. A file without one, such as that of a chat
/// model, gets the mean, as in sentence-transformers.
fn pooling(options: &EmbedOptions, header: &ModelHeader) -> Result<Pooling> {
    let of_file = header.pooling()?.and_then(Pooling::of_file);
    let pooling = options.pooling.or(of_file).unwrap_or(Pooling::Mean);
    if pooling == Pooling::Rank && !header.has_classifier() {
        let problem = "the model has no weights that make scores (cls.weight, cls.output.weight)";
        return Err(match options.pooling {
            Some(_) => Error::invalid("pooling", problem),
            None => Error::new(Code::ModelInvalid, problem),
        });
    }
    Ok(pooling)
}

/// `INVALID_REQUEST` if a list has too many texts.
fn check_count(list: &str, n_texts: usize) -> Result<()> {
    if n_texts <= MAX_TEXTS {
        return Ok(());
    }
    let problem = format!("has {n_texts} texts, more than {MAX_TEXTS}; send them in several calls");
    Err(Error::invalid(list, problem))
}

fn cancelled() -> Error {
    Error::new(Code::Cancelled, "the call was cancelled, or reached timeout_ms")
}
