//! Lints: remarks that the author of a template should read. In: a source and a prober. Out: lints
//! with their lines.
//!
//! Every lint is based on a render or on the source. A render that ends in an engine error or a
//! limit gives no lint. Codes: docs/templates.md.

mod instructions;
mod losses;
mod order;
mod python_repr;
mod refused_conversations;
mod review;
mod rewrites;
mod source;

#[cfg(test)]
mod tests;

use super::failure::Failure;
use super::probe::baseline::Baseline;
use super::probe::prober::Prober;
use super::probe::traits::Traits;
use super::sources::{CHATML, TOOL_USE};
use crate::jinja::Inspection;
use review::Review;

pub use review::{Lint, Severity};

/// The maximum number of lints of one template.
const MAX: usize = 50;
/// The tool_use template does not parse.
pub(super) fn tool_use_ignored(failure: &Failure) -> Lint {
    Lint {
        code: "tool_use_template_ignored",
        severity: Severity::Error,
        message: format!(
            "the tool_use template is ignored because it does not parse: {}",
            failure.message
        ),
        template: TOOL_USE,
        line: failure.line,
    }
}

/// The file has no template.
pub(super) fn built_in() -> Lint {
    Lint {
        code: "no_chat_template",
        severity: Severity::Warning,
        message: "the file has no chat template; the built-in ChatML is used".to_owned(),
        template: CHATML,
        line: None,
    }
}

/// Reviews one template.
pub(super) fn review(
    name: &'static str,
    mut prober: Prober,
    source: &Inspection,
    traits: &Traits,
) -> Vec<Lint> {
    let base = Baseline::find(&mut prober);
    let mut review = Review { base: &base, traits, source, name, lints: Vec::new() };
    source::review(&mut review);
    match &base.plain {
        Err(failure) => {
            let message = format!("a single user message does not render: {}", failure.message);
            review.add_at(Severity::Error, "does_not_render", failure.line, message);
        }
        Ok(_) => {
            refused_conversations::review(&mut review);
            losses::review(&mut review);
            python_repr::review(&mut review);
            instructions::review(&mut review);
            rewrites::review(&mut review);
            order::review(&mut review);
        }
    }
    review.lints.truncate(MAX);
    review.lints
}
