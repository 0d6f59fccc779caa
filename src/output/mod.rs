//! Model text -> message: content, reasoning and tool calls, whole or as it is generated.
//!
//! In: pieces of text as the detokeniser gives them, with the format's markers visible. Out: append-only deltas, and at
//! the end the message they add up to. Never an error: what is not well-formed markup stays text, and what was relaxed,
//! repaired or guessed is listed as a diagnostic. Enforcing schemas is the sampler's business, not this module's.

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod adverse;
mod call;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod conformance;
mod detect;
mod families;
pub mod format;
mod infer;
mod message;
mod partial_json;
mod read;
mod recogniser;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;
mod turn;
mod verify;
mod write;

pub use detect::Detected;
#[doc(hidden)]
pub use families::all as families;
pub use format::Format;
pub use message::{Delta, Diagnostic, Parsed, ToolCall};
pub use recogniser::{Accepts, Prepared, Recogniser, RecogniserInput};
pub use turn::Opener;
pub use verify::{Render, Report, Row, Verdict};
