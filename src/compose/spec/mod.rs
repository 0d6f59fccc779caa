//! A chat template's building blocks: what `components` says, read, checked, and written back in
//! normal form.
//!
//! The fields are those of chat-bricks 0.1.5; docs/compose.md has them with their meaning.

pub(crate) mod calls;
pub(crate) mod formatter;
pub(crate) mod policy;
pub(crate) mod processor;
pub(crate) mod reader;
pub(crate) mod reasoning;
pub(crate) mod slots;
pub(crate) mod turns;

use serde_json::{Map, Value, json};

use super::fault::Reason;
use crate::diagnostic::Diagnostic;
use crate::error::Result;
use crate::vision::VisionRule;
use formatter::Formatter;
use policy::{Placement, Policies};
use reader::SpecReader;
use slots::{Occurs, SlotPattern, Slots, escaped, literal};
use turns::TurnPolicy;

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
const OBSERVATIONS: Slots =
    Slots::Of(&[("observations", Occurs::AtMostOnce), ("observation", Occurs::AtMostOnce)]);

/// What happens to a message whose role has no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownRoles {
    /// The render fails.
    Error,
    /// Nothing is written.
    Drop,
    /// A user's turn is written.
    AsUser,
}

const UNKNOWN_ROLES: [(&str, UnknownRoles); 3] = [
    ("error", UnknownRoles::Error),
    ("drop", UnknownRoles::Drop),
    ("as_user", UnknownRoles::AsUser),
];

/// Building blocks of a chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentSpec {
    pub(crate) name: String,
    pub(crate) system_template: SlotPattern,
    pub(crate) default_system_template: Option<SlotPattern>,
    pub(crate) system_message: String,
    pub(crate) user_template: SlotPattern,
    pub(crate) user_template_with_tools: Option<SlotPattern>,
    pub(crate) assistant_template: SlotPattern,
    /// Of an answer with calls, where it differs.
    pub(crate) calls_turn: Option<SlotPattern>,
    /// Of an answer whose list of calls is empty, where it is not that of one without a list.
    pub(crate) empty_calls_turn: Option<SlotPattern>,
    pub(crate) assistant_end: Option<String>,
    /// As it is written, braces doubled.
    pub(crate) generation_prompt: Option<String>,
    pub(crate) reasoning_template: Option<SlotPattern>,
    pub(crate) observations_template: Option<SlotPattern>,
    pub(crate) single_observation_template: SlotPattern,
    pub(crate) tool_calls_template: SlotPattern,
    pub(crate) single_tool_call_template: SlotPattern,
    /// None: arguments are JSON.
    pub(crate) argument_template: Option<SlotPattern>,
    /// Of those that are strings, where it differs.
    pub(crate) text_argument_template: Option<SlotPattern>,
    pub(crate) tools_template: Option<SlotPattern>,
    pub(crate) single_tool_template: Option<SlotPattern>,
    pub(crate) skills_template: Option<SlotPattern>,
    /// The spec's, else the policy's.
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

/// A spec with what was noticed while it was read.
#[derive(Debug)]
pub(crate) struct ReadSpec {
    pub(crate) spec: ComponentSpec,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Members that nobody knows, by path.
    pub(crate) ignored: Vec<String>,
}

/// Text that templates without a `{system_message}` of their own stand for.
const BARE_SYSTEM: &str = "{system_message}";
/// The warning that skills do not reach the prompt.
pub(super) const SKILLS_WITHOUT_PLACE: &str = "skills_without_place";
const SKILL_ROW: &str = "- {name}: {description}";

fn required(
    reader: &SpecReader<'_>,
    key: &str,
    pattern: Option<SlotPattern>,
) -> Result<SlotPattern> {
    Ok(pattern.ok_or_else(|| reader.fault(Reason::MissingField, key, "missing"))?)
}

fn or_bare(
    pattern: Option<SlotPattern>,
    source: &str,
    key: &str,
    slots: Slots,
) -> Result<SlotPattern> {
    match pattern {
        Some(pattern) => Ok(pattern),
        None => Ok(SlotPattern::parse(source, key, slots)?),
    }
}

const SINGLE_OBSERVATION: Slots = Slots::Of(&[
    ("observation", Occurs::Somewhere),
    ("name", Occurs::Freely),
    ("tool_call_id", Occurs::Freely),
]);
const TOOL_CALLS: Slots = Slots::Of(&[("tool_calls", Occurs::Somewhere)]);
const TOOL_CALL: Slots = Slots::Of(&[
    ("tool_call", Occurs::Freely),
    ("name", Occurs::Freely),
    ("arguments", Occurs::Freely),
    ("id", Occurs::Freely),
]);
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

