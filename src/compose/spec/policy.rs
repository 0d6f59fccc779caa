//! The policies of a spec: options beyond the texts of its templates.

use serde_json::{Map, Value, json};

use super::calls::CallPolicy;
use super::formatter::Formatter;
use super::name_of;
use super::processor::{Processor, ProcessorTarget};
use super::reader::SpecReader;
use super::reasoning::ReasoningPolicy;
use super::slots::{SlotPattern, Slots};
use crate::compose::fault::Reason;
use crate::error::Result;

/// The place of the declared tools, or of the system text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Into the system turn.
    System,
    /// Into the first user's turn.
    FirstUser,
    /// Into the last user's turn.
    LastUser,
}

const PLACEMENTS: [(&str, Placement); 3] = [
    ("SYSTEM", Placement::System),
    ("FIRST_USER", Placement::FirstUser),
    ("LAST_USER", Placement::LastUser),
];

impl Placement {
    /// The user's message it means, as a member of the template variable `users`.
    pub(crate) fn user(self) -> &'static str {
        if self == Placement::LastUser { "last" } else { "first" }
    }
}

const SYSTEM_PLACEMENTS: [(&str, Placement); 3] = [
    ("OWN_TURN", Placement::System),
    ("FIRST_USER", Placement::FirstUser),
    ("LAST_USER", Placement::LastUser),
];
const EMPTY_MESSAGE: [(&str, bool); 2] = [("as_given", false), ("as_none", true)];
const EMPTY_LIST: [(&str, bool); 2] = [("as_none", false), ("as_tools", true)];

/// The format of the date in the knowledge-cutoff header.
pub(crate) const DATE_FORMAT: &str = "%d %b %Y";

/// All policies.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a published format")]
pub(crate) struct Policies {
    /// Before everything.
    pub(crate) prefix: String,
    /// System turns are written.
    pub(crate) use_system: bool,
    /// A system turn is written even without a system message.
    pub(crate) system_without_message: bool,
    /// Without a system message, a system turn is written if there are tools or skills.
    pub(crate) system_with_tools: bool,
    /// Only the first part of a system message with parts is used.
    pub(crate) first_system_part: bool,
    pub(crate) system_processor: Option<Processor>,
    /// A separate turn, or before the text of a user.
    pub(crate) system_placement: Placement,
    /// An empty system message counts as absent.
    pub(crate) empty_message_is_none: bool,
    /// The format of `{date}`.
    pub(crate) date_format: String,
    pub(crate) reasoning: ReasoningPolicy,
    pub(crate) assistant_processor: Option<Processor>,
    /// The content of an answer whose content is null.
    pub(crate) null_content: String,
    pub(crate) placement: Placement,
    pub(crate) formatter: Formatter,
    pub(crate) tool_processor: Option<Processor>,
    /// An empty list of tools is written like a list with tools.
    pub(crate) empty_list_as_tools: bool,
    pub(crate) call_processor: Option<Processor>,
    pub(crate) calls: CallPolicy,
    /// The template of a skill, if the spec has none.
    pub(crate) skill_row: Option<SlotPattern>,
    pub(crate) skill_joiner: String,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies {
            prefix: String::new(),
            use_system: true,
            system_without_message: true,
            system_with_tools: true,
            first_system_part: true,
            system_processor: None,
            system_placement: Placement::System,
            empty_message_is_none: false,
            date_format: DATE_FORMAT.to_owned(),
            reasoning: ReasoningPolicy::default(),
            assistant_processor: None,
            null_content: String::new(),
            placement: Placement::System,
            formatter: Formatter::default(),
            tool_processor: None,
            empty_list_as_tools: false,
            call_processor: None,
            calls: CallPolicy::default(),
            skill_row: None,
            skill_joiner: "\n".to_owned(),
        }
    }
}

