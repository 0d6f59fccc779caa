//! Tokens in, pieces of text out. Knows no llama.cpp: that is a [`Backend`].
//!
//! One thread per loaded model owns the backend and decodes all its chats in one batch
//! (`scheduler`). Callers post a [`Job`] and receive [`Update`]s; nothing here calls a caller's
//! code.

mod active_job;
mod backend;
mod detokenize;
mod job;
mod logprobs;
mod prefix_cache;
mod reasoning_budget;
mod scheduler;
mod special_tokens;
mod speculate;
mod stop;
mod thread;
mod token_cache;

pub use backend::{Backend, Decoded, Entry, Mask, Sampler, Token, Vocab};
pub use job::{Finish, Job, Outcome, Update};
pub use logprobs::{Logprob, SampledLogprobs};
pub use prefix_cache::{Held, Kept};
pub use reasoning_budget::{Budget, Reasoning};
pub use special_tokens::{Special, SpecialTokens, Tokenised};
pub use speculate::{Drafted, Drafter, ModelDrafter, NgramDrafter, Speculation, Wanted};
#[cfg(feature = "remote")]
pub(crate) use stop::StopMatcher;
pub use thread::{Engine, Loaded, Progress};
pub(crate) use token_cache::TokenCache;
