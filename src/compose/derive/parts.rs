//! The parts of a template, and how far a derived spec renders each as the template does.

use serde_json::{Map, Value, json};

use super::check_cases::CheckCase;
use crate::probing::ProbeRenderer;

/// What a conversation is made of, as far as building blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DerivedPart {
    /// User turns, answers, the generation prompt, and what stands before them.
    Chat,
    /// System messages.
    System,
    /// Declared tools.
    Tools,
    /// Calls of an answer.
    Calls,
    /// Calls with their results.
    Results,
}

impl DerivedPart {
    /// All, each resting on those before it.
    pub const ALL: [DerivedPart; 5] = [
        DerivedPart::Chat,
        DerivedPart::System,
        DerivedPart::Tools,
        DerivedPart::Calls,
        DerivedPart::Results,
    ];

    /// Its name in `parts`.
    pub fn name(self) -> &'static str {
        match self {
            DerivedPart::Chat => "chat",
            DerivedPart::System => "system",
            DerivedPart::Tools => "tools",
            DerivedPart::Calls => "calls",
            DerivedPart::Results => "results",
        }
    }
}

/// How far a part is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartStatus {
    /// Every conversation of the part that the template renders is rendered the same.
    Exact,
    /// Some are.
    Partial,
    /// None is.
    Opaque,
    /// The template makes no use of this input, or refuses it. Conversations that fail do so for
    /// another reason.
    Ignores,
}

impl PartStatus {
    /// Its name in `parts`.
    pub fn name(self) -> &'static str {
        match self {
            PartStatus::Exact => "exact",
            PartStatus::Partial => "partial",
            PartStatus::Opaque => "opaque",
            PartStatus::Ignores => "ignores",
        }
    }
}

/// One part's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartResult {
    /// Which part.
    pub part: DerivedPart,
    /// How far it is known.
    pub status: PartStatus,
    /// Conversations that are rendered differently, by id.
    pub failing: Vec<&'static str>,
    /// Conversations that the template itself refuses, by id; nothing is said of these.
    pub refused: Vec<&'static str>,
    /// Why, unless exact.
    pub reason: String,
}

impl PartResult {
    /// `{"status", "failing"?, "refused"?, "reason"?}`.
    pub(super) fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("status".to_owned(), self.status.name().into());
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

/// A context with what the template makes of it.
pub(super) struct ExpectedRender {
    context: CheckCase,
    /// None when the template refuses it.
    text: Option<String>,
    /// The text differs from that of the conversation without what the part is about.
    used: bool,
}

/// What a template makes of these contexts.
pub(super) fn wanted(contexts: Vec<CheckCase>, foreign: &ProbeRenderer<'_>) -> Vec<ExpectedRender> {
    let render = |context: CheckCase| {
        let text = foreign.prompt(&context.conversation);
        let used = context.part == DerivedPart::Chat
            || (text.is_some() && foreign.prompt(&context.without()) != text);
        ExpectedRender { context, text, used }
    };
    contexts.into_iter().map(render).collect()
}

/// Compares the contexts of one part with what a derived template renders.
pub(super) fn judge(
    part: DerivedPart,
    wanted: &[ExpectedRender],
    derived: Option<&ProbeRenderer<'_>>,
    residual: &[String],
) -> PartResult {
    let mut verdict = PartResult {
        part,
        status: PartStatus::Opaque,
        failing: Vec::new(),
        refused: Vec::new(),
        reason: String::new(),
    };
    let mut equal = 0usize;
    let mut used = false;
    for ExpectedRender { context, text, used: differs } in
        wanted.iter().filter(|wanted| wanted.context.part == part)
    {
        used = used || *differs;
        match (text, derived.and_then(|derived| derived.prompt(&context.conversation))) {
            (None, _) => verdict.refused.push(context.id),
            (Some(wanted), Some(text)) if text == *wanted => equal += 1,
            _ => verdict.failing.push(context.id),
        }
    }
    let whole = verdict.failing.is_empty();
    verdict.status = match (used, whole, equal) {
        (false, ..) => PartStatus::Ignores,
        (true, true, 1..) => PartStatus::Exact,
        (true, false, 1..) => PartStatus::Partial,
        (true, _, 0) => PartStatus::Opaque,
    };
    if equal == 0 && whole && verdict.status == PartStatus::Ignores {
        verdict.reason = "the template refuses it".to_owned();
    } else if !whole {
        verdict.reason = residual.join("; ");
        if verdict.reason.is_empty() {
            verdict.reason = "the blocks say nothing of what these conversations have".to_owned();
        }
    }
    verdict
}

/// How good a draft is: parts that hold as a whole, then conversations that fail.
pub(super) fn score(verdicts: &[PartResult]) -> (usize, usize) {
    let whole = verdicts.iter().filter(|verdict| verdict.failing.is_empty()).count();
    let failing: usize = verdicts.iter().map(|verdict| verdict.failing.len()).sum();
    (whole, usize::MAX - failing)
}
