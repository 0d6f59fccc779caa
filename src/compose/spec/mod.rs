//! The components of a chat template: the spec as types, and what its parts mean together.
//!
//! The fields are those of chat-bricks 0.1.5; docs/compose.md describes them.

pub(crate) mod calls;
pub(crate) mod formatter;
mod normal_form;
pub(crate) mod policy;
pub(crate) mod processor;
mod read;
pub(crate) mod reader;
pub(crate) mod reasoning;
pub(crate) mod slots;
pub(crate) mod turns;

use serde_json::Value;

use crate::diagnostic::Diagnostic;
use policy::{Placement, Policies};
use slots::{SlotPattern, literal};
use turns::TurnPolicy;

/// What to do with a message of an unknown role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownRoles {
    /// The render fails.
    Error,
    /// It is dropped.
    Drop,
    /// It is written as a user's turn.
    AsUser,
}

const UNKNOWN_ROLES: [(&str, UnknownRoles); 3] = [
    ("error", UnknownRoles::Error),
    ("drop", UnknownRoles::Drop),
    ("as_user", UnknownRoles::AsUser),
];

/// The components of a chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentSpec {
    pub(crate) name: String,
    pub(crate) system_template: SlotPattern,
    pub(crate) default_system_template: Option<SlotPattern>,
    pub(crate) system_message: String,
    pub(crate) user_template: SlotPattern,
    pub(crate) user_template_with_tools: Option<SlotPattern>,
    pub(crate) assistant_template: SlotPattern,
    /// The template of an answer with calls, if it differs.
    pub(crate) calls_turn: Option<SlotPattern>,
    /// The template of an answer with an empty list of calls, if it differs.
    pub(crate) empty_calls_turn: Option<SlotPattern>,
    pub(crate) assistant_end: Option<String>,
    /// As written, with doubled braces.
    pub(crate) generation_prompt: Option<String>,
    pub(crate) reasoning_template: Option<SlotPattern>,
    pub(crate) observations_template: Option<SlotPattern>,
    pub(crate) single_observation_template: SlotPattern,
    pub(crate) tool_calls_template: SlotPattern,
    pub(crate) single_tool_call_template: SlotPattern,
    /// None for arguments as JSON.
    pub(crate) argument_template: Option<SlotPattern>,
    /// The template of string arguments, if it differs.
    pub(crate) text_argument_template: Option<SlotPattern>,
    pub(crate) tools_template: Option<SlotPattern>,
    pub(crate) single_tool_template: Option<SlotPattern>,
    pub(crate) skills_template: Option<SlotPattern>,
    /// The template of the spec, or else of the policy.
    pub(crate) single_skill_template: SlotPattern,
    pub(crate) stop_words: Vec<String>,
    pub(crate) policies: Policies,
    pub(crate) vision_start: String,
    pub(crate) vision_end: String,
    pub(crate) image_token: Option<String>,
    pub(crate) video_token: Option<String>,
    pub(crate) vision_rule: Option<Value>,
    pub(crate) unknown_roles: UnknownRoles,
    pub(crate) chat_template: Option<String>,
    pub(crate) turns: TurnPolicy,
}

/// A spec, with the remarks on it.
#[derive(Debug)]
pub(crate) struct ReadSpec {
    pub(crate) spec: ComponentSpec,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Unknown members, by path.
    pub(crate) ignored: Vec<String>,
}

/// The system template of a spec without one.
const BARE_SYSTEM: &str = "{system_message}";
/// The warning that skills do not reach the prompt.
pub(super) const SKILLS_WITHOUT_PLACE: &str = "skills_without_place";
const SKILL_ROW: &str = "- {name}: {description}";

impl ComponentSpec {
    /// The template of the system turn in a conversation without a system message.
    pub(crate) fn default_system(&self) -> &SlotPattern {
        self.default_system_template.as_ref().unwrap_or(&self.system_template)
    }

    /// The system templates that are in use.
    fn systems(&self) -> impl Iterator<Item = &SlotPattern> {
        let default = self.policies.system_without_message || self.policies.system_with_tools;
        let both = [Some(&self.system_template), default.then(|| self.default_system())];
        both.into_iter().flatten().filter(|_| self.policies.use_system)
    }

    /// The template of a user's turn with tools, if it is in use.
    pub(crate) fn user_with_tools(&self) -> Option<&SlotPattern> {
        self.user_template_with_tools
            .as_ref()
            .filter(|_| self.policies.placement != Placement::System)
    }

    /// Whether calls reach the prompt.
    pub(crate) fn shows_calls(&self) -> bool {
        self.assistant_template.has("tool_calls") || self.calls_turn.is_some()
    }

