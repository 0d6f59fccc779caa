//! What goes into the engine and what comes out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::backend::TokenId;
use super::logprobs::SampledLogprobs;
use super::reasoning_budget::ReasoningOptions;
use super::speculate::DraftCounts;
use crate::api::Sampling;
use crate::constraint::Constraint;
use crate::error::Error;

/// One request for the engine.
pub struct Job {
    /// Whose it is: a number for each chat of the process.
    pub chat: u64,
    /// The prompt; at least one token, fewer than `n_ctx`.
    pub prompt: Vec<TokenId>,
    /// Most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stop: Vec<String>,
    /// A grammar the tokens must obey.
    pub constraint: Option<Constraint>,
    /// What to know of the model's reasoning; None where it has none.
    pub reasoning: Option<ReasoningOptions>,
    /// Whether log probabilities are wanted, and of how many of the likeliest tokens beside each
    /// sampled one.
    pub logprobs: Option<usize>,
    /// Control tokens whose text must be visible, since the tool-call format is written with them.
    pub visible: Arc<[TokenId]>,
    /// Whether a prefix in the KV cache may be used.
    pub reuse_prefix: bool,
    /// Set by anyone to end the job.
    pub cancel: Arc<AtomicBool>,
    /// When the job ends by itself as cancelled.
    pub deadline: Option<Instant>,
    /// Where updates go; a receiver that is gone cancels the job.
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

/// What a job's caller receives: any number of pieces, then one outcome or error.
pub enum JobUpdate {
    /// A part of the reply.
    Piece {
        /// Text, cut on UTF-8 boundaries, stop strings excluded; may be empty where there are log
        /// probabilities.
        text: String,
        /// One for each token whose last byte is in this text or an earlier one, in order; those of
        /// a stop string come last. Empty when the job asked for none.
        logprobs: Vec<SampledLogprobs>,
    },
    /// The end.
    Done(JobOutcome),
    /// The other end.
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

/// Figures of a finished job.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobOutcome {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt that were in the KV cache.
    pub cached_tokens: usize,
    /// Tokens generated, without the end-of-generation token.
    pub completion_tokens: usize,
    /// Those of them that were generated inside reasoning, its closing tag included.
    pub reasoning_tokens: usize,
    /// From admission to the first token.
    pub prompt_ms: f64,
    /// From the first token to the end.
    pub predicted_ms: f64,
    /// Tokens that were guessed for it; None without speculative decoding.
    pub drafted: Option<DraftCounts>,
}
