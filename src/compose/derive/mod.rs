//! Derives components from a chat template, using only its renders.
//!
//! Probe conversations with rare texts are rendered. The text between these texts in the prompts
//! becomes the components. The result is composed, and both templates render conversations
//! with other values. A part is exact only if all these prompts are equal. The source of the
//! template is not read, and no family of templates is recognized by name.
//!
//! A derivation takes at most [`MAX_RENDERS`] renders of the template, each within the limits of a
//! probe.

mod argument_syntax;
mod call_form;
mod calls;
mod catalogue;
mod chat;
mod check_cases;
mod draft;
mod media;
mod parts;
mod placement;
mod probes;
mod reasoning;
mod results;
mod roles;
mod skills;
mod system;
mod tools;
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
use probes::Compose;

/// The maximum number of renders of the original template.
pub const MAX_RENDERS: usize = 200;

/// The result of a derivation.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivation {
    /// The ComponentSpec. None if not even plain chat was derived.
    pub spec: Option<Value>,
    /// The parts, in the order of [`DerivedPart::ALL`].
    pub parts: Vec<PartResult>,
    /// Descriptions of what the components cannot express, without duplicates.
    pub residual: Vec<String>,
    /// The number of renders that the original template took.
    pub renders: usize,
}

impl Derivation {
    /// The JSON `{"spec", "parts": {NAME: {"status", "failing"?, "refused"?, "reason"?}},
    /// "residual": [TEXT]}`. `spec` may be null.
    pub fn to_json(&self) -> Value {
        let parts: Map<String, Value> = self
            .parts
            .iter()
            .map(|result| (result.part.as_str().to_owned(), result.to_json()))
            .collect();
        json!({ "spec": self.spec, "parts": parts, "residual": self.residual })
    }

    /// The status of a part.
    pub fn status(&self, part: DerivedPart) -> PartStatus {
        self.parts
            .iter()
            .find(|result| result.part == part)
            .map_or(PartStatus::Opaque, |result| result.status)
    }
}

/// Derives components from a template, and from the texts of its BOS and EOS token.
///
/// `TEMPLATE_ERROR` if the template cannot be parsed. If no block can be derived, that is not an
/// error: the parts are opaque.
pub fn derive(sources: &Sources) -> Result<Derivation> {
    let foreign = renderer(Templates::compile(sources)?);
    let compose = |spec: &Value| -> Option<ProbeRenderer<'static>> {
        let composed = Composed::parse(spec, "components").ok()?;
        Some(renderer(Templates::compile(&composed.sources()).ok()?))
    };
    Ok(derive_with(&foreign, sources, &compose))
}

/// Creates a renderer of probes for these templates.
fn renderer(templates: Templates) -> ProbeRenderer<'static> {
    ProbeRenderer::new(move |probe| templates.render_probe(probe))
}

fn derive_with(
    foreign: &ProbeRenderer<'_>,
    sources: &Sources,
    compose: &Compose<'_>,
) -> Derivation {
    let (drafts, found) = match chat::derive(foreign) {
        Ok(chat) => {
            let draft = draft(foreign, chat, sources, compose);
            let found = residuals(&draft);
            (draft.variants(), found)
        }
        Err(reason) => (Vec::new(), vec![(DerivedPart::Chat, vec![reason])]),
    };
    let expected = check_cases::expected(foreign);
    let compare = |derived: Option<&ProbeRenderer<'_>>| {
        DerivedPart::ALL.map(|part| {
            // A part depends on all parts before it.
            let below = found.iter().filter(|(other, _)| *other <= part);
            let known: Vec<&str> = below.flat_map(|(_, words)| words.iter().copied()).collect();
            check_cases::compare(part, &expected, derived, &known)
        })
    };
    let mut best: Option<(Value, [PartResult; 5], ProbeRenderer<'_>)> = None;
    for spec in drafts.iter().map(SpecDraft::spec) {
        let Some(derived) = compose(&spec) else { continue };
        let parts = compare(Some(&derived));
        if best
            .as_ref()
            .is_none_or(|(_, known, _)| check_cases::score(known) < check_cases::score(&parts))
        {
            best = Some((spec, parts, derived));
        }
    }
    let mut residual: Vec<&str> = Vec::new();
    for words in found.iter().flat_map(|(_, words)| words) {
        if !residual.contains(words) {
            residual.push(words);
        }
    }
    let (spec, parts) = match best {
        Some((spec, parts, derived)) => {
            residual.extend(check_cases::differences(foreign, &derived));
            (Some(spec), parts)
        }
        None => (None, compare(None)),
    };
    let residual = residual.into_iter().map(str::to_owned).collect();
    Derivation { spec, parts: parts.into(), residual, renders: foreign.count() }
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
        // The start of the first user turn belongs to the system turn.
        system.prefix.clone_into(&mut chat.opening);
        chat.residual.retain(|words| *words != chat::FIRST_DIFFERS);
    }
    let tools = tools::derive(foreign, &chat, &mut system, compose);
    let skills = skills::derive(foreign, &chat, &mut system);
    let calls = calls::derive(foreign, &chat, compose);
    let text_arguments = calls.as_ref().is_some_and(|calls| calls.text_arguments);
    let results = results::derive(foreign, &chat, text_arguments);
    reasoning.find_no_question(foreign, results.as_ref());
    SpecDraft {
        tools,
        calls,
        results,
        null_content: calls::null_content(foreign),
        skills,
        media: media::derive(foreign),
        reasoning,
        roles: roles::derive(foreign, &chat),
        eos_token: sources.eos_token.clone(),
        chat,
        system,
    }
}

/// The residuals of each part.
fn residuals(draft: &SpecDraft) -> Vec<(DerivedPart, Vec<&'static str>)> {
    let tools = draft.tools.as_ref().map(|tools| &tools.residual);
    let calls = draft.calls.as_ref().map(|calls| &calls.residual);
    let results = draft.results.as_ref().map(|results| &results.residual);
    [
        (DerivedPart::Chat, Some(&draft.chat.residual)),
        (DerivedPart::System, Some(&draft.system.residual)),
        (DerivedPart::Tools, tools),
        (DerivedPart::Calls, calls),
        (DerivedPart::Results, results),
    ]
    .map(|(part, residual)| (part, residual.cloned().unwrap_or_default()))
    .into()
}
