//! Model text -> message: content, reasoning and tool calls, whole or as it is generated.
//!
//! In: pieces of text as the detokeniser gives them, with the format's markers visible. Out:
//! append-only deltas, and at the end the message they add up to. Never an error: what is not
//! well-formed markup stays text, and what was relaxed, repaired or guessed is listed as a
//! diagnostic. Enforcing schemas is the sampler's business, not this module's.

mod call_writer;
mod detect;
pub(crate) mod families;
pub mod format;
mod message;
mod parser;
mod read;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

pub use detect::Detected;
pub use detect::opener::TurnOpener;
#[doc(hidden)]
pub use families::all as families;
pub use format::Format;
pub use message::{Delta, ParsedReply, ToolCall};
pub use parser::{CallValidator, PreparedFormat, ReplyParser, ReplyParserInput};
