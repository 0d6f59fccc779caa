//! Tokens in, pieces of text out, on any [`Backend`]. Nothing here depends on llama.cpp.
//!
//! One thread per loaded model owns the backend and decodes all its chats in one batch
//! (`scheduler`). Callers post a [`Job`] and receive [`JobUpdate`]s. The engine never calls a
//! caller's code.

mod active_job;
mod backend;
mod checkpoints;
mod interrupt;
mod job;
mod logprobs;
mod media;
mod plain_text;
mod prefix_cache;
mod reasoning_budget;
mod reply_text;
mod sampler;
mod scheduler;
mod side_by_side;
mod speculate;
mod spelling_finder;
mod stop;
mod thread;
mod threads;
mod token_cache;
mod vocab;

pub use backend::{
    Backend, BatchEntry, Decoded, EmbeddingBatch, PieceRotations, ThreadLimits, ThreadPolicy,
    TokenId, TokenMask,
};
pub use interrupt::Interrupt;
pub use job::{Finish, Job, JobOutcome, JobUpdate, ShiftCounts};
pub use logprobs::{Logprob, SampledLogprobs};
pub(crate) use media::is_media;
pub use media::{MediaChunk, MediaError, MediaPiece, MediaReader, MediaSource, PlacedMedia};
pub(crate) use plain_text::{PlainVocab, no_token, without_reserved};
pub(crate) use prefix_cache::OPENING;
pub use prefix_cache::{CacheLookup, SavedSequence};
pub use reasoning_budget::ReasoningOptions;
#[cfg(feature = "remote")]
pub(crate) use reasoning_budget::ReasoningWatch;
#[cfg(feature = "remote")]
pub(crate) use reply_text::ReplyText;
pub use sampler::{DryBreakers, LogitRow, Sampler, TokenCandidate};
pub(crate) use scheduler::dropped_tokens;
pub use speculate::{
    DecodedTokens, DraftCounts, DraftRequest, Drafter, LayerDrafter, ModelDrafter, NgramDrafter,
    PredictingLayers, Speculation,
};
#[cfg(feature = "remote")]
pub(crate) use stop::StopMatcher;
pub(crate) use thread::{CommandThread, stopped};
pub use thread::{Engine, LoadProgress, Loaded};
pub(crate) use threads::ThreadController;
pub(crate) use token_cache::TokenCache;
pub use vocab::{SpecialToken, SpecialTokens, TokenizedPrompt, Vocab};
