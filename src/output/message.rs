//! What the reply parser gives out: deltas on the way, the message at the end.

use crate::diagnostic::Diagnostic;

/// A piece of the message. All pieces of one kind, joined, are that part of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Visible text.
    Content(String),
    /// Reasoning text.
    Reasoning(String),
    /// A call begins; its id and name never change.
    ToolCall {
        /// Position among the message's calls.
        index: usize,
        /// The call's id.
        id: String,
        /// The function's name.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        /// Position among the message's calls.
        index: usize,
        /// JSON text, never cut inside an escape.
        fragment: String,
    },
}

/// A tool call of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// JSON text, the model's own bytes.
    pub arguments: String,
}

/// The whole message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedReply {
    /// Visible text.
    pub content: String,
    /// Reasoning, None when there was none or only blanks.
    pub reasoning: Option<String>,
    /// The calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// False when the text broke off inside a call or inside reasoning.
    pub complete: bool,
    /// The call that the text ended in, its arguments not closed; it is the last one.
    pub unfinished: Option<usize>,
    /// What is in no other part: pieces of calls that the end of the text cut off before they could
    /// be told to be calls, repeated parameters, messages to nobody.
    pub leftover: Vec<String>,
    /// What was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
}
