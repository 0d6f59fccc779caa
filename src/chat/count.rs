//! Counts the tokens of a prompt with the options of a chat, without a chat and without weights.

use std::time::Instant;

use super::MediaFiles;
use super::media::RequestMedia;
use super::media_count::MediaCounter;
use super::open::prompt_source;
use super::plain_prompt;
use super::render::{PromptRenderer, RenderedPrompt, tokenize, with_bos};
use crate::api::{ChatRequest, CreateOptions, ProjectorChoice};
use crate::diagnostic::Diagnostic;
use crate::engine::{Interrupt, MediaReader, TokenizedPrompt};
use crate::error::Result;
use crate::llama::{FileVocabulary, fitting_projector, with_projector_beside};
use crate::template::{Limits, Prompt};

/// The tokens of a request's prompt.
pub struct PromptCount {
    /// The tokens, as many as `usage.prompt_tokens` of a reply to the request. Media cannot be
    /// computed.
    pub tokenized: TokenizedPrompt,
    /// The prompt.
    pub prompt: Prompt,
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
    let deadline = request.output.timeout.map(|timeout| Instant::now() + timeout);
    let interrupt = Interrupt { deadline, ..Interrupt::default() };
    let renderer = PromptRenderer {
        profile: &profile,
        composed: composed.as_ref(),
        polyfills: &options.template.polyfills,
        limits: Limits::with(&options.template.template_limits),
        fill_spellings: &|| vocabulary.vocab().fill_spellings(),
        interrupt: &interrupt,
    };
    if let Some((tokens, prompt)) = plain_prompt::given_tokens(request, vocabulary.vocab())? {
        return Ok(PromptCount {
            tokenized: TokenizedPrompt::from_tokens(tokens),
            prompt,
            polyfills_applied: Vec::new(),
            diagnostics: Vec::new(),
        });
    }
    let vocab = vocabulary.vocab();
    let counter = media_counter(options, vocabulary, &interrupt)?;
    let files = MediaFiles::open(&options.media)?;
    let reader = counter.as_ref().map(|counter| counter as &dyn MediaReader);
    let media = RequestMedia::read(request, reader, &files, &interrupt)?;
    let RenderedPrompt { prompt, polyfills_applied, diagnostics } =
        renderer.render(request, media.messages(request))?;
    let tokenized = if media.is_empty() {
        tokenize(vocab, request, &prompt, None, &interrupt)?
    } else {
        let tokenized = media.tokenize(vocab, request, &prompt, &(0..0), &interrupt)?;
        with_bos(vocab, request, tokenized)?
    };
    Ok(PromptCount { tokenized, prompt, polyfills_applied, diagnostics })
}

/// Counts media by the projector that the options name.
fn media_counter<'a>(
    options: &CreateOptions,
    vocabulary: &'a FileVocabulary,
    interrupt: &'a Interrupt,
) -> Result<Option<MediaCounter<'a>>> {
    let resolved = with_projector_beside(options, options.model.as_deref())?;
    let projector = &resolved.as_ref().unwrap_or(options).loading.projector;
    let Some(ProjectorChoice::Path(path)) = projector else { return Ok(None) };
    let projector = fitting_projector(path, vocabulary.header())?;
    Ok(Some(MediaCounter::new(projector, vocabulary.vocab(), interrupt)))
}
