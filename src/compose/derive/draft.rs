//! Writes the derived forms as a ComponentSpec.

use serde_json::{Map, Value, json};

use super::argument_syntax::ArgumentSyntax;
use super::calls::CallsForm;
use super::chat::{ChatForm, TurnWrapper};
use super::media::MediaForm;
use super::reasoning::ReasoningForm;
use super::results::ResultsForm;
use super::roles::RolesForm;
use super::skills::SkillsForm;
use super::system::{SystemForm, TurnShape};
use super::tools::ToolsForm;
use super::wrapping::{escaped, with_slot};
use crate::compose::spec::processor::Processor;

/// The derived forms of all parts.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecDraft {
    pub(super) chat: ChatForm,
    pub(super) system: SystemForm,
    pub(super) tools: Option<ToolsForm>,
    pub(super) calls: Option<CallsForm>,
    pub(super) results: Option<ResultsForm>,
    /// The value of `assistant_policy.null_content`.
    pub(super) null_content: &'static str,
    pub(super) skills: Option<SkillsForm>,
    pub(super) media: MediaForm,
    pub(super) reasoning: ReasoningForm,
    pub(super) roles: RolesForm,
    pub(super) eos_token: String,
}

/// The members of an object. Only values that differ from the default are set.
#[derive(Default)]
struct SpecMembers(Map<String, Value>);

impl SpecMembers {
    fn text(&mut self, name: &str, text: &str, default: &str) {
        if text != default {
            self.0.insert(name.to_owned(), text.into());
        }
    }

    fn flag(&mut self, name: &str, value: bool, default: bool) {
        if value != default {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    fn value(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value);
        }
    }

    fn nested(&mut self, name: &str, members: SpecMembers) {
        if !members.0.is_empty() {
            self.0.insert(name.to_owned(), members.0.into());
        }
    }
}

impl SpecDraft {
    /// One draft for each interpretation that the renders allow, the most natural first.
    pub(super) fn variants(self) -> Vec<SpecDraft> {
        let mut variants = vec![self];
        let other = variants[0].calls.as_ref().and_then(|calls| calls.if_nonempty.clone());
        if other.is_some_and(|other| other != variants[0].chat.if_nonempty) {
            // An answer without text starts differently with calls than without them. A spec can
            // express only one of these.
            let mut variant = variants[0].clone();
            if let Some(calls) = &mut variant.calls {
                calls.if_nonempty = None;
            }
            variants.push(variant);
        }
        variants
    }

    pub(super) fn spec(&self) -> Value {
        let mut spec = SpecMembers::default();
        self.write_system(&mut spec);
        self.write_turns(&mut spec);
        self.write_call_and_result_templates(&mut spec);
        self.write_media(&mut spec);
        for (name, value) in self.reasoning.fields().into_iter().chain(self.roles.fields()) {
            spec.value(name, Some(value));
        }
        self.write_policies(&mut spec);
        spec.0.into()
    }

    fn write_turns(&self, spec: &mut SpecMembers) {
        let ChatForm { user, assistant, generation_prompt, last, .. } = &self.chat;
        spec.text("user_template", &with_slot(&user.before, "content", &user.after), "");
        let calls = self.calls.as_ref().filter(|calls| calls.templates().is_some());
        let own_turn = calls.and_then(|calls| calls.turn.as_deref());
        spec.text("assistant_template_with_calls", own_turn.unwrap_or_default(), "");
        let empty = calls.and_then(|calls| calls.empty.as_deref());
        spec.value("assistant_template_with_empty_calls", empty.map(Value::from));
        let slots = match calls {
            Some(_) if own_turn.is_some() => "{content}",
            Some(CallsForm { before_text: true, .. }) => "{tool_calls}{content}",
            Some(_) => "{content}{tool_calls}",
            None => "{content}",
        };
        let lacking = self.if_nonempty();
        let begin =
            |text: &TurnWrapper| escaped(text.before.strip_suffix(lacking).unwrap_or(&text.before));
        let template =
            |text: &TurnWrapper| format!("{}{slots}{}", begin(text), escaped(&text.after));
        spec.text("assistant_template", &template(assistant), "");
        if let Some(last) = last {
            spec.text("last_assistant_template", &template(last), "");
        }
        spec.flag("last_assistant_with_prompt", !self.chat.last_unasked || last.is_none(), true);
        let prompt_after_answer = self.chat.prompt_after_answer.as_deref();
        spec.value("prompt_after_answer", prompt_after_answer.map(|prompt| escaped(prompt).into()));
        spec.text("first_turn_without", &escaped(&self.chat.first_without), "");
        spec.text("ending", &escaped(&self.chat.ending), "");
        self.write_roles_of_prompts(spec);
        let default_prompt =
            if slots.starts_with("{content}") { begin(assistant) } else { String::new() };
        spec.text("generation_prompt", &escaped(generation_prompt), &default_prompt);
    }