impl ComponentSpec {
    /// Reads a spec; `path` is where it stands in the request.
    ///
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    pub(crate) fn read(value: &Value, path: &str) -> Result<ReadSpec> {
        let mut ignored = Vec::new();
        let mut reader = SpecReader::new(path, value)?;
        let r = &mut reader;
        r.integer("version", 1..=1)?;
        let text = |reader: &mut SpecReader<'_>, key| -> Result<String> {
            Ok(reader.string(key)?.unwrap_or_default().to_owned())
        };
        let name = text(r, "name")?;
        let system_template =
            or_bare(r.pattern("system_template", SYSTEM)?, BARE_SYSTEM, "system_template", SYSTEM)?;
        let user = r.pattern("user_template", USER)?;
        let assistant = r.pattern("assistant_template", ASSISTANT)?;
        let user_template = required(r, "user_template", user)?;
        let assistant_template = required(r, "assistant_template", assistant)?;
        let observations = r.pattern("observations_template", OBSERVATIONS)?;
        // chat-bricks' older name.
        let older = r.pattern("tool_template", OBSERVATIONS)?;
        let observations_template = observations.or(older);
        if let Some(pattern) = &observations_template
            && pattern.has("observations") == pattern.has("observation")
        {
            let problem =
                "expected one slot, {observations}: without it tool results would be lost";
            return Err(r.fault(Reason::BadSlot, "observations_template", problem).into());
        }
        let single_call = r.pattern("single_tool_call_template", TOOL_CALL)?;
        let older = r.pattern("tool_call_template", TOOL_CALL)?;
        let single_call = single_call.or(older);
        if let Some(pattern) =
            single_call.as_ref().filter(|call| !call.has("tool_call") && !call.has("arguments"))
        {
            let problem = format!(
                "{:?} has no slot {{tool_call}} or {{arguments}}: calls would be lost",
                pattern.source()
            );
            return Err(r.fault(Reason::BadSlot, "single_tool_call_template", problem).into());
        }
        let argument_template = r.pattern("argument_template", ARGUMENT)?;
        let text_argument_template = r.pattern("text_argument_template", ARGUMENT)?;
        if text_argument_template.is_some() && argument_template.is_none() {
            return Err(r
                .fault(
                    Reason::MissingField,
                    "argument_template",
                    "missing: text_argument_template needs it",
                )
                .into());
        }
        let single_observation = r.pattern("single_observation_template", SINGLE_OBSERVATION)?;
        let tool_calls = r.pattern("tool_calls_template", TOOL_CALLS)?;
        let assistant_end = r.string("assistant_end")?.map(str::to_owned);
        if let Some(end) =
            assistant_end.as_deref().filter(|end| !assistant_template.text_after().starts_with(end))
        {
            let problem = format!(
                "{end:?} is not the beginning of the text behind the last slot of assistant_template"
            );
            return Err(r.fault(Reason::BadValue, "assistant_end", problem).into());
        }
        let generation_prompt = r.string("generation_prompt")?.map(str::to_owned);
        if let Some(prompt) = &generation_prompt {
            literal(prompt, &r.path("generation_prompt"))?;
        }
        let mut warnings = Vec::new();
        let stop_words = stop_words(r, &mut warnings)?;
        let skill_row = r.pattern("single_skill_template", Slots::Any)?;
        let vision_rule = r.get("vision_rule");
        if let Some(rule) = vision_rule {
            let (_, unknown) = VisionRule::read(&r.path("vision_rule"), rule)?;
            ignored.extend(unknown);
        }

