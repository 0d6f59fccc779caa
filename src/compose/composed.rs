//! A spec, together with the template that is composed from it.

use std::sync::OnceLock;

use serde_json::Value;

use super::fault::{Reason, SpecFault};
use super::spec::formatter::Formatter;
use super::spec::policy::Placement;
use super::spec::processor::Processor;
use super::spec::{self, ComponentSpec, SKILLS_WITHOUT_PLACE};
use super::{jinja, mask, registry};
use crate::diagnostic::Diagnostic;
use crate::error::{Code, Error, Result};
use crate::template::host::{HostWork, ToolsYaml};
use crate::template::mask::{MaskScope, MaskedTurn, PromptMask};
use crate::template::{Prompt, RenderInput, Sources, Templates};
use crate::vision::{VisionDefaults, VisionRule};

/// A spec and its template. May be shared between threads.
#[derive(Debug)]
pub struct Composed {
    pub(super) spec: ComponentSpec,
    chat_template: String,
    warnings: Vec<Diagnostic>,
    ignored: Vec<String>,
    /// The template with assistants' turns marked, compiled on first use.
    marked: OnceLock<Templates>,
}

impl Composed {
    /// Reads a spec, or looks it up by name, and composes its template. `path` is its JSON path in
    /// the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub fn parse(components: &Value, path: &str) -> Result<Composed> {
        let entry;
        let components = match components {
            Value::String(name) => {
                entry = registry::find(name, path)?;
                &entry.spec
            }
            spec => spec,
        };
        let spec::ReadSpec { spec, mut warnings, ignored } = ComponentSpec::read(components, path)?;
        let chat_template = match &spec.chat_template {
            Some(template) => template.clone(),
            None => {
                if !begins_with_prompt(&spec) {
                    let message = "an assistant's turn does not begin with the generation prompt, \
                                   so that the next request renders the reply differently";
                    warnings.push(Diagnostic::at(
                        "generation_prompt_not_prefix",
                        format!("{path}.generation_prompt"),
                        message,
                    ));
                }
                jinja::template(&spec, false)
            }
        };
        Ok(Composed { spec, chat_template, warnings, ignored, marked: OnceLock::new() })
    }

    /// Checks the spec as `strict` demands: the first unknown field or warning is an error. A
    /// missing place for skills is allowed if the spec does not mention skills.
    pub fn check_strictly(&self) -> Result<()> {
        if let Some(path) = self.ignored.first() {
            return Err(SpecFault::new(Reason::UnknownField, path, "unknown field").into());
        }
        let counts = |warning: &&Diagnostic| {
            warning.code != SKILLS_WITHOUT_PLACE || self.spec.mentions_skills()
        };
        self.warnings
            .iter()
            .find(counts)
            .map_or(Ok(()), |warning| Err(SpecFault::from(warning).into()))
    }

    /// The spec in normal form: without defaults and aliases.
    pub fn spec(&self) -> Value {
        self.spec.to_json()
    }

    /// The name of the spec; empty if it has none.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The Jinja template.
    pub fn chat_template(&self) -> &str {
        &self.chat_template
    }

    /// Whether the template is generated from the spec and not handwritten.
    pub fn is_generated(&self) -> bool {
        self.spec.chat_template.is_none()
    }

    /// The warnings about the spec, for `findings`.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The unknown members, by path.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The texts that end a reply.
    pub fn stop_words(&self) -> &[String] {
        &self.spec.stop_words
    }

    /// The text that opens the assistant's turn of a reply.
    pub fn generation_prompt(&self) -> String {
        self.spec.generation_prompt()
    }

    /// The text that ends an assistant's turn. A model is trained to write it.
    pub fn assistant_end(&self) -> &str {
        self.spec.assistant_end()
    }

    /// The template variables that the host must set.
    pub fn host_vars(&self) -> Vec<&'static str> {
        self.host().names()
    }

    /// The template and its tokens, for [`Templates::compile`].
    pub fn sources(&self) -> Sources {
        Sources {
            default: Some(self.chat_template.clone()),
            host: self.host(),
            ..Sources::default()
        }
    }

    fn host(&self) -> HostWork {
        if !self.is_generated() {
            return HostWork::default();
        }
        let spec = &self.spec;
        HostWork {
            tools_yaml: (spec.tool_policy.formatter == Formatter::Yaml).then(|| ToolsYaml {
                each: spec.single_tool_template.is_some(),
                pick_function: spec.tool_policy.processor == Some(Processor::PickFunction),
                empty: spec.tool_policy.empty_list_as_tools,
            }),
            object_arguments: spec
                .tool_policy
                .call_processor
                .as_ref()
                .is_some_and(Processor::parses_arguments),
        }
    }

    /// The flags of `template_caps` that the spec determines.
    pub fn declared(&self) -> Vec<(&'static str, bool)> {
        if !self.is_generated() {
            return Vec::new();
        }
        let spec = &self.spec;
        let calls = spec.shows_calls();
        let system = spec.system_policy.use_system && spec.system_template.has("system_message");
        let mut declared = vec![("supports_system_role", system)];
        // Tools that need a system message do not reach every prompt.
        if spec.system_policy.without_message
            || spec.system_policy.with_tools
            || !spec.shows_tools()
        {
            declared.push(("supports_tools", spec.shows_tools()));
        }
        // Without a key or a name in the prompt, a call cannot be recognized. An id may contain the
        // name, but need not.
        let call = &spec.single_tool_call_template;
        let templates = [&spec.argument_template, &spec.text_argument_template];
        let keyed = call.has("tool_call")
            || templates.into_iter().flatten().all(|template| template.has("key"));
        let named = call.has("name")
            || (call.has("tool_call")
                && spec.tool_policy.call_processor != Some(Processor::KimiCall));
        if named && keyed {
            declared.push(("supports_tool_calls", calls));
            declared.push(("supports_parallel_tool_calls", calls));
            // Without calls in the prompt, results are never rendered.
            declared
                .push(("supports_tool_responses", calls && spec.observations_template.is_some()));
        }
        declared
    }

    /// Diagnostics for what the template omits of these messages.
    pub fn notes(&self, messages: &[Value]) -> Vec<Diagnostic> {
        let mut notes = Vec::new();
        if !self.is_generated() {
            return notes;
        }
        let spec = &self.spec;
        if let Some(first) = messages.first().filter(|message| message["role"] == "system") {
            let parts = first["content"].as_array().map_or(0, Vec::len);
            if !spec.system_policy.use_system {
                notes.push(Diagnostic::at(
                    "system_dropped",
                    "messages[0]",
                    "this template has no system turn",
                ));
            } else if spec.system_policy.placement != Placement::System
                && !messages.iter().any(|message| message["role"] == "user")
            {
                let message = "its text goes into a user's turn, but there is no user's message";
                notes.push(Diagnostic::at("system_dropped", "messages[0]", message));
            } else if spec.system_policy.first_part && parts > 1 {
                let message = "only the first part is rendered; system_policy.parts \"all\" \
                               renders every part";
                notes.push(Diagnostic::at("system_parts_dropped", "messages[0].content", message));
            }
        }
        if spec.reasoning_template.is_none() {
            let reasons = |message: &&Value| {
                message["reasoning_content"].as_str().is_some_and(|text| !text.is_empty())
            };
            let ignored = messages.iter().enumerate().filter(|(_, message)| reasons(message));
            notes.extend(ignored.map(|(index, _)| {
                let path = format!("messages[{index}].reasoning_content");
                Diagnostic::at(
                    "reasoning_ignored",
                    &path,
                    "the components have no reasoning_template",
                )
            }));
        }
        notes
    }

    /// The byte ranges of the prompt of `input` that the assistant is trained to write. `sent` are
    /// the messages before polyfills. None for a handwritten template, or if polyfills have joined
    /// assistants' turns.
    ///
    /// `INTERNAL_BRIDGE_ERROR` with the reason `mask_mismatch` if the marked template renders a
    /// different prompt.
    pub(crate) fn mask(
        &self,
        turns: MaskScope,
        prompt: &Prompt,
        input: &RenderInput<'_>,
        sent: &[Value],
    ) -> Result<Option<PromptMask>> {
        let (assistants, rendered) = (
            crate::template::mask::assistants(sent),
            crate::template::mask::assistants(input.messages),
        );
        if !self.is_generated() || assistants.len() != rendered.len() {
            return Ok(None);
        }
        let marked = match self.marked.get() {
            Some(marked) => marked,
            None => {
                let source =
                    Sources { default: Some(jinja::template(&self.spec, true)), ..self.sources() };
                let compiled = Templates::compile(&source)?;
                self.marked.get_or_init(|| compiled)
            }
        };
        let rendered = marked.render(&RenderInput { spans: false, ..*input })?;
        let last = input.messages.last().is_some_and(|message| message["role"] == "assistant")
            && (self.spec.turns.last_answer_with_prompt || !input.add_generation_prompt);
        let thinks = input
            .kwargs
            .is_none_or(|kwargs| kwargs.get("enable_thinking") != Some(&Value::Bool(false)));
        let no_thinking = self.spec.turns.no_thinking_prompt.clone().filter(|_| !thinks);
        let generation_prompt = no_thinking.unwrap_or_else(|| self.spec.generation_prompt());
        let ranges = mask::ranges(
            &self.spec,
            &prompt.text,
            &rendered.generation,
            last,
            &mask::call_counts(input.messages),
            &generation_prompt,
        );
        match ranges
            .filter(|ranges| rendered.text == prompt.text && ranges.len() == assistants.len())
        {
            Some(ranges) => {
                let all = assistants
                    .iter()
                    .zip(ranges)
                    .map(|(message, range)| MaskedTurn { message: *message, range });
                let selected = turns.of(&assistants);
                let turns = all.filter(|turn| selected.contains(&turn.message)).collect();
                Ok(Some(PromptMask { turns, omitted: Vec::new() }))
            }
            None => {
                let problem = "the marked template rendered another prompt";
                Err(Error::new(Code::InternalBridgeError, problem).with("reason", "mask_mismatch"))
            }
        }
    }

    /// The image and video placeholders of the spec.
    pub(crate) fn vision(&self) -> VisionDefaults {
        let spec = &self.spec;
        let text = |text: &String| Some(text).filter(|text| !text.is_empty()).cloned();
        VisionDefaults {
            // `ComponentSpec::read` has checked the rule.
            rule: spec
                .vision_rule
                .as_ref()
                .and_then(|rule| VisionRule::read("", rule).ok())
                .map(|(rule, _)| rule),
            image_token: spec.image_token.clone(),
            video_token: spec.video_token.clone(),
            vision_start: text(&spec.vision_start),
            vision_end: text(&spec.vision_end),
        }
    }

    /// Registers the spec under its name until the process ends.
    ///
    /// `INVALID_REQUEST` with the reason `name_taken`, or with `missing_field` if the spec has no
    /// name.
    pub fn register(&self, replace: bool) -> Result<()> {
        if self.spec.name.is_empty() {
            return Err(SpecFault::new(
                Reason::MissingField,
                "components.name",
                "missing; a registered template requires a name",
            )
            .into());
        }
        Ok(registry::register(&self.spec.name, self.spec(), replace)?)
    }
}

/// Whether an assistant's turn begins with the generation prompt, regardless of the turn's content.
fn begins_with_prompt(spec: &ComponentSpec) -> bool {
    let prompt = spec.generation_prompt();
    let before = spec.assistant_template.text_before("content");
    let prepended = match &spec.assistant_policy.processor {
        Some(Processor::NewlineIfNonempty) => "\n",
        Some(Processor::PrependIfNonempty(text) | Processor::Prepend(text)) => text,
        _ => "",
    };
    format!("{before}{prepended}").starts_with(&prompt)
}
