//! The parts of a template, and how far a derived spec renders each as the template does.

use serde_json::{Map, Value, json};

use super::contexts::Context;
use super::renderer::Renderer;

/// What a conversation is made of, as far as building blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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

impl Part {
    /// All, each resting on those before it.
    pub const ALL: [Part; 5] = [Part::Chat, Part::System, Part::Tools, Part::Calls, Part::Results];

    /// Its name in `parts`.
    pub fn name(self) -> &'static str {
        match self {
            Part::Chat => "chat",
            Part::System => "system",
            Part::Tools => "tools",
            Part::Calls => "calls",
            Part::Results => "results",
        }
    }
}

/// How far a part is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Every conversation of the part that the template renders is rendered the same.
    Exact,
    /// Some are.
    Partial,
    /// None is.
    Opaque,
    /// The template makes no use of this input, or refuses it.
    Ignores,
}

impl Status {
    /// Its name in `parts`.
    pub fn name(self) -> &'static str {
        match self {
            Status::Exact => "exact",
            Status::Partial => "partial",
            Status::Opaque => "opaque",
            Status::Ignores => "ignores",
        }
    }
}

/// One part's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which part.
    pub part: Part,
    /// How far it is known.
    pub status: Status,
    /// Conversations that are rendered differently, by id.
    pub failing: Vec<&'static str>,
    /// Conversations that the template itself refuses, by id; nothing is said of these.
    pub refused: Vec<&'static str>,
    /// Why, unless exact.
    pub reason: String,
}

impl Verdict {
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

/// Renders the contexts of one part both ways and compares.
pub(super) fn judge(
    part: Part,
    contexts: &[Context],
    foreign: &dyn Renderer,
    derived: Option<&dyn Renderer>,
    residual: &[String],
) -> Verdict {
    let mut verdict = Verdict { part, status: Status::Opaque, failing: Vec::new(), refused: Vec::new(), reason: String::new() };
    let mut equal = 0;
    let mut used = part == Part::Chat;
    for context in contexts.iter().filter(|context| context.part == part) {
        let Some(wanted) = foreign.render(&context.conversation) else {
            verdict.refused.push(context.id);
            continue;
        };
        used = used || foreign.render(&context.without()).as_ref() != Some(&wanted);
        match derived.and_then(|derived| derived.render(&context.conversation)) {
            Some(text) if text == wanted => equal += 1,
            _ => verdict.failing.push(context.id),
        }
    }
    let rendered = equal + verdict.failing.len();
    let why = || residual.join("; ");
    (verdict.status, verdict.reason) = if rendered == 0 && part != Part::Chat {
        (Status::Ignores, "the template refuses it".to_owned())
    } else if !used && (verdict.failing.is_empty() || part == Part::Results) {
        (Status::Ignores, String::new())
    } else if rendered > 0 && verdict.failing.is_empty() {
        (Status::Exact, String::new())
    } else if equal > 0 {
        (Status::Partial, why())
    } else {
        (Status::Opaque, why())
    };
    if verdict.reason.is_empty() && !verdict.failing.is_empty() {
        verdict.reason = "these conversations are rendered differently for another reason than the ones looked for".to_owned();
    }
    verdict
}