    /// Writes `no_prompt_after` and `opener_after`.
    fn write_roles_of_prompts(&self, spec: &mut SpecMembers) {
        let mut no_prompt = self.chat.no_prompt_after.clone();
        let results = self.results.as_ref().filter(|_| !self.chat.generation_prompt.is_empty());
        if results.is_some_and(|results| results.unprompted) && !no_prompt.contains(&"tool") {
            no_prompt.push("tool");
        }
        spec.value("no_prompt_after", Some(json!(no_prompt)).filter(|roles| *roles != json!([])));
        let continued = self.results.as_ref().is_some_and(|results| results.continued)
            && self.chat.opener_after.is_empty();
        let after = if continued {
            json!(["start", "system", "user", "assistant"])
        } else {
            json!(self.chat.opener_after)
        };
        spec.value("opener_after", Some(after).filter(|roles| *roles != json!([])));
    }

    fn write_call_and_result_templates(&self, spec: &mut SpecMembers) {
        if let Some([each, all]) = self.calls.as_ref().and_then(CallsForm::templates) {
            spec.text("single_tool_call_template", &each, "{tool_call}");
            spec.text("tool_calls_template", &all, "{tool_calls}");
        }
        if let Some([each, all]) = self.results.as_ref().and_then(ResultsForm::templates) {
            spec.text("single_observation_template", &each, "{observation}");
            spec.text("observations_template", &all, "");
        }
        spec.value("stop_words", self.stop_word().map(|word| json!([word])));
    }

    fn write_media(&self, spec: &mut SpecMembers) {
        let MediaForm { start, end, image, video, parts } = &self.media;
        spec.value("content_parts", parts.map(Value::from));
        spec.text("vision_start", start, "");
        spec.text("vision_end", end, "");
        spec.value("image_token", image.as_deref().map(Value::from));
        spec.value("video_token", video.as_deref().map(Value::from));
    }

    /// The end of the text before an answer that an empty answer omits.
    fn if_nonempty(&self) -> &str {
        let calls = self.calls.as_ref().filter(|calls| calls.wrapping.is_some());
        calls.and_then(|calls| calls.if_nonempty.as_deref()).unwrap_or(&self.chat.if_nonempty)
    }

    fn write_system(&self, spec: &mut SpecMembers) {
        let SystemForm { turn, default, message, .. } = &self.system;
        let template = match (turn, default) {
            (Some(turn), _) => self.system.template(turn),
            (None, Some(default)) => self.system.template(default),
            (None, None) => return,
        };
        spec.text("system_template", &template, "{system_message}");
        if let (Some(_), Some(default)) = (turn, default) {
            spec.text("default_system_template", &self.system.template(default), &template);
        }
        spec.text("system_message", message, "");
        let has = |name: &str| {
            let with = |shape: &TurnShape| shape.slots.iter().any(|(_, slot)| *slot == name);
            turn.iter().chain(default).any(with)
        };
        if let Some(tools) = self.tools.as_ref().filter(|_| has("tools")) {
            spec.value("tools_template", tools.template.as_deref().map(Value::from));
        }
        if let Some(skills) = self.skills.as_ref().filter(|_| has("skills")) {
            spec.value("skills_template", Some(skills.template.as_str().into()));
            spec.text("single_skill_template", &skills.row, "- {name}: {description}");
        }
    }

    fn write_policies(&self, spec: &mut SpecMembers) {
        let mut policy = SpecMembers::default();
        policy.text("prefix", &self.system.prefix, "");
        spec.nested("global_policy", policy);
        spec.nested("system_policy", self.system_policy());
        spec.nested("assistant_policy", self.assistant_policy());
        let mut policy = SpecMembers::default();
        self.write_tool_policy(spec, &mut policy);
        self.write_call_policy(spec, &mut policy);
        self.write_result_policy(&mut policy);
        spec.nested("tool_policy", policy);
        let mut policy = SpecMembers::default();
        if let Some(skills) = &self.skills {
            policy.text("joiner", &skills.joiner, "\n");
        }
        spec.nested("skill_policy", policy);
    }

