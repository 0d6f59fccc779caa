//! Renders messages to a prompt: first polyfills, then the model's own template. Then tokenizes it.

use std::ops::Range;
use std::time::Instant;

use serde_json::Value;

use super::media_marker::typed_markers;
use super::plain_prompt;
use crate::api::{ChatRequest, Polyfills, ResponseFormat, ToolChoice};
use crate::compose::{self, Composed};
use crate::diagnostic::{Diagnostic, MESSAGE_INDEX};
use crate::engine::{Interrupt, TokenizedPrompt, Vocab};
use crate::error::{Code, Error, Result};
use crate::output::Format;
use crate::profile::ModelProfile;
use crate::template::{
    Limits, LocalTime, PolyfillTarget, Prompt, RenderInput, Variables, polyfill, thinking,
};

/// A prompt, and the changes that polyfills made to the messages.
pub(super) struct RenderedPrompt {
    pub(super) prompt: Prompt,
    pub(super) polyfills_applied: Vec<&'static str>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl RenderedPrompt {
    /// Replaces the indices of kept messages by those that the messages have in the request.
    pub(super) fn renumber_messages(&mut self, dropped: &Range<usize>) {
        if dropped.is_empty() {
            return;
        }
        for span in &mut self.prompt.spans {
            if span.path.starts_with(MESSAGE) {
                span.path = renumbered(&span.path, dropped).as_str().into();
            }
        }
        self.diagnostics.iter_mut().for_each(|diagnostic| renumber(diagnostic, dropped));
    }
}

pub(super) struct PromptRenderer<'a> {
    pub(super) profile: &'a ModelProfile,
    /// The components of the chat template, if it was composed.
    pub(super) composed: Option<&'a Composed>,
    /// The polyfills for requests without a member `polyfills`.
    pub(super) polyfills: &'a Polyfills,
    pub(super) limits: Limits,
    /// The spellings of the tokens around a text with a gap.
    pub(super) fill_spellings: &'a dyn Fn() -> Option<[String; 3]>,
    /// Ends the renders of the call.
    pub(super) interrupt: &'a Interrupt,
}

impl PromptRenderer<'_> {
    /// Renders messages, using the other members of a request. `CANCELLED` if the call is over.
    pub(super) fn render(
        &self,
        request: &ChatRequest,
        messages: &[Value],
    ) -> Result<RenderedPrompt> {
        let over = |error| if self.interrupt.is_over() { cancelled() } else { error };
        self.render_in_time(request, messages).map_err(over)
    }

    /// The limits of a render, which ends with the call.
    fn limits(&self) -> Result<Limits> {
        if self.interrupt.is_over() {
            return Err(cancelled());
        }
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let left = self.interrupt.deadline.map(left).map(|left| left.as_millis());
        let ms = left.map_or(u64::MAX, |left| u64::try_from(left).unwrap_or(u64::MAX).max(1));
        Ok(Limits { ms: ms.min(self.limits.ms), ..self.limits })
    }

    fn render_in_time(&self, request: &ChatRequest, messages: &[Value]) -> Result<RenderedPrompt> {
        self.limits()?;
        if let Some(prompt) = plain_prompt::render(request, self.fill_spellings)? {
            return Ok(RenderedPrompt {
                prompt,
                polyfills_applied: Vec::new(),
                diagnostics: Vec::new(),
            });
        }
        let now = match &request.prompt.now {
            Some(text) => {
                LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))?
            }
            None => LocalTime::now(),
        };
        let tools: Option<&[Value]> = match request.tool_choice {
            // With `tool_choice` "none" the prompt must not show the tools.
            ToolChoice::None => None,
            _ => Some(request.tools.as_slice()).filter(|tools| !tools.is_empty()),
        };
        let templates = &self.profile.templates;
        let allowed = request.prompt.polyfills.as_ref().unwrap_or(self.polyfills);
        let traits = templates.traits();
        let schema = match &request.output.response_format {
            Some(ResponseFormat::JsonSchema { schema, .. }) => Some(schema),
            _ => None,
        };
        let schema = schema.filter(|_| request.prompt.schema_in_prompt);
        let target = PolyfillTarget {
            is_answered_next: request.add_generation_prompt && request.continued.is_none(),
            schema,
            is_over: &|| self.interrupt.is_over(),
            ..self.profile.polyfill_target()
        };
        let takes_typed_content =
            traits.details.accepts_parts || traits.caps.requires_typed_content_blocks;
        let messages = match takes_typed_content {
            true => &*typed_markers(messages),
            false => messages,
        };
        let polyfilled = polyfill::apply(messages, tools, target, allowed)?;
        let prompt = templates.render(&RenderInput {
            polyfilled: Some(&polyfilled),
            tools,
            skills: Some(&request.prompt.skills)
                .filter(|skills| !skills.is_empty())
                .map(Vec::as_slice),
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continued.as_deref(),
            kwargs: Some(&thinking::variables(
                &request.thinking,
                traits,
                &request.prompt.template_kwargs,
            )?),
            spans: true,
            variables: Variables::of(allowed),
            limits: self.limits()?,
            ..RenderInput::new(&polyfilled.messages, now)
        });
        let prompt = prompt.map_err(|error| {
            if self.composed.is_some() { compose::with_reason(error) } else { error }
        })?;
        let mut diagnostics = polyfilled.diagnostics;
        if let Some(composed) = self.composed {
            diagnostics.extend(composed.notes(&polyfilled.messages));
        }
        if schema.is_some() && !allowed.apply_polyfills {
            diagnostics.push(Diagnostic::new(
                "schema_in_prompt_ignored",
                "schema_in_prompt: the prompt does not show the schema, because apply_polyfills is false",
            ));
        }
        if request.thinking.enabled.is_some() && traits.details.reasoning.switches.is_empty() {
            diagnostics.push(Diagnostic::new(
                "enable_thinking_ignored",
                "enable_thinking: this chat template has no switch for reasoning; the prompt is \
                 the same without it",
            ));
        }
        if tools.is_some()
            && let Some(because) = self.profile.evident_calls()
        {
            let message = format!("the chat template writes no calls; {because}");
            diagnostics.push(Diagnostic::new("call_format_evident", message));
        }
        let ends_reasoning = request.output.reasoning_budget.is_some()
            || !request.output.reasoning_budget_message.is_empty();
        if ends_reasoning && !marks_reasoning(self.profile) {
            diagnostics.push(Diagnostic::new(
                "reasoning_budget_ignored",
                "reasoning_budget: the tags of this model's reasoning are unknown, so nothing can \
                 be limited",
            ));
        }
        Ok(RenderedPrompt { prompt, polyfills_applied: polyfilled.applied, diagnostics })
    }
}

