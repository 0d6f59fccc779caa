//! The components of a chat template: the spec as types, and rules that concern several members.
//!
//! The fields are those of chat-bricks 0.1.5. docs/compose.md describes them.

pub(crate) mod formatter;
mod members;
pub(crate) mod policy;
pub(crate) mod processor;
pub(crate) mod reader;
pub(crate) mod reasoning;
pub(crate) mod slots;

use serde_json::{Map, Value, json};

use crate::compose::fault::Reason;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use formatter::Formatter;
use members::{
    CheckedVisionRule, Flattened, Literal, Members, Nested, Observations, OneOf, OptionalText,
    Pattern, PlainText, Required, SingleToolCall, StopWords, members,
};
use policy::{
    AssistantPolicy, GlobalPolicy, Placement, SKILL_JOINER, SkillPolicy, SystemPolicy,
    ToolTurnPolicy, TurnPolicy,
};
use reader::SpecReader;
use slots::{Occurs, SlotPattern, Slots};

named_enum! {
    /// How to treat a message with an unknown role.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum UnknownRoles {
        /// The render fails.
        Error = "error",
        /// The message is dropped.
        Drop = "drop",
        /// The message is written as a user's turn.
        AsUser = "as_user",
    }
}

const SYSTEM: Slots = Slots::Of(&[
    ("system_message", Occurs::Freely),
    ("tools", Occurs::Freely),
    ("skills", Occurs::Freely),
    ("date", Occurs::Freely),
]);
const USER: Slots = Slots::Of(&[("content", Occurs::Somewhere)]);
const USER_WITH_TOOLS: Slots =
    Slots::Of(&[("content", Occurs::Somewhere), ("tools", Occurs::Freely)]);
const ASSISTANT: Slots =
    Slots::Of(&[("content", Occurs::Once), ("tool_calls", Occurs::AtMostOnce)]);
const SINGLE_OBSERVATION: Slots = Slots::Of(&[
    ("observation", Occurs::Somewhere),
    ("name", Occurs::Freely),
    ("tool_call_id", Occurs::Freely),
]);
const TOOL_CALLS: Slots = Slots::Of(&[("tool_calls", Occurs::Somewhere)]);
const CALLS_TURN: Slots =
    Slots::Of(&[("content", Occurs::AtMostOnce), ("tool_calls", Occurs::Once)]);
const EMPTY_CALLS_TURN: Slots = Slots::Of(&[("content", Occurs::AtMostOnce)]);
const ARGUMENT: Slots = Slots::Of(&[("key", Occurs::Freely), ("value", Occurs::Somewhere)]);
const TOOLS: Slots = Slots::Of(&[("tools", Occurs::Freely)]);
const TOOL: Slots = Slots::Of(&[
    ("tool", Occurs::Freely),
    ("name", Occurs::Freely),
    ("description", Occurs::Freely),
    ("parameters", Occurs::Freely),
]);
const SKILLS: Slots = Slots::Of(&[("skills", Occurs::Somewhere)]);
const REASONING: Slots = Slots::Of(&[("reasoning", Occurs::Once)]);

