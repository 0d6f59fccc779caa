//! The parts of a template, and how much of each part a derived spec renders in the same way.

use serde_json::{Map, Value, json};

use super::check_cases::CheckCase;
use crate::probing::ProbeRenderer;

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

/// A check case and its prompt.
pub(super) struct ExpectedRender {
    case: CheckCase,
    /// The prompt; None if the template rejects the conversation.
    text: Option<String>,
    /// Whether the prompt changes when the input of the part is removed.
    used: bool,
}

/// Renders the check cases with the original template.
pub(super) fn expected(cases: Vec<CheckCase>, foreign: &ProbeRenderer<'_>) -> Vec<ExpectedRender> {
    let render = |case: CheckCase| {
        let text = foreign.prompt(&case.conversation);
        let used = case.part == DerivedPart::Chat
            || (text.is_some() && foreign.prompt(&case.without()) != text);
        ExpectedRender { case, text, used }
    };
    cases.into_iter().map(render).collect()
}

/// Compares the expected prompts of one part with those of a derived template.
pub(super) fn compare(
    part: DerivedPart,
    expected: &[ExpectedRender],
    derived: Option<&ProbeRenderer<'_>>,
    residual: &[&str],
) -> PartResult {
    let mut result = PartResult {
        part,
        status: PartStatus::Opaque,
        failing: Vec::new(),
        refused: Vec::new(),
        reason: String::new(),
    };
    let mut equal = 0usize;
    let mut used = false;
    for ExpectedRender { case, text, used: differs } in
        expected.iter().filter(|expected| expected.case.part == part)
    {
        used = used || *differs;
        match (text, derived.and_then(|derived| derived.prompt(&case.conversation))) {
            (None, _) => result.refused.push(case.id),
            (Some(expected), Some(text)) if text == *expected => equal += 1,
            _ => result.failing.push(case.id),
        }
    }
    let whole = result.failing.is_empty();
    result.status = match (used, whole, equal) {
        (false, ..) => PartStatus::Ignores,
        (true, true, 1..) => PartStatus::Exact,
        (true, false, 1..) => PartStatus::Partial,
        (true, _, 0) => PartStatus::Opaque,
    };
    if equal == 0 && whole && result.status == PartStatus::Ignores {
        result.reason = "the template rejects it".to_owned();
    } else if !whole {
        result.reason = residual.join("; ");
        if result.reason.is_empty() {
            result.reason = "components do not describe these conversations".to_owned();
        }
    }
    result
}

/// The quality of a draft; greater is better. The number of parts without failures comes first,
/// then how few conversations fail.
pub(super) fn score(results: &[PartResult]) -> (usize, usize) {
    let whole = results.iter().filter(|result| result.failing.is_empty()).count();
    let failing: usize = results.iter().map(|result| result.failing.len()).sum();
    (whole, usize::MAX - failing)
}
