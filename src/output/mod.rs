//! Parses model text into a message: content, reasoning and tool calls, at once or while the text
//! is generated.
//!
//! In: pieces of text from the detokenizer, with the format's markers visible. Out: append-only
//! deltas, and at the end the message that they form. Parsing never fails. Text that is not valid
//! markup stays text, and accepted deviations are reported as diagnostics. Schemas are not enforced
//! here.
//!
//! - [`format`](mod@format) describes how a model writes a reply; `families` is the table of known
//!   formats.
//! - `detect` finds the format of a chat template.
//! - `parser` separates content, reasoning and calls; `read` decodes the arguments of calls.
//! - `call_writer` writes calls in a format, to compare them with the template's text;
//!   `expressible` decides what a format can carry.
//!
//! Everything public here is used by other modules of the crate. The crate's own benches and fuzz
//! targets use [`Format`], [`ReplyParser`] and [`families`](fn@families) too.

pub(crate) mod call_writer;
mod detect;
pub(crate) mod expressible;
pub(crate) mod families;
pub mod format;
pub(crate) mod markup;
mod message;
mod parser;
mod read;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

pub use detect::opener::TurnOpener;
pub use detect::{
    CallTurn, Contradiction, Detected, EvidentFormat, FormatClues, ReasoningClues,
    ReasoningEvidence,
};
#[doc(hidden)]
pub use families::{all as families, chat_format};
pub use format::Format;
pub use markup::{ControlSpellings, TurnMarkup};
pub use message::{Delta, ParsedReply, ReplyBeginning, ToolCall};
pub use parser::{CallValidator, JsonValidator, PreparedFormat, ReplyParser, ReplyParserInput};
