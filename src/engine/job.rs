//! The input and output of the engine: jobs and their updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::backend::TokenId;
use super::logprobs::SampledLogprobs;
use super::reasoning_budget::ReasoningOptions;
use super::sampler::DryBreakers;
use super::speculate::DraftCounts;
use crate::api::Sampling;
use crate::constraint::Constraint;
use crate::error::Error;

/// One request for the engine.
pub struct Job {
    /// The chat's number, unique in the process.
    pub chat: u64,
    /// The prompt: at least one token, fewer than `n_ctx`.
    pub prompt: Vec<TokenId>,
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// The tokens of its `dry_sequence_breakers`; empty without DRY.
    pub breakers: Arc<DryBreakers>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The grammar of the reply.
    pub constraint: Option<Constraint>,
    /// The reasoning tags and their budget; `None` if the model has no reasoning.
    pub reasoning: Option<ReasoningOptions>,
    /// Whether to return log probabilities, and of how many of the likeliest tokens in addition to
    /// each sampled one.
    pub logprobs: Option<usize>,
    /// Control tokens whose text must be visible because the tool-call format uses them.
    pub visible: Arc<[TokenId]>,
    /// Whether a cached prefix may be used.
    pub reuse_prefix: bool,
    /// Set by any thread to cancel the job.
    pub cancel: Arc<AtomicBool>,
    /// When the job is cancelled by itself.
    pub deadline: Option<Instant>,
    /// The channel for updates. Dropping the receiver cancels the job.
    pub updates: Sender<JobUpdate>,
}

impl Job {
    pub(crate) fn is_cancelled(&self) -> bool {
        is_over(&self.cancel, self.deadline)
    }
}

/// Whether a job with this flag and this deadline should end.
pub(crate) fn is_over(cancel: &AtomicBool, deadline: Option<Instant>) -> bool {
    cancel.load(Ordering::Relaxed) || deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// What the caller receives: any number of pieces, then one outcome or error.
pub enum JobUpdate {
    /// A part of the reply.
    Piece {
        /// Text cut at UTF-8 boundaries, without stop strings. May be empty if there are log
        /// probabilities.
        text: String,
        /// In order, one for each token whose last byte is in this text or an earlier one. Those of
        /// a stop string come last. Empty if not requested.
        logprobs: Vec<SampledLogprobs>,
        /// The spelling of a control token after the text, visible or not. Its text is not in
        /// `text`.
        control: Option<String>,
    },
    /// The end of a successful job.
    Done(JobOutcome),
    /// The end of a failed job.
    Failed(Error),
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finish {
    /// End of generation, a stop string, or the end of the grammar.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
    /// Cancelled.
    #[default]
    Cancelled,
}

/// The result of a finished job.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobOutcome {
    /// Why it ended.
    pub finish: Finish,
    /// Prompt tokens that were in the KV cache.
    pub cached_tokens: usize,
    /// Generated tokens without the end-of-generation token.
    pub completion_tokens: usize,
    /// Those of them inside reasoning, including its closing tag.
    pub reasoning_tokens: usize,
    /// Milliseconds from admission to the first token.
    pub prompt_ms: f64,
    /// Milliseconds from the first token to the end.
    pub predicted_ms: f64,
    /// Drafted tokens; `None` without speculative decoding.
    pub drafted: Option<DraftCounts>,
    /// The mean number of threads of its decodes, weighted by their time; `None` if there was none.
    pub threads: Option<f64>,
}
