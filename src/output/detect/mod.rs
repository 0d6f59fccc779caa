//! Which format a template writes: a family of the table, or what its renders show.

mod infer;
pub(crate) mod turn;
pub(crate) mod verify;

use super::families;
use super::format::{Format, FormatSource};
use turn::Opener;
use verify::{Render, Renders};

/// What was found out about a template's replies.
pub struct Detected {
    /// How calls, reasoning and text are written; None where the template writes calls that nobody
    /// understands.
    pub format: Option<Format>,
    /// What opens an assistant's turn.
    pub opener: Opener,
    /// What the template adds for the reply.
    pub generation_prompt: String,
}

impl Detected {
    /// Finds the format a template writes by rendering: a family that writes the template's bytes,
    /// or what the renders themselves show, or a family that reads them. All of them only when
    /// every required row of the round trip comes back exactly; otherwise the model may still
    /// answer as our polyfill would have taught it.
    pub fn native(render: Render<'_>) -> Detected {
        let renders = Renders::new(render);
        let evident = |format: Format| Format { reasoning: evident(&format, &renders), ..format };
        let families: Vec<Format> = families::all().into_iter().map(evident).collect();
        let written = || infer::find(&families, render).ok().map(|(format, _)| format.clone());
        let inferred = || infer::infer(render).ok().map(|inferred| inferred.format);
        let found = written().and_then(|format| renders.proven(format).ok());
        let found = found.or_else(|| inferred().and_then(|format| renders.proven(format).ok()));
        let found = found.or_else(|| best_reader(families, &renders));
        Detected::new(Some(found.unwrap_or_else(families::polyfilled)), &renders)
    }

    /// The format that our polyfill teaches a model whose template writes no calls. `render`
    /// polyfills.
    pub fn polyfilled(render: Render<'_>) -> Detected {
        let renders = Renders::new(render);
        let format = families::polyfilled();
        let format = renders.proven(format).unwrap_or_else(|format| *format);
        Detected::new(Some(format), &renders)
    }

    /// Lets the polyfill's format also accept calls of the families whose tag `is_known`: to the
    /// template's source, or to the vocabulary. Any other format is what the model itself writes.
    pub fn with_evidence(mut self, is_known: &dyn Fn(&str) -> bool) -> Detected {
        if let Some(format) =
            self.format.as_mut().filter(|format| format.source == FormatSource::Polyfill)
        {
            format.accepted_families = families::evident(is_known);
        }
        self
    }

    fn new(format: Option<Format>, renders: &Renders) -> Detected {
        let opener = renders.opener(format.as_ref());
        let generation_prompt = renders.generation_prompt().to_owned();
        Detected { format, opener, generation_prompt }
    }
}

/// Reasoning that only an end tag tells from text counts only where the template is seen to ask for
/// it.
fn evident(format: &Format, renders: &Renders) -> Option<super::format::ReasoningTags> {
    format
        .reasoning
        .clone()
        .filter(|tags| !tags.open.is_empty() || renders.closes_reasoning(&tags.close))
}

/// The family that reads most of what the template writes, though it would write it in another way.
fn best_reader(families: Vec<Format>, renders: &Renders) -> Option<Format> {
    let mut best: Option<(usize, Format)> = None;
    for format in families.into_iter().filter(|format| renders.may_be(format)) {
        let report = renders.round_trip(&format);
        let exact = report.rows.len() - report.failed().count();
        if report.accepted() && best.as_ref().is_none_or(|(most, _)| exact > *most) {
            best = Some((exact, format));
        }
    }
    best.and_then(|(_, format)| renders.proven(format).ok())
}