/// Whether the tags of this model's reasoning are known.
pub(super) fn marks_reasoning(profile: &ModelProfile) -> bool {
    profile.format().is_some_and(Format::marks_reasoning)
}

/// The byte ranges of a prompt that the request wrote, in order. Special tokens are not recognized
/// in them. Empty if the request allows special tokens there.
pub(super) fn plain_ranges(request: &ChatRequest, prompt: &Prompt) -> Vec<Range<usize>> {
    if request.prompt.parse_special_in_messages {
        return Vec::new();
    }
    prompt.spans.iter().map(|span| span.start..span.end).collect()
}

/// Tokenizes a prompt. Only the template can write special tokens: text of messages, tools and
/// documents stays plain. If the vocabulary requires a BOS and the prompt has none, it is
/// prepended.
///
/// Reuses the tokens of `last`, an earlier prompt, as far as possible.
pub(super) fn tokenize(
    vocab: &dyn Vocab,
    request: &ChatRequest,
    prompt: &Prompt,
    last: Option<(&str, &TokenizedPrompt)>,
    interrupt: &Interrupt,
) -> Result<TokenizedPrompt> {
    let tokenized = vocab.special_tokens().tokenize(
        vocab,
        &prompt.text,
        plain_ranges(request, prompt),
        last,
        interrupt,
    )?;
    with_bos(vocab, request, tokenized)
}

/// Prepends the BOS that a vocabulary requires, unless the prompt has one.
pub(super) fn with_bos(
    vocab: &dyn Vocab,
    request: &ChatRequest,
    mut tokenized: TokenizedPrompt,
) -> Result<TokenizedPrompt> {
    if let Some(bos) = vocab.required_bos()
        && tokenized.tokens.first() != Some(&bos)
    {
        tokenized.prepend(bos);
    }
    if tokenized.tokens.is_empty() {
        let member = if request.plain.is_some() { "prompt" } else { "messages" };
        return Err(Error::invalid(member, "the prompt has no tokens"));
    }
    Ok(tokenized)
}

fn cancelled() -> Error {
    Error::new(Code::Cancelled, "cancelled while the prompt was rendered")
}

const MESSAGE: &str = "messages[";

/// Replaces the message indices in a diagnostic by those in the request.
fn renumber(diagnostic: &mut Diagnostic, dropped: &Range<usize>) {
    diagnostic.message = renumbered(&diagnostic.message, dropped);
    diagnostic.path = diagnostic.path.take().map(|path| renumbered(&path, dropped));
    for (_, value) in diagnostic.details.iter_mut().filter(|(key, _)| *key == MESSAGE_INDEX) {
        let index = value.as_u64().filter(|index| *index >= dropped.start as u64);
        *value = index.map_or(value.take(), |index| (index + dropped.len() as u64).into());
    }
}

/// Replaces the message indices in a text by those in the request.
pub(super) fn renumbered(text: &str, dropped: &Range<usize>) -> String {
    let mut output = String::with_capacity(text.len());
    let mut parts = text.split(MESSAGE);
    output.extend(parts.next());
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let index = part[..digits].parse::<usize>().ok();
        output.push_str(MESSAGE);
        let index = index.filter(|index| *index >= dropped.start);
        match index.and_then(|index| index.checked_add(dropped.len())) {
            Some(index) => output.extend([&index.to_string(), &part[digits..]]),
            None => output.push_str(part),
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_indices_of_the_request() {
        for (text, expected) in [
            ("messages[0].content", "messages[0].content"),
            ("messages[1].content", "messages[4].content"),
            ("messages[12]: and messages[0], tools[1]", "messages[15]: and messages[0], tools[1]"),
            ("messages[", "messages["),
            ("of [1]", "of [1]"),
        ] {
            assert_eq!(renumbered(text, &(1..4)), expected);
        }
    }

    #[test]
    fn diagnostics_keep_the_index_of_their_message() {
        for (kept, sent) in [(0, 0), (1, 4), (7, 10)] {
            let mut diagnostic = Diagnostic::new("c", format!("messages[{kept}]: it changed"))
                .with("other", kept)
                .with(MESSAGE_INDEX, kept);
            renumber(&mut diagnostic, &(1..4));
            let message = format!("messages[{sent}]: it changed");
            let expected =
                Diagnostic::new("c", message).with("other", kept).with(MESSAGE_INDEX, sent);
            assert_eq!(diagnostic, expected);
        }
    }
}
