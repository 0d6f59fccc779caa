//! Reverse derivation: a foreign chat template in, building blocks out, as far as renders show
//! them.
//!
//! Conversations with texts of their own are rendered; what stands between these texts in the
//! prompts is what the blocks are made of. What was found is composed, and both templates are
//! rendered on conversations with other values: only where these agree is a part called exact.
//! Nothing is read in the template's source, and no family of templates is known by name.
//!
//! A derivation takes at most [`MAX_RENDERS`] renders of the foreign template, each within the
//! limits of a probe.

mod argument_form;
mod call_form;
mod calls;
mod catalogue;
mod chat;
mod check_cases;
mod draft;
mod media;
mod needles;
mod parts;
mod placement;
mod reasoning;
mod results;
mod roles;
mod skills;
mod system;
mod tool_rows;
mod tools;
mod unchecked;
mod wrapping;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

pub use parts::{DerivedPart, PartResult, PartStatus};

use super::Composed;
use crate::error::Result;
use crate::probing::ProbeRenderer;
use crate::template::{Sources, Templates};
use draft::SpecDraft;

/// The most renders of a foreign template that one derivation takes.
pub const MAX_RENDERS: usize = 200;

/// A spec in, what renders it out; None for one that cannot be composed.
pub(crate) type Compose<'a> = dyn Fn(&Value) -> Option<ProbeRenderer<'static>> + 'a;

/// What was found of a foreign template.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivation {
    /// The ComponentSpec; None when not even plain chat could be found.
    pub spec: Option<Value>,
    /// The parts, in the order of [`DerivedPart::ALL`].
    pub parts: Vec<PartResult>,
    /// What the blocks do not say, in words, each once.
    pub residual: Vec<String>,
    /// How often the foreign template was rendered.
    pub renders: usize,
}

impl Derivation {
    /// `{"spec", "parts": {NAME: {"status", "failing"?, "refused"?, "reason"?}}, "residual":
    /// [TEXT]}`; `spec` may be null.
    pub fn to_json(&self) -> Value {
        let parts: Map<String, Value> = self
            .parts
            .iter()
            .map(|verdict| (verdict.part.name().to_owned(), verdict.to_json()))
            .collect();
        json!({ "spec": self.spec, "parts": parts, "residual": self.residual })
    }

    /// How far this part is known.
    pub fn status(&self, part: DerivedPart) -> PartStatus {
        self.parts
            .iter()
            .find(|verdict| verdict.part == part)
            .map_or(PartStatus::Opaque, |verdict| verdict.status)
    }
}

/// Derives building blocks of a template, given with the texts of its BOS and EOS token.
///
/// `TEMPLATE_ERROR` when it does not parse. A template of which nothing can be found is no error:
/// its parts are opaque.
pub fn derive(sources: &Sources) -> Result<Derivation> {
    let foreign = renderer(Templates::compile(sources)?);
    let compose = |spec: &Value| -> Option<ProbeRenderer<'static>> {
        let composed = Composed::of(spec, "components").ok()?;
        Some(renderer(Templates::compile(&composed.sources()).ok()?))
    };
    let mut derivation = derivation(&foreign, sources, &compose);
    derivation.renders = foreign.count();
    Ok(derivation)
}

/// Renders probes with these templates.
fn renderer(templates: Templates) -> ProbeRenderer<'static> {
    ProbeRenderer::new(move |probe| templates.render_probe(probe))
}

fn derivation(foreign: &ProbeRenderer<'_>, sources: &Sources, compose: &Compose<'_>) -> Derivation {
    let (drafts, found) = match chat::derive(foreign) {
        Ok(chat) => {
            let draft = draft(foreign, chat, sources, compose);
            let found = residuals(&draft);
            (draft.ways(), found)
        }
        Err(reason) => (Vec::new(), vec![(DerivedPart::Chat, vec![reason])]),
    };
    let wanted = parts::wanted(check_cases::all(), foreign);
    let judged = |derived: Option<&ProbeRenderer<'_>>| -> Vec<PartResult> {
        let verdict = |part| {
            // A part rests on those before it.
            let below = found.iter().filter(|(other, _)| *other <= part);
            let known: Vec<String> = below.flat_map(|(_, words)| words.iter().cloned()).collect();
            parts::judge(part, &wanted, derived, &known)
        };
        DerivedPart::ALL.map(verdict).into()
    };
    let mut best: Option<(Value, Vec<PartResult>)> = None;
    for spec in drafts.iter().map(SpecDraft::spec) {
        let Some(derived) = compose(&spec) else { continue };
        let parts = judged(Some(&derived));
        if best.as_ref().is_none_or(|(_, known)| parts::score(known) < parts::score(&parts)) {
            best = Some((spec, parts));
        }
    }
    let mut residual: Vec<String> = Vec::new();
    for words in found.iter().flat_map(|(_, words)| words) {
        if !residual.contains(words) {
            residual.push(words.clone());
        }
    }
    if let Some(derived) = best.as_ref().and_then(|(spec, _)| compose(spec)) {
        residual.extend(unchecked::differences(foreign, &derived));
    }
    let (spec, parts) = match best {
        Some((spec, parts)) => (Some(spec), parts),
        None => (None, judged(None)),
    };
    Derivation { spec, parts, residual, renders: 0 }
}

fn draft(
    foreign: &ProbeRenderer<'_>,
    mut chat: chat::ChatForm,
    sources: &Sources,
    compose: &Compose<'_>,
) -> SpecDraft {
    let mut reasoning = reasoning::derive(foreign, &mut chat);
    let mut system = system::derive(foreign, &chat, &sources.bos_token);
    if system.inside.is_some() {
        // What begins the first user's turn is the system's.
        system.prefix.clone_into(&mut chat.opening);
        chat.residual.retain(|words| words != chat::FIRST_DIFFERS);
    }
    let tools = tools::derive(foreign, &chat, &mut system, compose);
    let skills = skills::derive(foreign, &chat, &mut system);
    let calls = calls::derive(foreign, &chat, compose);
    let results =
        results::derive(foreign, &chat, calls.as_ref().is_some_and(|calls| calls.as_text));
    let null_content = calls::null_content(foreign);
    let media = media::derive(foreign);
    reasoning.questions(foreign, results.as_ref());
    let roles = roles::derive(foreign, &chat);
    let eos_token = sources.eos_token.clone();
    SpecDraft {
        chat,
        system,
        tools,
        calls,
        results,
        null_content,
        skills,
        media,
        reasoning,
        roles,
        eos_token,
    }
}

/// What does not fit, by the part that it is about.
fn residuals(draft: &SpecDraft) -> Vec<(DerivedPart, Vec<String>)> {
    vec![
        (DerivedPart::Chat, draft.chat.residual.clone()),
        (DerivedPart::System, draft.system.residual.clone()),
        (
            DerivedPart::Tools,
            draft.tools.as_ref().map(|tools| tools.residual.clone()).unwrap_or_default(),
        ),
        (
            DerivedPart::Calls,
            draft.calls.as_ref().map(|calls| calls.residual.clone()).unwrap_or_default(),
        ),
        (
            DerivedPart::Results,
            draft.results.as_ref().map(|results| results.residual.clone()).unwrap_or_default(),
        ),
    ]
}