members! {
    /// The components of a chat template.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ComponentSpec {
        "name" => name: String = PlainText(""),
        "system_template" => system_template: SlotPattern = Pattern(SYSTEM, "{system_message}"),
        "default_system_template" => default_system_template: Option<SlotPattern> = SYSTEM,
        "system_message" => system_message: String = PlainText(""),
        "user_template" => user_template: SlotPattern = Required(USER),
        "user_template_with_tools" => user_template_with_tools: Option<SlotPattern> =
            USER_WITH_TOOLS,
        "assistant_template" => assistant_template: SlotPattern = Required(ASSISTANT),
        /// The template of an answer with calls, if it differs.
        "assistant_template_with_calls" => calls_turn: Option<SlotPattern> = CALLS_TURN,
        /// The template of an answer with an empty list of calls, if it differs.
        "assistant_template_with_empty_calls" => empty_calls_turn: Option<SlotPattern> =
            EMPTY_CALLS_TURN,
        "assistant_end" => assistant_end: Option<String> = OptionalText,
        /// None means the text before the content of `assistant_template`.
        "generation_prompt" => generation_prompt: Option<String> = Literal,
        "reasoning_template" => reasoning_template: Option<SlotPattern> = REASONING,
        "observations_template" => observations_template: Option<SlotPattern> = Observations,
        "single_observation_template" => single_observation_template: SlotPattern =
            Pattern(SINGLE_OBSERVATION, "{observation}"),
        "tool_calls_template" => tool_calls_template: SlotPattern =
            Pattern(TOOL_CALLS, "{tool_calls}"),
        "single_tool_call_template" => single_tool_call_template: SlotPattern = SingleToolCall,
        /// None writes arguments as JSON.
        "argument_template" => argument_template: Option<SlotPattern> = ARGUMENT,
        /// The template of string arguments, if it differs.
        "text_argument_template" => text_argument_template: Option<SlotPattern> = ARGUMENT,
        "tools_template" => tools_template: Option<SlotPattern> = TOOLS,
        "single_tool_template" => single_tool_template: Option<SlotPattern> = TOOL,
        "skills_template" => skills_template: Option<SlotPattern> = SKILLS,
        /// The template from the spec, or else from the policy.
        "single_skill_template" => single_skill_template: SlotPattern =
            Pattern(Slots::Any, SKILL_ROW),
        "stop_words" => stop_words: Vec<String> = StopWords,
        "global_policy" => global_policy: GlobalPolicy = Nested,
        "system_policy" => system_policy: SystemPolicy = Nested,
        "assistant_policy" => assistant_policy: AssistantPolicy = Nested,
        "tool_policy" => tool_policy: ToolTurnPolicy = Nested,
        "skill_policy" => skill_policy: SkillPolicy = Nested,
        "vision_start" => vision_start: String = PlainText(""),
        "vision_end" => vision_end: String = PlainText(""),
        "image_token" => image_token: Option<String> = OptionalText,
        "video_token" => video_token: Option<String> = OptionalText,
        "vision_rule" => vision_rule: Option<Value> = CheckedVisionRule,
        "unknown_roles" => unknown_roles: UnknownRoles = OneOf(UnknownRoles::NAMES),
        "" => turns: TurnPolicy = Flattened,
        "chat_template" => chat_template: Option<String> = OptionalText,
    }
}

/// A spec, with the warnings about it.
#[derive(Debug)]
pub(crate) struct ReadSpec {
    pub(crate) spec: ComponentSpec,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Unknown members, by path.
    pub(crate) ignored: Vec<String>,
}

/// The warning that skills do not reach the prompt.
pub(super) const SKILLS_WITHOUT_PLACE: &str = "skills_without_place";
const SKILL_ROW: &str = "- {name}: {description}";

