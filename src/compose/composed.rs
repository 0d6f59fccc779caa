//! A spec with the template that is written from it.

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

/// A spec with the template that it makes. May be shared between threads.
#[derive(Debug)]
pub struct Composed {
    pub(super) spec: ComponentSpec,
    chat_template: String,
    warnings: Vec<Diagnostic>,
    ignored: Vec<String>,
    /// The template whose assistants' turns are marked, compiled when it is first asked for.
    marked: OnceLock<Templates>,
}

impl Composed {
    /// Reads a spec, or finds the one of this name, and writes its template. `path` is where it
    /// stands in the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub fn of(components: &Value, path: &str) -> Result<Composed> {
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
            Some(written) => written.clone(),
            None => {
                if !begins_with_prompt(&spec) {
                    let message = "an assistant's turn does not begin with the generation prompt: what the model wrote is rendered differently in the next turn";
                    warnings.push(Diagnostic::at(
                        "generation_prompt_not_prefix",
                        &format!("{path}.generation_prompt"),
                        message,
                    ));
                }
                jinja::template(&spec, false)
            }
        };
        Ok(Composed { spec, chat_template, warnings, ignored, marked: OnceLock::new() })
    }

    /// What `strict` makes of warnings and unknown fields: the first is an error. That skills have
    /// no place is none where the spec says nothing of skills.
    pub fn check_strictly(&self) -> Result<()> {
        if let Some(path) = self.ignored.first() {
            return Err(
                SpecFault::new(Reason::UnknownField, path, "nobody knows this field").into()
            );
        }
        let meant = |warning: &&Diagnostic| {
            warning.code != SKILLS_WITHOUT_PLACE || self.spec.speaks_of_skills()
        };
        self.warnings
            .iter()
            .find(meant)
            .map_or(Ok(()), |warning| Err(SpecFault::from(warning).into()))
    }

    /// The spec in normal form: without defaults, without aliases.
    pub fn spec(&self) -> Value {
        self.spec.to_json()
    }

    /// Its name; empty for none.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The Jinja template.
    pub fn chat_template(&self) -> &str {
        &self.chat_template
    }

    /// Whether the template was made from the spec, and not written by hand.
    pub fn is_generated(&self) -> bool {
        self.spec.chat_template.is_none()
    }

    /// What was noticed, for `findings`.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Members that nobody knows, by path.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Texts that end a reply.
    pub fn stop_words(&self) -> &[String] {
        &self.spec.stop_words
    }

    /// What is appended for a reply.
    pub fn generation_prompt(&self) -> String {
        self.spec.generation_prompt()
    }

    /// The last text of an assistant's turn that a model is trained to write.
    pub fn assistant_end(&self) -> &str {
        self.spec.assistant_end()
    }

    /// The variables that who renders has to fill.
    pub fn host_vars(&self) -> Vec<&'static str> {
        self.host().names()
    }

    /// For [`Templates::compile`].
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
            tools_yaml: (spec.policies.formatter == Formatter::Yaml).then(|| ToolsYaml {
                each: spec.single_tool_template.is_some(),
                pick_function: spec.policies.tool_processor == Some(Processor::PickFunction),
                empty: spec.policies.empty_list_as_tools,
            }),
            object_arguments: matches!(
                spec.policies.call_processor,
                Some(Processor::ObjectArguments | Processor::DsmlCall)
            ),
        }
    }

    /// What the spec says of the flags of `template_caps`, where it says anything.
    pub fn declared(&self) -> Vec<(&'static str, bool)> {
        if !self.is_generated() {
            return Vec::new();
        }
        let spec = &self.spec;
        let calls = spec.shows_calls();
        let system = spec.policies.use_system && spec.system_template.has("system_message");
        let mut declared = vec![("supports_system_role", system)];
        // Tools that are shown only beside a system message are there or not, as one looks at it.
        if spec.policies.system_without_message
            || spec.policies.system_with_tools
            || !spec.shows_tools()
        {
            declared.push(("supports_tools", spec.shows_tools()));
        }
        // Calls of which only the arguments or their values are shown, and an id, which may have
        // the name or not.
        let call = &spec.single_tool_call_template;
        let templates = [&spec.argument_template, &spec.text_argument_template];
        let keyed = call.has("tool_call")
            || templates.into_iter().flatten().all(|template| template.has("key"));
        let named = call.has("name")
            || (call.has("tool_call") && spec.policies.call_processor != Some(Processor::KimiCall));
        if named && keyed {
            declared.push(("supports_tool_calls", calls));
            declared.push(("supports_parallel_tool_calls", calls));
            // Of calls that are not shown there are no results.
            declared
                .push(("supports_tool_responses", calls && spec.observations_template.is_some()));
        }
        declared
    }

    /// What of these messages the template leaves out by its spec, for `diagnostics`.
    pub fn notes(&self, messages: &[Value]) -> Vec<Diagnostic> {
        let mut notes = Vec::new();
        if !self.is_generated() {
            return notes;
        }
        let spec = &self.spec;
        if let Some(first) = messages.first().filter(|message| message["role"] == "system") {
            let parts = first["content"].as_array().map_or(0, Vec::len);
            if !spec.policies.use_system {
                notes.push(Diagnostic::at(
                    "system_dropped",
                    "messages[0]",
                    "this template has no system turn",
                ));
            } else if spec.policies.system_placement != Placement::System
                && !messages.iter().any(|message| message["role"] == "user")
            {
                let message = "its text goes into a user's turn, and there is none";
                notes.push(Diagnostic::at("system_dropped", "messages[0]", message));
            } else if spec.policies.first_system_part && parts > 1 {
                let message =
                    "only the first part is rendered; system_policy.parts \"all\" renders all";
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

    /// Which bytes of a prompt, which `input` gave, the assistant is trained to write. `sent` are
    /// the messages before polyfills made those of the input. None for a handwritten template, and
    /// where polyfills joined assistants' turns.
    ///
    /// `INTERNAL_BRIDGE_ERROR` with reason `mask_mismatch` when the marked template renders
    /// something else.
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
        let asked = self.spec.turns.no_thinking_prompt.clone().filter(|_| !thinks);
        let asked = asked.unwrap_or_else(|| self.spec.generation_prompt());
        let ranges = mask::ranges(
            &self.spec,
            &prompt.text,
            &rendered.generation,
            last,
            &mask::calling(input.messages),
            &asked,
        );
        match ranges
            .filter(|ranges| rendered.text == prompt.text && ranges.len() == assistants.len())
        {
            Some(ranges) => {
                let all = assistants
                    .iter()
                    .zip(ranges)
                    .map(|(message, range)| MaskedTurn { message: *message, range });
                let wanted = turns.of(&assistants);
                let turns = all.filter(|turn| wanted.contains(&turn.message)).collect();
                Ok(Some(PromptMask { turns, omitted: Vec::new() }))
            }
            None => {
                let problem = "the marked template rendered another prompt";
                Err(Error::new(Code::InternalBridgeError, problem).with("reason", "mask_mismatch"))
            }
        }
    }

    /// What the spec says of images and videos.
    pub(crate) fn vision(&self) -> VisionDefaults {
        let spec = &self.spec;
        let text = |text: &String| Some(text).filter(|text| !text.is_empty()).cloned();
        VisionDefaults {
            // It was read before.
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

    /// Makes the spec known by its name until the process ends.
    ///
    /// `INVALID_REQUEST` with reason `name_taken`, or `missing_field` for a spec without a name.
    pub fn register(&self, replace: bool) -> Result<()> {
        if self.spec.name.is_empty() {
            return Err(SpecFault::new(
                Reason::MissingField,
                "components.name",
                "missing: a registered template needs one",
            )
            .into());
        }
        Ok(registry::register(&self.spec.name, self.spec(), replace)?)
    }
}

/// Whether what an assistant's turn begins with is what a reply is asked with, wherever its content
/// does not decide.
fn begins_with_prompt(spec: &ComponentSpec) -> bool {
    let prompt = spec.generation_prompt();
    let before = spec.assistant_template.text_before("content");
    let added = match &spec.policies.assistant_processor {
        Some(Processor::NewlineIfNonempty) => "\n",
        Some(Processor::PrependIfNonempty(text) | Processor::Prepend(text)) => text,
        _ => "",
    };
    format!("{before}{added}").starts_with(&prompt)
}