    /// Whether declared tools reach the prompt.
    pub(crate) fn shows_tools(&self) -> bool {
        // A notice without a slot announces tools, but does not list them.
        let listed = self.tools_template.as_ref().is_none_or(|template| template.has("tools"));
        let in_system = listed && self.systems().any(|system| system.has("tools"));
        in_system || self.user_with_tools().is_some_and(|user| user.has("tools"))
    }

    /// Whether the spec mentions skills.
    pub(super) fn mentions_skills(&self) -> bool {
        let slot = self.system_template.has("skills") || self.default_system().has("skills");
        let row = self.single_skill_template.source() != SKILL_ROW;
        slot || row
            || self.skills_template.is_some()
            || self.policies.skill_joiner != Policies::default().skill_joiner
    }

    /// The generation prompt.
    pub(crate) fn generation_prompt(&self) -> String {
        match &self.generation_prompt {
            // `read` has checked it.
            Some(prompt) => literal(prompt, "").unwrap_or_default(),
            None => self.assistant_template.text_before("content"),
        }
    }

    /// The text that ends an assistant's turn and that a model is trained to write: the text after
    /// the last slot, up to the first stop word, or else without trailing whitespace.
    pub(crate) fn assistant_end(&self) -> &str {
        self.end_of(&self.assistant_template)
    }

    /// As `assistant_end`, for this template of an assistant's turn.
    pub(crate) fn end_of<'a>(&'a self, turn: &'a SlotPattern) -> &'a str {
        let after = turn.text_after();
        if let Some(end) = self.assistant_end.as_deref().filter(|end| after.starts_with(end)) {
            return end;
        }
        match self.stop_words.iter().find_map(|word| Some(after.find(word.as_str())? + word.len()))
        {
            Some(end) => &after[..end],
            None => after.trim_end(),
        }
    }

    /// Warns about messages, tools and skills that do not reach the prompt.
    fn review(&self, path: &str, warnings: &mut Vec<Diagnostic>) {
        let mut warn = |code, field: &str, message| {
            warnings.push(Diagnostic::at(code, format!("{path}.{field}"), message))
        };
        if self.chat_template.is_some() {
            return;
        }
        if !self.shows_tools() {
            warn(
                "tools_without_place",
                "tools_template",
                "declared tools do not reach the prompt: neither a used system template nor a user's turn has {tools}",
            );
        }
        let skills_place =
            self.skills_template.is_some() && self.systems().any(|system| system.has("skills"));
        if !skills_place {
            warn(SKILLS_WITHOUT_PLACE, "skills_template", "skills do not reach the prompt");
        }
        if !self.shows_calls() {
            warn(
                "calls_without_place",
                "assistant_template",
                "tool calls do not reach the prompt: no template has {tool_calls}",
            );
        }
        if self.observations_template.is_none() {
            warn(
                "observations_missing",
                "observations_template",
                "tool results cannot be rendered",
            );
        }
        if self.user_template_with_tools.is_some() && self.policies.placement == Placement::System {
            warn(
                "user_variant_unused",
                "user_template_with_tools",
                "not used, because tool_policy.placement is SYSTEM",
            );
        }
    }
}

/// The name of a value in a table of names.
fn name_of<T: PartialEq + Copy>(names: &[(&'static str, T)], value: T) -> Option<&'static str> {
    names.iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use crate::compose::Composed;

    #[test]
    fn strict_requires_a_place_for_skills_only_if_the_spec_mentions_them() {
        let strictly = |system: &str, row: Option<&str>| {
            let spec = json!({ "system_template": system, "user_template": "<u>{content}", "single_skill_template": row,
                "assistant_template": "<a>{content}{tool_calls}", "observations_template": "<o>{observations}" });
            let composed = Composed::of(&spec, "components").unwrap();
            assert_eq!(
                composed
                    .warnings()
                    .iter()
                    .filter(|warning| warning.code == super::SKILLS_WITHOUT_PLACE)
                    .count(),
                1
            );
            composed.check_strictly().err().map(|error| error.details().unwrap()["reason"].clone())
        };
        assert_eq!(strictly("{system_message}{tools}", None), None);
        assert_eq!(strictly("{system_message}", None).unwrap(), "tools_without_place");
        assert_eq!(
            strictly("{system_message}{tools}{skills}", None).unwrap(),
            super::SKILLS_WITHOUT_PLACE
        );
        assert_eq!(
            strictly("{system_message}{tools}", Some("{name}")).unwrap(),
            super::SKILLS_WITHOUT_PLACE
        );
    }
}