impl ComponentSpec {
    /// Reads the spec at the JSON path `path` of the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub(crate) fn read(value: &Value, path: &str) -> Result<ReadSpec> {
        let mut warnings = Vec::new();
        let mut reader = SpecReader::new(path, value)?;
        reader.integer("version", 1..=1)?;
        let mut spec = <ComponentSpec as Members>::read(&mut reader)?;
        spec.check(&reader)?;
        let usual_prompt = spec.assistant_template.text_before("content");
        spec.generation_prompt = spec.generation_prompt.filter(|prompt| *prompt != usual_prompt);
        if let Some(row) = spec.skill_policy.row.take()
            && reader.get("single_skill_template").is_none()
        {
            spec.single_skill_template = row;
        }
        let words = reader.get("stop_words");
        if words.is_some_and(|words| {
            *words == "" || words.as_array().is_some_and(|words| words.contains(&json!("")))
        }) {
            let path = reader.path("stop_words");
            warnings.push(Diagnostic::at(
                "empty_stop_word",
                path,
                "an empty stop word was dropped",
            ));
        }
        spec.review(path, &mut warnings);
        Ok(ReadSpec { spec, warnings, ignored: reader.finish() })
    }

    /// Checks members that depend on each other.
    fn check(&self, reader: &SpecReader<'_>) -> Result<()> {
        let fault =
            |reason, key: &str, problem: String| Err(reader.fault(reason, key, problem).into());
        if self.text_argument_template.is_some() && self.argument_template.is_none() {
            let problem = "missing; text_argument_template requires it".to_owned();
            return fault(Reason::MissingField, "argument_template", problem);
        }
        let after = self.assistant_template.text_after();
        if let Some(end) = self.assistant_end.as_deref().filter(|end| !after.starts_with(end)) {
            let problem = format!(
                "{end:?} does not begin the text after the last slot of assistant_template"
            );
            return fault(Reason::BadValue, "assistant_end", problem);
        }
        let Some(single) = &self.single_tool_template else { return Ok(()) };
        let has_members =
            ["name", "description", "parameters"].into_iter().any(|slot| single.has(slot));
        let problem = match self.tool_policy.formatter {
            Formatter::Yaml | Formatter::Xml(_) if has_members => {
                "with this formatter the only slot is {tool}"
            }
            _ if !single.has("tool") && !single.has("name") => {
                "expected {tool} or {name}; without them tools would be lost"
            }
            _ => return Ok(()),
        };
        fault(Reason::BadSlot, "single_tool_template", problem.to_owned())
    }

    /// The spec in normal form, without defaults and aliases. Reading it again gives an equal spec.
    pub(crate) fn to_json(&self) -> Value {
        let mut members = Map::new();
        self.write(&mut members);
        members.into()
    }

    /// The template of the system turn in a conversation without a system message.
    pub(crate) fn default_system(&self) -> &SlotPattern {
        self.default_system_template.as_ref().unwrap_or(&self.system_template)
    }

    /// The system templates that are in use.
    fn systems(&self) -> impl Iterator<Item = &SlotPattern> {
        let default = self.system_policy.without_message || self.system_policy.with_tools;
        let both = [Some(&self.system_template), default.then(|| self.default_system())];
        both.into_iter().flatten().filter(|_| self.system_policy.use_system)
    }

    /// The template of a user's turn with tools, if it is in use.
    pub(crate) fn user_with_tools(&self) -> Option<&SlotPattern> {
        self.user_template_with_tools
            .as_ref()
            .filter(|_| self.tool_policy.placement != Placement::System)
    }

    /// Whether calls reach the prompt.
    pub(crate) fn shows_calls(&self) -> bool {
        self.assistant_template.has("tool_calls") || self.calls_turn.is_some()
    }

    /// Whether declared tools reach the prompt.
    pub(crate) fn shows_tools(&self) -> bool {
        // A notice without a slot announces tools but does not list them.
        let listed = self.tools_template.as_ref().is_none_or(|template| template.has("tools"));
        let in_system = listed && self.systems().any(|system| system.has("tools"));
        in_system || self.user_with_tools().is_some_and(|user| user.has("tools"))
    }

    pub(super) fn mentions_skills(&self) -> bool {
        let slot = self.system_template.has("skills") || self.default_system().has("skills");
        let row = self.single_skill_template.source() != SKILL_ROW;
        slot || row || self.skills_template.is_some() || self.skill_policy.joiner != SKILL_JOINER
    }

    pub(crate) fn generation_prompt(&self) -> String {
        let usual = || self.assistant_template.text_before("content");
        self.generation_prompt.clone().unwrap_or_else(usual)
    }

    /// The text that ends an assistant's turn and that a model is trained to write. It is the text
    /// after the last slot, up to the first stop word, or without trailing whitespace if it
    /// contains no stop word.
    pub(crate) fn assistant_end(&self) -> &str {
        self.end_of(&self.assistant_template)
    }

    /// Like `assistant_end`, for this template of an assistant's turn.
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
                "declared tools do not reach the prompt: neither a used system template nor a \
                 user's turn has {tools}",
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
        if self.user_template_with_tools.is_some()
            && self.tool_policy.placement == Placement::System
        {
            warn(
                "user_variant_unused",
                "user_template_with_tools",
                "not used, because tool_policy.placement is SYSTEM",
            );
        }
    }
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
            let composed = Composed::parse(&spec, "components").unwrap();
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