        let policies = Policies::read(r, &mut ignored)?;
        let single_tool = r.pattern("single_tool_template", TOOL)?;
        if let Some(single) = &single_tool {
            let members =
                ["name", "description", "parameters"].into_iter().any(|slot| single.has(slot));
            let problem = match policies.formatter {
                Formatter::Yaml | Formatter::Xml(_) if members => {
                    Some("with this formatter it has {tool} alone")
                }
                _ if !single.has("tool") && !single.has("name") => {
                    Some("expected {tool} or {name}: without it tools would be lost")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(r.fault(Reason::BadSlot, "single_tool_template", problem).into());
            }
        }
        let spec = ComponentSpec {
            name,
            system_template,
            default_system_template: r.pattern("default_system_template", SYSTEM)?,
            system_message: text(r, "system_message")?,
            user_template,
            user_template_with_tools: r.pattern("user_template_with_tools", USER_WITH_TOOLS)?,
            assistant_template,
            calls_turn: r.pattern("assistant_template_with_calls", CALLS_TURN)?,
            empty_calls_turn: r.pattern("assistant_template_with_empty_calls", EMPTY_CALLS_TURN)?,
            assistant_end,
            generation_prompt,
            reasoning_template: r.pattern("reasoning_template", REASONING)?,
            observations_template,
            single_observation_template: or_bare(
                single_observation,
                "{observation}",
                "",
                SINGLE_OBSERVATION,
            )?,
            tool_calls_template: or_bare(tool_calls, "{tool_calls}", "", TOOL_CALLS)?,
            single_tool_call_template: or_bare(single_call, "{tool_call}", "", TOOL_CALL)?,
            argument_template,
            text_argument_template,
            tools_template: r.pattern("tools_template", TOOLS)?,
            single_tool_template: single_tool,
            skills_template: r.pattern("skills_template", SKILLS)?,
            single_skill_template: or_bare(
                skill_row.or(policies.skill_row.clone()),
                SKILL_ROW,
                "",
                Slots::Any,
            )?,
            stop_words,
            policies,
            vision_start: text(r, "vision_start")?,
            vision_end: text(r, "vision_end")?,
            image_token: r.string("image_token")?.map(str::to_owned),
            video_token: r.string("video_token")?.map(str::to_owned),
            vision_rule: vision_rule.cloned(),
            unknown_roles: r
                .one_of("unknown_roles", &UNKNOWN_ROLES)?
                .unwrap_or(UnknownRoles::Error),
            chat_template: r.string("chat_template")?.map(str::to_owned),
            turns: TurnPolicy::read(r)?,
        };
        reader.finish(&mut ignored);
        spec.review(path, &mut warnings);
        Ok(ReadSpec { spec, warnings, ignored })
    }

    /// The template that the system turn of a conversation without a system message is made of.
    pub(crate) fn default_system(&self) -> &SlotPattern {
        self.default_system_template.as_ref().unwrap_or(&self.system_template)
    }

    /// The system templates that a conversation can be rendered with.
    fn systems(&self) -> impl Iterator<Item = &SlotPattern> {
        let default = self.policies.system_without_message || self.policies.system_with_tools;
        let both = [Some(&self.system_template), default.then(|| self.default_system())];
        both.into_iter().flatten().filter(|_| self.policies.use_system)
    }

