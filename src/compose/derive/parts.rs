//! The parts of a template, and how much of each part is known.

use serde_json::{Map, Value, json};

named_enum! {
    /// A part of a conversation that components describe.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum DerivedPart {
        /// User turns, answers, the generation prompt, and the text before them.
        Chat = "chat",
        /// System messages.
        System = "system",
        /// Declared tools.
        Tools = "tools",
        /// Calls of an answer.
        Calls = "calls",
        /// Calls with their results.
        Results = "results",
    }
}

named_enum! {
    /// How much of a part is known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PartStatus {
        /// Every conversation of the part that the template renders comes out the same.
        Exact = "exact",
        /// Some conversations come out the same.
        Partial = "partial",
        /// No conversation comes out the same.
        Opaque = "opaque",
        /// The template ignores or rejects this input. Conversations that fail do so for another
        /// reason.
        Ignores = "ignores",
    }
}

/// The result of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartResult {
    /// The part.
    pub part: DerivedPart,
    /// How much of the part is known.
    pub status: PartStatus,
    /// The ids of conversations that render differently.
    pub failing: Vec<&'static str>,
    /// The ids of conversations that the template itself rejects. They count as neither success nor
    /// failure.
    pub refused: Vec<&'static str>,
    /// The reason for the status; empty if it is exact.
    pub reason: String,
}

impl PartResult {
    /// The JSON `{"status", "failing"?, "refused"?, "reason"?}`.
    pub(super) fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("status".to_owned(), self.status.as_str().into());
        for (name, ids) in [("failing", &self.failing), ("refused", &self.refused)] {
            if !ids.is_empty() {
                members.insert(name.to_owned(), json!(ids));
            }
        }
        if !self.reason.is_empty() {
            members.insert("reason".to_owned(), self.reason.as_str().into());
        }
        members.into()
    }
}
