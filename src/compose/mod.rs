//! Chat templates from components. A spec becomes a Jinja template, which renders every prompt.
//!
//! There is no other path from a spec to a prompt, so a template and its prompts cannot differ.
//! docs/compose.md describes the rules.

mod composed;
pub mod derive;
mod fault;
mod jinja;
mod mask;
mod registry;
mod spec;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
pub(crate) mod tests;

use serde_json::Value;

use crate::error::{Code, Error};

pub use crate::template::host::HostWork;
pub use composed::Composed;
pub use fault::{Reason, SpecFault};
pub use spec::ComponentSpec;

/// All registered templates: the name, the spec, and whether it renders the same as the model's own
/// template.
pub fn registered() -> Vec<(String, Value, bool)> {
    registry::all().into_iter().map(|(name, entry)| (name, entry.spec, entry.exact)).collect()
}

/// Reasons that appear at the start of a composed template's error messages.
const REASONS: [&str; 5] = [
    "unsupported_part",
    "unexpected_role",
    "no_observations_template",
    "mixed_tools",
    "missing_variable",
];

/// Adds `details.reason`, taken from the message of a composed template's error.
pub fn with_reason(error: Error) -> Error {
    let reason = error
        .message()
        .split(':')
        .next()
        .and_then(|head| REASONS.into_iter().find(|reason| *reason == head));
    match reason {
        Some(reason) if error.code() == Code::TemplateError => error.with("reason", reason),
        _ => error,
    }
}
