//! The output of the reply parser: deltas while text arrives, and the complete message at the end.

use crate::diagnostic::Diagnostic;

/// A piece of the message. All pieces of one kind, joined, form that part of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta {
    /// Visible text.
    Content(String),
    /// Reasoning text.
    Reasoning(String),
    /// The start of a call. Its id and name are final.
    ToolCall {
        /// The index of the call in the message.
        index: usize,
        /// The call's id.
        id: String,
        /// The function's name.
        name: String,
    },
    /// A piece of a call's arguments.
    Arguments {
        /// The index of the call in the message.
        index: usize,
        /// JSON text, never cut inside an escape.
        fragment: String,
    },
}

/// The part of the message that text is appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    Content,
    Reasoning,
    /// No part, because the text is in a message to an unknown recipient.
    Leftover,
    /// No part, because the text is a message of another role.
    OtherTurn,
    /// The arguments of this call, because the text is in a message to a function but not in the
    /// format's encoding.
    Arguments(usize),
}

/// A tool call of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// JSON text. If the model writes JSON, its text is kept byte for byte.
    pub arguments: String,
}

/// The part of a message that the prompt contains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyBeginning {
    /// Visible text.
    pub content: String,
    /// Reasoning, empty if there is none.
    pub reasoning: String,
    /// Whether the reasoning is still open.
    pub reasoning_open: bool,
}

/// The whole message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedReply {
    /// Visible text.
    pub content: String,
    /// Reasoning. None if it is missing or only whitespace.
    pub reasoning: Option<String>,
    /// The calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// False if the text ends inside a call or inside reasoning.
    pub complete: bool,
    /// The index of the last call, if the text ends inside its arguments.
    pub unfinished: Option<usize>,
    /// Text that is in no other part: calls that the end of the text cut off before their commit
    /// point, values of repeated parameters, and messages to unknown recipients.
    pub leftover: Vec<String>,
    /// What was relaxed, repaired or guessed.
    pub diagnostics: Vec<Diagnostic>,
}
