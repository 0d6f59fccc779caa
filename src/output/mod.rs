//! Model text -> message: content, reasoning and tool calls, whole or as it is generated.
//!
//! In: pieces of text as the detokeniser gives them, with the format's markers visible. Out: append-only deltas, and at
//! the end the message they add up to. Never an error: what is not well-formed markup stays text, and what was relaxed,
//! repaired or guessed is listed as a diagnostic. Enforcing schemas is the sampler's business, not this module's.

mod call;
#[allow(dead_code, reason = "detection is moving to it")]
pub(crate) mod families;
pub mod format;
#[allow(dead_code, reason = "detection is moving to it")]
pub(crate) mod infer;
mod legacy;
mod legacy_families;
mod read;

mod message;
mod partial_json;
mod recogniser;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;
mod verify;
#[allow(dead_code, reason = "detection is moving to it")]
pub(crate) mod write;

pub use legacy::{Format, ReasoningMarkers, Render};
pub use message::{Delta, Diagnostic, Parsed, ToolCall};
pub use recogniser::{Recogniser, RecogniserInput};
pub use verify::{Report, Row, Verdict};
