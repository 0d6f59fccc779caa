//! The API for Rust: the calls of the C functions with types in place of JSON text.
//!
//! In: builders whose setters have the names of the JSON members. A builder keeps its members as
//! JSON values, and the readers of `api` check them, so names, limits and errors are those of the
//! C functions. Out: structs that are made from the library's own, never from JSON text. What this
//! module exports is the whole public API of the crate.

mod chat;
mod deltas;
mod embedder;
mod events;
#[cfg(feature = "hub")]
mod fetch;
mod members;
mod model;
mod reply;
mod request;
mod template;
mod tool;

pub use crate::api::logprobs::{SampledToken, TokenLogprob};
pub use crate::api::response::{FinishReason, Timings, Usage};
pub use crate::api::{ContextOverflow, LogLevel, ToolPolicy};
pub use crate::diagnostic::Diagnostic;
pub use crate::embed::{RankResponse, RankResult, TruncatedText};
pub use crate::error::{Code, Error, Result};
pub use crate::output::{Delta, ToolCall};
pub use chat::Chat;
pub use deltas::Deltas;
pub use embedder::{EmbedRequest, Embedder, Embeddings, RankRequest};
#[cfg(feature = "hub")]
pub use fetch::Fetch;
pub use model::{Model, ModelInfo};
pub use reply::Reply;
pub use request::Request;
pub use template::{ParsedMessage, Rendered, Template};
pub use tool::Tool;

/// The version of llb, of the llama.cpp in it, and of the kernels if they come from a file:
/// `llb 0.1.0 (llama.cpp b10064)`.
pub fn version() -> &'static str {
    crate::ffi::used_version()
}
