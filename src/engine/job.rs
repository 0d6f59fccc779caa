//! The input and output of the engine: jobs and their updates.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::backend::TokenId;
use super::interrupt::Interrupt;
use super::logprobs::SampledLogprobs;
use super::media::PlacedMedia;
use super::prefix_cache::{CacheKey, SavedSequence};
use super::reasoning_budget::ReasoningOptions;
use super::sampler::DryBreakers;
use super::speculate::DraftCounts;
use crate::api::{AdapterScales, Sampling};
use crate::constraint::Constraint;
use crate::error::Error;

/// One request for the engine.
pub struct Job {
    /// The number of the chat, unique in the process.
    pub chat: u64,
    /// The tokens of the prompt: at least one, and fewer than `n_ctx`.
    pub prompt: Vec<TokenId>,
    /// The media in the prompt, in order. Their places are in `prompt` too ([`MediaPiece::places`]),
    /// and the last token of the prompt is not one of them.
    ///
    /// [`MediaPiece::places`]: super::MediaPiece::places
    pub media: Vec<PlacedMedia>,
    /// The adapters that the job is computed with.
    pub adapters: AdapterScales,
    /// The maximum number of tokens to generate; `None` is what fits the context.
    pub max_tokens: Option<usize>,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// The tokens of its `dry_sequence_breakers`; empty without DRY.
    pub breakers: Arc<DryBreakers>,
    /// The strings that end the reply, wherever they occur in it.
    pub stop: Vec<String>,
    /// The grammar that the reply must match.
    pub constraint: Option<Constraint>,
    /// The reasoning tags and their budget; `None` if the model has no reasoning.
    pub reasoning: Option<ReasoningOptions>,
    /// The number of first tokens that a context shift keeps. When the context is full, half of the
    /// other tokens are dropped and the job continues. With `None` the job ends there.
    pub shift_keeps: Option<usize>,
    /// Whether to return log probabilities. The number is how many of the likeliest tokens to
    /// return in addition to each sampled one.
    pub logprobs: Option<usize>,
    /// Control tokens whose text must be visible because the tool-call format uses them.
    pub visible: Arc<[TokenId]>,
    /// Whether tokens may be drafted.
    pub drafts: bool,
    /// Whether a cached prefix may be used.
    pub reuse_prefix: bool,
    /// The lengths of the prompt at which its sequence is copied ([`JobUpdate::Prefix`]), in
    /// ascending order and shorter than the prompt. A length is skipped if a reused prefix is
    /// already longer.
    pub copied_lengths: Vec<usize>,
    /// Cancels the job, or ends its reasoning.
    pub interrupt: Interrupt,
    /// The channel for updates. Dropping the receiver cancels the job.
    pub updates: Sender<JobUpdate>,
}

impl Job {
    /// The key by which the cache finds a sequence to reuse for this job.
    pub(crate) fn cache_key(&self) -> CacheKey<'_> {
        CacheKey { tokens: &self.prompt, adapters: &self.adapters }
    }
}

/// An update for the caller. A job sends copies of the prompt, any number of pieces, then one
/// outcome or error.
pub enum JobUpdate {
    /// A part of the reply.
    Piece {
        /// Text cut at UTF-8 boundaries, without stop strings. May be empty if there are log
        /// probabilities.
        text: String,
        /// One entry, in order, for each token whose last byte is in this text or in an earlier
        /// piece. The entries of a stop string come last. Empty if log probabilities were not
        /// requested.
        logprobs: Vec<SampledLogprobs>,
        /// The spelling of the control token that follows the text, whether it is visible or not.
        /// `text` does not contain it.
        control: Option<String>,
        /// The number of tokens that were generated up to the end of this piece.
        tokens: usize,
    },
    /// The content of the job's sequence at one of [`Job::copied_lengths`].
    Prefix(SavedSequence),
    /// The end of a successful job.
    Done(JobOutcome),
    /// The end of a failed job.
    Failed(Error),
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finish {
    /// The end-of-generation token, a stop string, or the end of the grammar.
    Stop,
    /// `max_tokens` is used up, or the context is full and is not shifted.
    Length,
    /// Cancelled.
    #[default]
    Cancelled,
}

/// How often a job's context was shifted, and how many tokens that dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShiftCounts {
    /// The number of shifts.
    pub times: usize,
    /// The number of dropped tokens, over all shifts.
    pub dropped: usize,
}

/// The result of a successful job.
#[derive(Debug, Clone, Copy, Default)]
pub struct JobOutcome {
    /// Why it ended.
    pub finish: Finish,
    /// The index of the stop string in [`Job::stop`] that ended it.
    pub stop: Option<usize>,
    /// Prompt tokens that were in the KV cache.
    pub cached_tokens: usize,
    /// Generated tokens without the end-of-generation token.
    pub completion_tokens: usize,
    /// The generated tokens inside reasoning, including its closing tag.
    pub reasoning_tokens: usize,
    /// Whether a block of reasoning was ended by [`Interrupt::end_reasoning`].
    pub reasoning_ended: bool,
    /// How often the context was shifted, and how many tokens that dropped.
    pub shifts: ShiftCounts,
    /// Milliseconds from admission to the first token.
    pub prompt_ms: f64,
    /// Milliseconds from the first token to the end.
    pub predicted_ms: f64,
    /// Counts of drafted tokens; `None` without speculative decoding.
    pub drafted: Option<DraftCounts>,
    /// The mean number of threads of the job's decodes, weighted by their time. `None` without a
    /// decode.
    pub threads: Option<f64>,
}
