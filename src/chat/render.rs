//! Renders messages to a prompt: first polyfills, then the model's own template.

use serde_json::Value;

use super::Chat;
use super::source::FittedPrompt;
use crate::api::{ChatRequest, Polyfills, ToolChoice};
use crate::compose::{self, Composed};
use crate::diagnostic::Diagnostic;
use crate::engine::Interrupt;
use crate::error::{Error, Result};
use crate::output::Format;
use crate::profile::ModelProfile;
use crate::template::{Limits, LocalTime, Prompt, RenderInput, Variables, polyfill, thinking};

/// A prompt, and the changes that polyfills made to the messages.
pub(super) struct RenderedPrompt {
    pub(super) prompt: Prompt,
    pub(super) polyfills_applied: Vec<&'static str>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Chat {
    /// The prompt of a request, fitted to the context of the model.
    pub(super) fn fit_to_context(
        &self,
        request: &ChatRequest,
        interrupt: &Interrupt,
    ) -> Result<FittedPrompt> {
        let renderer = PromptRenderer {
            profile: &self.profile,
            composed: self.composed.as_ref(),
            polyfills: &self.polyfills,
            limits: self.limits,
        };
        let render = |messages: &[Value]| renderer.render(request, messages);
        self.source.fit_to_context(request, &render, interrupt)
    }

    /// Whether the tags of this model's reasoning are known.
    pub(super) fn marks_reasoning(&self) -> bool {
        marks_reasoning(&self.profile)
    }
}

pub(super) struct PromptRenderer<'a> {
    pub(super) profile: &'a ModelProfile,
    /// The components of the chat template, if it was composed.
    pub(super) composed: Option<&'a Composed>,
    /// The polyfills for requests without a member `polyfills`.
    pub(super) polyfills: &'a Polyfills,
    pub(super) limits: Limits,
}

impl PromptRenderer<'_> {
    /// Renders messages, using the other members of a request.
    pub(super) fn render(
        &self,
        request: &ChatRequest,
        messages: &[Value],
    ) -> Result<RenderedPrompt> {
        let now = match &request.now {
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
        let allowed = request.polyfills.as_ref().unwrap_or(self.polyfills);
        let traits = templates.traits();
        let target = self.profile.polyfill_target();
        let polyfilled = polyfill::apply(messages, tools, target, allowed)?;
        let prompt = templates.render(&RenderInput {
            polyfilled: Some(&polyfilled),
            tools,
            skills: Some(&request.skills).filter(|skills| !skills.is_empty()).map(Vec::as_slice),
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continued.as_deref(),
            kwargs: Some(&thinking::variables(
                &request.thinking,
                traits,
                &request.template_kwargs,
            )?),
            spans: true,
            variables: Variables::of(allowed),
            limits: self.limits,
            ..RenderInput::new(&polyfilled.messages, now)
        });
        let prompt = prompt.map_err(|error| {
            if self.composed.is_some() { compose::with_reason(error) } else { error }
        })?;
        let mut diagnostics = polyfilled.diagnostics;
        if let Some(composed) = self.composed {
            diagnostics.extend(composed.notes(&polyfilled.messages));
        }
        if request.thinking.enabled.is_some() && traits.details.reasoning.switches.is_empty() {
            diagnostics.push(Diagnostic::new(
                "enable_thinking_ignored",
                "enable_thinking: this chat template has no switch for reasoning; the prompt is the same without it",
            ));
        }
        if tools.is_some()
            && let Some(because) = self.profile.evident_calls()
        {
            let message = format!("the chat template writes no calls; {because}");
            diagnostics.push(Diagnostic::new("call_format_evident", message));
        }
        let ends_reasoning =
            request.reasoning_budget.is_some() || !request.reasoning_budget_message.is_empty();
        if ends_reasoning && !marks_reasoning(self.profile) {
            diagnostics.push(Diagnostic::new(
                "reasoning_budget_ignored",
                "reasoning_budget: the tags of this model's reasoning are unknown, so nothing can be limited",
            ));
        }
        Ok(RenderedPrompt { prompt, polyfills_applied: polyfilled.applied, diagnostics })
    }
}

fn marks_reasoning(profile: &ModelProfile) -> bool {
    profile.format().is_some_and(Format::marks_reasoning)
}