    fn system_policy(&self) -> SpecMembers {
        let system = &self.system;
        let if_tools = |kind: &str, text: &str| {
            let mut members = json!({ "kind": kind, "text": text });
            if system.separators.also_empty {
                members["empty"] = true.into();
            }
            Some(members)
        };
        let mut policy = SpecMembers::default();
        policy.flag("use_system", system.turn.is_some() || system.default.is_some(), true);
        policy.flag("use_system_without_system_message", system.always, true);
        policy.flag("use_system_with_tools_provided", system.with_tools, true);
        policy.text("placement", system.inside.unwrap_or("OWN_TURN"), "OWN_TURN");
        policy.text(
            "empty_message",
            if system.empty_is_none { "as_none" } else { "as_given" },
            "as_given",
        );
        policy.text("date_format", system.date_format.unwrap_or("%d %b %Y"), "%d %b %Y");
        policy.text("parts", if system.all_parts { "all" } else { "first" }, "first");
        policy.value(
            "content_processor",
            match &system.cutoff {
                Some(cutoff) => Some(json!({ "kind": "date_header", "cutoff": cutoff })),
                None if !system.separators.before_tools.is_empty() => {
                    if_tools("append_if_tools", &system.separators.before_tools)
                }
                None if !system.separators.after_tools.is_empty() => {
                    if_tools("prepend_if_tools", &system.separators.after_tools)
                }
                None if system.strips => kind("strip"),
                None => None,
            },
        );
        policy
    }

    fn assistant_policy(&self) -> SpecMembers {
        let mut policy = SpecMembers::default();
        policy.value(
            "content_processor",
            match self.if_nonempty() {
                "\n" => kind("newline_if_nonempty"),
                "" if self.chat.strips => kind("strip"),
                "" => None,
                text => Some(json!({ "kind": "prepend_if_nonempty", "text": text })),
            },
        );
        policy.text("null_content", self.null_content, "");
        for (name, value) in self.reasoning.policy() {
            policy.value(name, Some(value));
        }
        policy
    }

    fn write_tool_policy(&self, spec: &mut SpecMembers, policy: &mut SpecMembers) {
        let Some(tools) = &self.tools else { return };
        if let Some((placement, user)) = &tools.user {
            spec.text("user_template_with_tools", user, "");
            policy.text("placement", placement, "SYSTEM");
        }
        spec.value("single_tool_template", tools.single.as_deref().map(Value::from));
        policy.value("empty_list", tools.empty_list.then(|| "as_tools".into()));
        policy.value("formatter", tools.formatter.clone());
        policy.value("content_processor", kind("pick_function").filter(|_| tools.picks));
    }

    fn write_call_policy(&self, spec: &mut SpecMembers, policy: &mut SpecMembers) {
        let Some(calls) = &self.calls else { return };
        let Some(form) = &calls.form else { return };
        policy
            .value("tool_call_content_processor", form.processor.as_ref().map(Processor::to_json));
        let joiner = calls.wrapping.as_ref().map_or("", |wrapping| &wrapping.joiner);
        policy.text("call_joiner", joiner, "");
        policy.text("call_separator", &calls.separator, "");
        policy.text("text_arguments", if form.as_is { "as_is" } else { "json" }, "json");
        if let Some([members, policies]) = form.arguments.as_ref().map(ArgumentSyntax::members) {
            spec.0.extend(members);
            policy.0.extend(policies);
        }
    }

    fn write_result_policy(&self, policy: &mut SpecMembers) {
        let Some(results) = &self.results else { return };
        let joiner = results.wrapping.as_ref().map_or("", |wrapping| &wrapping.joiner);
        policy.text("observation_joiner", joiner, "");
        policy.value("observation_content_processor", results.processor.and_then(kind));
        policy.text("observations_end", &results.end, "");
        policy.text(
            "without_observations_template",
            if results.dropped { "drop" } else { "error" },
            "error",
        );
    }

    /// The stop word: the end of an answer's turn or, if turns have no end, the start of the next
    /// turn.
    fn stop_word(&self) -> Option<&str> {
        let ChatForm { user, assistant, .. } = &self.chat;
        if !self.eos_token.is_empty() && assistant.after.contains(&self.eos_token) {
            return Some(&self.eos_token);
        }
        let candidates = [assistant.after.trim(), &assistant.after, user.before.trim()];
        candidates.into_iter().find(|word| !word.is_empty())
    }
}

/// The JSON of a processor without options.
fn kind(kind: &str) -> Option<Value> {
    Some(json!({ "kind": kind }))
}
