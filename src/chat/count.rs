//! Counts the tokens of a request's prompt, without a chat and without weights.

use super::native;
use super::open::prompt_source;
use super::render::{PromptRenderer, RenderedPrompt};
use crate::api::{ChatRequest, CreateOptions};
use crate::diagnostic::Diagnostic;
use crate::engine::Interrupt;
use crate::error::Result;
use crate::llama::FileVocabulary;
use crate::template::Limits;

/// The size of a request's prompt.
pub struct PromptCount {
    /// The number of prompt tokens, equal to `usage.prompt_tokens` of a reply to the request.
    pub prompt_tokens: usize,
    /// The polyfills that changed the messages.
    pub polyfills_applied: Vec<&'static str>,
    /// The diagnostics of rendering the prompt.
    pub diagnostics: Vec<Diagnostic>,
}

/// Counts the whole prompt of a request to a chat with these options, regardless of the size of its
/// context. `vocabulary` is that of the options' model.
///
/// # Errors
/// The errors of rendering a prompt: `INVALID_REQUEST`, `TEMPLATE_ERROR`, `TEMPLATE_LIMIT`,
/// `CONTEXT_OVERFLOW`.
pub fn count(
    vocabulary: &FileVocabulary,
    options: &CreateOptions,
    request: &ChatRequest,
) -> Result<PromptCount> {
    let (profile, composed) = prompt_source(options, Some(vocabulary.header()))?;
    let renderer = PromptRenderer {
        profile: &profile,
        composed: composed.as_ref(),
        polyfills: &options.template.polyfills,
        limits: Limits::with(&options.template.template_limits),
    };
    let RenderedPrompt { prompt, polyfills_applied, diagnostics } =
        renderer.render(request, &request.messages)?;
    let interrupt = Interrupt::default();
    let tokenized = native::tokenize(vocabulary.vocab(), request, &prompt, None, &interrupt)?;
    Ok(PromptCount { prompt_tokens: tokenized.tokens.len(), polyfills_applied, diagnostics })
}
