//! Messages to a prompt: polyfills, then the model's own template.

use serde_json::Value;

use super::Chat;
use super::source::FittedPrompt;
use crate::api::{ChatRequest, ToolChoice};
use crate::compose;
use crate::diagnostic::Diagnostic;
use crate::engine::Interrupt;
use crate::error::{Error, Result};
use crate::output::Format;
use crate::template::{LocalTime, Prompt, RenderInput, Variables, polyfill, thinking};

/// A prompt, and what was done to the messages to get it.
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
        self.source.fit_to_context(request, &|messages| self.render(request, messages), interrupt)
    }

    /// Renders messages with the other members of a request.
    fn render(&self, request: &ChatRequest, messages: &[Value]) -> Result<RenderedPrompt> {
        let now = match &request.now {
            Some(text) => {
                LocalTime::parse(text).map_err(|error| Error::invalid("now", error.message()))?
            }
            None => LocalTime::now(),
        };
        let tools: Option<&[Value]> = match request.tool_choice {
            // The prompt does not show tools that must not be called.
            ToolChoice::None => None,
            _ => Some(request.tools.as_slice()).filter(|tools| !tools.is_empty()),
        };
        let templates = &self.profile.templates;
        let allowed = request.polyfills.as_ref().unwrap_or(&self.polyfills);
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
        if let Some(composed) = &self.composed {
            diagnostics.extend(composed.notes(&polyfilled.messages));
        }
        if request.thinking.enabled.is_some() && traits.details.switches.is_empty() {
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
        if request.reasoning_budget.is_some() && !self.marks_reasoning() {
            diagnostics.push(Diagnostic::new(
                "reasoning_budget_ignored",
                "reasoning_budget: the tags of this model's reasoning are unknown, so nothing can be limited",
            ));
        }
        Ok(RenderedPrompt { prompt, polyfills_applied: polyfilled.applied, diagnostics })
    }

    /// Whether it is known how this model marks its reasoning.
    pub(super) fn marks_reasoning(&self) -> bool {
        self.profile.format().is_some_and(Format::marks_reasoning)
    }
}
