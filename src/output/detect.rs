//! Which format a template writes: a family of the table, or what its renders show.

use super::families;
use super::format::Format;
use super::turn::Opener;
use super::verify::{Render, Renders};

/// What was found out about a template's replies.
pub struct Detected {
    /// How calls, reasoning and text are written; None where the template writes calls that nobody understands.
    pub format: Option<Format>,
    /// What opens an assistant's turn.
    pub opener: Opener,
    /// What the template adds for the reply.
    pub generation_prompt: String,
}

impl Detected {
    /// Finds the format a template writes by rendering. A family is taken only when every required row of the round trip
    /// comes back exactly.
    pub fn native(render: Render<'_>) -> Detected {
        let renders = Renders::new(render);
        let mut best: Option<(usize, Format)> = None;
        for format in families::all().into_iter().filter(|format| renders.may_be(format)) {
            let format = Format { reasoning: evident(&format, &renders), ..format };
            let report = renders.round_trip(&format);
            #[cfg(test)]
            if std::env::var_os("DEBUG_DETECT").is_some() {
                crate::conformance::say(&format!("{} {:#?}", format.family, report.failed().collect::<Vec<_>>()));
            }
            let exact = report.rows.len() - report.failed().count();
            if report.accepted() && best.as_ref().is_none_or(|(most, _)| exact > *most) {
                best = Some((exact, verified(format, report.parallel())));
            }
        }
        // Calls that nobody understands: the model may still answer as our polyfill would have taught it.
        let found = best.map(|(_, format)| format).or_else(|| Some(families::polyfilled()));
        Detected::new(found, &renders)
    }

    /// The format that our polyfill teaches a model whose template writes no calls. `render` polyfills.
    pub fn polyfilled(render: Render<'_>) -> Detected {
        let renders = Renders::new(render);
        let format = families::polyfilled();
        let report = renders.round_trip(&format);
        let format = if report.accepted() { verified(format, report.parallel()) } else { format };
        Detected::new(Some(format), &renders)
    }

    fn new(format: Option<Format>, renders: &Renders) -> Detected {
        let opener = renders.opener(format.as_ref());
        let generation_prompt = renders.generation_prompt().to_owned();
        Detected { format, opener, generation_prompt }
    }
}

/// Reasoning that only an end tag tells from text counts only where the template is seen to ask for it.
fn evident(format: &Format, renders: &Renders) -> Option<super::format::Reasoning> {
    format.reasoning.clone().filter(|tags| !tags.open.is_empty() || renders.shows(&tags.close))
}

fn verified(mut format: Format, parallel: bool) -> Format {
    format.verified = true;
    if let Some(calls) = &mut format.calls {
        calls.parallel &= parallel;
    }
    format
}