impl Policies {
    /// Reads the members of a spec that end in `_policy`.
    pub(crate) fn read(spec: &mut SpecReader<'_>, ignored: &mut Vec<String>) -> Result<Policies> {
        let mut policies = Policies::default();
        let p = &mut policies;
        if let Some(mut global) = spec.object("global_policy")? {
            set(&mut p.prefix, global.string("prefix")?.map(str::to_owned));
            global.finish(ignored);
        }
        if let Some(mut system) = spec.object("system_policy")? {
            set(&mut p.use_system, system.boolean("use_system")?);
            set(
                &mut p.system_without_message,
                system.boolean("use_system_without_system_message")?,
            );
            set(&mut p.system_with_tools, system.boolean("use_system_with_tools_provided")?);
            set(
                &mut p.first_system_part,
                system.one_of("parts", &[("first", true), ("all", false)])?,
            );
            set(&mut p.system_placement, system.one_of("placement", &SYSTEM_PLACEMENTS)?);
            set(&mut p.empty_message_is_none, system.one_of("empty_message", &EMPTY_MESSAGE)?);
            set(&mut p.date_format, system.string("date_format")?.map(str::to_owned));
            p.system_processor =
                processor(&mut system, "content_processor", ProcessorTarget::System, ignored)?;
            system.finish(ignored);
        }
        if let Some(mut assistant) = spec.object("assistant_policy")? {
            p.reasoning = ReasoningPolicy::read(&mut assistant, ignored)?;
            p.assistant_processor = processor(
                &mut assistant,
                "content_processor",
                ProcessorTarget::Assistant,
                ignored,
            )?;
            set(&mut p.null_content, assistant.string("null_content")?.map(str::to_owned));
            assistant.finish(ignored);
        }
        if let Some(mut tool) = spec.object("tool_policy")? {
            set(&mut p.placement, tool.one_of("placement", &PLACEMENTS)?);
            set(&mut p.empty_list_as_tools, tool.one_of("empty_list", &EMPTY_LIST)?);
            let path = tool.path("formatter");
            let formatter =
                tool.get("formatter").map(|value| Formatter::read(value, path, ignored));
            set(&mut p.formatter, formatter.transpose()?);
            p.tool_processor =
                processor(&mut tool, "content_processor", ProcessorTarget::Tool, ignored)?;
            p.call_processor = processor(
                &mut tool,
                "tool_call_content_processor",
                ProcessorTarget::Call,
                ignored,
            )?;
            p.calls = CallPolicy::read(&mut tool, ignored)?;
            tool.finish(ignored);
        }
        if let Some(mut skill) = spec.object("skill_policy")? {
            p.skill_row = skill.pattern("single_skill_template", Slots::Any)?;
            set(&mut p.skill_joiner, skill.string("joiner")?.map(str::to_owned));
            if skill.get("content_processor").is_some() {
                return Err(skill
                    .fault(Reason::BadValue, "content_processor", "reserved; expected null")
                    .into());
            }
            skill.finish(ignored);
        }
        Ok(policies)
    }

    /// The Jinja condition that there are tools.
    pub(crate) fn has_tools(&self) -> &'static str {
        if self.empty_list_as_tools { "(tools is defined and tools is not none)" } else { "tools" }
    }

    /// The policies that differ from the defaults, by name.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let default = Policies::default();
        let processor = |processor: &Option<Processor>| {
            processor.as_ref().map_or(Value::Null, Processor::to_json)
        };
        let when = |differs: bool, value: Value| if differs { value } else { Value::Null };
        let system_placement = name_of(&SYSTEM_PLACEMENTS, self.system_placement);
        let all = json!({
            "global_policy": { "prefix": when(!self.prefix.is_empty(), json!(self.prefix)) },
            "system_policy": {
                "use_system": when(!self.use_system, json!(false)),
                "use_system_without_system_message": when(!self.system_without_message, json!(false)),
                "use_system_with_tools_provided": when(!self.system_with_tools, json!(false)),
                "parts": when(!self.first_system_part, json!("all")),
                "placement": when(self.system_placement != default.system_placement, json!(system_placement)),
                "empty_message": when(self.empty_message_is_none, json!("as_none")),
                "date_format": when(self.date_format != default.date_format, json!(self.date_format)),
                "content_processor": processor(&self.system_processor),
            },
            "assistant_policy": {
                "content_processor": processor(&self.assistant_processor),
                "null_content": when(!self.null_content.is_empty(), json!(self.null_content)),
            },
            "tool_policy": {
                "placement": when(self.placement != default.placement, json!(name_of(&PLACEMENTS, self.placement))),
                "empty_list": when(self.empty_list_as_tools, json!("as_tools")),
                "formatter": when(self.formatter != default.formatter, self.formatter.to_json()),
                "content_processor": processor(&self.tool_processor),
                "tool_call_content_processor": processor(&self.call_processor),
            },
            "skill_policy": { "joiner": when(self.skill_joiner != default.skill_joiner, json!(self.skill_joiner)) },
        });
        let Value::Object(mut policies) = all else { return Map::new() };
        if let Some(tool) = policies.get_mut("tool_policy").and_then(Value::as_object_mut) {
            tool.extend(self.calls.to_json());
        }
        if let Some(assistant) = policies.get_mut("assistant_policy").and_then(Value::as_object_mut)
        {
            assistant
                .extend(self.reasoning.members().map(|(name, value)| (name.to_owned(), value)));
        }
        for policy in policies.values_mut().filter_map(Value::as_object_mut) {
            policy.retain(|_, value| !value.is_null());
        }
        policies.retain(|_, policy| policy.as_object().is_some_and(|members| !members.is_empty()));
        policies
    }
}

/// Replaces a default by the value of a member, if there is one.
fn set<T>(value: &mut T, member: Option<T>) {
    if let Some(member) = member {
        *value = member;
    }
}

fn processor(
    policy: &mut SpecReader<'_>,
    key: &'static str,
    target: ProcessorTarget,
    ignored: &mut Vec<String>,
) -> Result<Option<Processor>> {
    let path = policy.path(key);
    policy.get(key).map(|value| Processor::read(value, path, target, ignored)).transpose()
}