    /// The user's turn with tools, where there is one and it is used.
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
        // A notice without a slot tells the model of tools, not which.
        let listed = self.tools_template.as_ref().is_none_or(|template| template.has("tools"));
        let in_system = listed && self.systems().any(|system| system.has("tools"));
        in_system || self.user_with_tools().is_some_and(|user| user.has("tools"))
    }

    /// Whether anything in the spec is about skills.
    pub(super) fn speaks_of_skills(&self) -> bool {
        let slot = self.system_template.has("skills") || self.default_system().has("skills");
        let row = self.single_skill_template.source() != SKILL_ROW;
        slot || row
            || self.skills_template.is_some()
            || self.policies.skill_joiner != Policies::default().skill_joiner
    }

    /// The generation prompt.
    pub(crate) fn generation_prompt(&self) -> String {
        match &self.generation_prompt {
            // It was read as a literal before.
            Some(prompt) => literal(prompt, "").unwrap_or_default(),
            None => self.assistant_template.text_before("content"),
        }
    }

    /// The last text of an assistant's turn that it is trained to write: up to the first stop word
    /// behind the last slot, or else all of that text but the white space at its end.
    pub(crate) fn assistant_end(&self) -> &str {
        self.end_of(&self.assistant_template)
    }

    /// The same of an assistant's turn in this form.
    pub(crate) fn end_of<'a>(&'a self, turn: &'a SlotPattern) -> &'a str {
        let behind = turn.text_after();
        if let Some(end) = self.assistant_end.as_deref().filter(|end| behind.starts_with(end)) {
            return end;
        }
        match self.stop_words.iter().find_map(|word| Some(behind.find(word.as_str())? + word.len()))
        {
            Some(end) => &behind[..end],
            None => behind.trim_end(),
        }
    }

    fn review(&self, path: &str, warnings: &mut Vec<Diagnostic>) {
        let mut warn = |code, field: &str, message| {
            warnings.push(Diagnostic::at(code, &format!("{path}.{field}"), message))
        };
        if self.chat_template.is_some() {
            return;
        }
        if !self.shows_tools() {
            warn(
                "tools_without_place",
                "tools_template",
                "declared tools do not reach the prompt: no {tools} in a system template that is used, nor in a user's turn",
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
                "tool calls do not reach the prompt: no {tool_calls}",
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
                "not used, since tool_policy.placement is SYSTEM",
            );
        }
    }

    /// The spec without its defaults; reading it gives the same spec.
    pub(crate) fn to_json(&self) -> Value {
        let mut members = Map::new();
        let mut put = |name: &str, unless: bool, value: Value| {
            if !unless {
                members.insert(name.to_owned(), value);
            }
        };
        let pattern = |pattern: &SlotPattern| json!(pattern.source());
        let optional = |text: &Option<SlotPattern>| json!(text.as_ref().map(SlotPattern::source));
        put("name", self.name.is_empty(), json!(self.name));
        put(
            "system_template",
            self.system_template.source() == BARE_SYSTEM,
            pattern(&self.system_template),
        );
        put(
            "default_system_template",
            self.default_system_template.is_none(),
            optional(&self.default_system_template),
        );
        put("system_message", self.system_message.is_empty(), json!(self.system_message));
        put("user_template", false, pattern(&self.user_template));
        put(
            "user_template_with_tools",
            self.user_template_with_tools.is_none(),
            optional(&self.user_template_with_tools),
        );
        put("assistant_template", false, pattern(&self.assistant_template));
        put("assistant_template_with_calls", self.calls_turn.is_none(), optional(&self.calls_turn));
        let empty = &self.empty_calls_turn;
        put("assistant_template_with_empty_calls", empty.is_none(), optional(empty));
        put("assistant_end", self.assistant_end.is_none(), json!(self.assistant_end));
        let usual_prompt = Some(escaped(&self.assistant_template.text_before("content")));
        put(
            "generation_prompt",
            self.generation_prompt.is_none() || self.generation_prompt == usual_prompt,
            json!(self.generation_prompt),
        );
        put(
            "reasoning_template",
            self.reasoning_template.is_none(),
            optional(&self.reasoning_template),
        );
        put(
            "observations_template",
            self.observations_template.is_none(),
            optional(&self.observations_template),
        );
        let single = &self.single_observation_template;
        put("single_observation_template", single.source() == "{observation}", pattern(single));
        put(
            "tool_calls_template",
            self.tool_calls_template.source() == "{tool_calls}",
            pattern(&self.tool_calls_template),
        );
        let single = &self.single_tool_call_template;
        put("single_tool_call_template", single.source() == "{tool_call}", pattern(single));
        put(
            "argument_template",
            self.argument_template.is_none(),
            optional(&self.argument_template),
        );
        put(
            "text_argument_template",
            self.text_argument_template.is_none(),
            optional(&self.text_argument_template),
        );
        put("tools_template", self.tools_template.is_none(), optional(&self.tools_template));
        put(
            "single_tool_template",
            self.single_tool_template.is_none(),
            optional(&self.single_tool_template),
        );
        put("skills_template", self.skills_template.is_none(), optional(&self.skills_template));
        put(
            "single_skill_template",
            self.single_skill_template.source() == SKILL_ROW,
            pattern(&self.single_skill_template),
        );
        put("stop_words", self.stop_words.is_empty(), json!(self.stop_words));
        for (name, policy) in self.policies.to_json() {
            put(&name, false, policy);
        }
        put("vision_start", self.vision_start.is_empty(), json!(self.vision_start));
        put("vision_end", self.vision_end.is_empty(), json!(self.vision_end));
        put("image_token", self.image_token.is_none(), json!(self.image_token));
        put("video_token", self.video_token.is_none(), json!(self.video_token));
        put("vision_rule", self.vision_rule.is_none(), json!(self.vision_rule));
        put(
            "unknown_roles",
            self.unknown_roles == UnknownRoles::Error,
            json!(name_of(&UNKNOWN_ROLES, self.unknown_roles)),
        );
        for (name, value) in self.turns.members() {
            put(name, value.is_null(), value);
        }
        put("chat_template", self.chat_template.is_none(), json!(self.chat_template));
        Value::Object(members)
    }
}

fn name_of<T: PartialEq + Copy>(names: &[(&'static str, T)], value: T) -> Option<&'static str> {
    names.iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

/// A string is a list of one.
fn stop_words(reader: &mut SpecReader<'_>, warnings: &mut Vec<Diagnostic>) -> Result<Vec<String>> {
    let path = reader.path("stop_words");
    let words: Vec<&str> = match reader.get("stop_words") {
        None => Vec::new(),
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(words)) if words.iter().all(Value::is_string) => {
            words.iter().filter_map(Value::as_str).collect()
        }
        Some(_) => {
            return Err(reader
                .fault(Reason::BadValue, "stop_words", "expected a string or a list of strings")
                .into());
        }
    };
    if words.contains(&"") {
        warnings.push(Diagnostic::at("empty_stop_word", &path, "an empty stop word was left out"));
    }
    Ok(words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use crate::compose::Composed;

    #[test]
    fn strict_asks_for_a_place_of_skills_where_the_spec_has_some() {
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
