//! Chat templates: rendering messages to a prompt like Hugging Face transformers 5.x, and finding
//! out what a template can carry.
//!
//! In: the Jinja source from a model file, messages, tools, the time. Out: the prompt, or an error
//! with its kind and line, and the capability flags. Never reads files or the network, never
//! prints, and reads the clock only in [`LocalTime::now`].

mod clock;
mod compiled;
mod continue_final_message;
pub(crate) mod edits;
mod environment;
mod failure;
pub(crate) mod host;
mod import;
mod limits;
mod lint;
pub(crate) mod mask;
pub mod polyfill;
mod probe;
mod prompt;
mod render;
mod sources;
mod templates;
pub mod thinking;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
pub(crate) mod tests;

pub use crate::jinja::ErrorKind;
pub use clock::LocalTime;
pub use continue_final_message::reasoning_of;
pub use failure::Failure;
pub use limits::Limits;
pub use lint::{Lint, Severity};
pub use mask::{MaskScope, MaskedTurn, OmittedTurn, PromptMask};
pub use polyfill::{PolyfillTarget, Polyfilled};
pub use probe::evidence::{Evidence, EvidenceStatus};
pub use probe::llama_cpp_caps::{LlamaCppCaps, LlamaCppCapsReport};
pub(crate) use probe::prober::probe_time;
pub use probe::traits::{
    AcceptedArguments, Details, Effort, NoContent, ReasoningCell, ReasoningDetails,
    ReasoningFormat, RoleSupport, Switch, TemplateCaps, ToolSupport, Traits, TraitsReport,
    TurnPosition, WithCalls,
};
pub use prompt::{Prompt, Span};
pub use render::{RenderInput, Variables};
pub use sources::Sources;
pub use templates::Templates;
