//! The policies of a spec: options beyond the texts of templates.

use serde_json::Value;

use super::calls::CallPolicy;
use super::formatter::{Formatter, FormatterCodec};
use super::members::{Codec, Flag, Flattened, OneOf, PlainText, members};
use super::processor::{Processor, ProcessorTarget};
use super::reader::SpecReader;
use super::reasoning::ReasoningPolicy;
use super::slots::{SlotPattern, Slots};
use crate::compose::fault::Reason;
use crate::error::Result;

named_enum! {
    /// Where the declared tools or the system text are written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Placement {
        /// Inside the system turn.
        System = "SYSTEM",
        /// Inside the first user's turn.
        FirstUser = "FIRST_USER",
        /// Inside the last user's turn.
        LastUser = "LAST_USER",
    }
}

impl Placement {
    /// The member of the template variable `users` that selects the user's message.
    pub(crate) fn user(self) -> &'static str {
        if self == Placement::LastUser { "last" } else { "first" }
    }
}

const SYSTEM_PLACEMENTS: [(&str, Placement); 3] = [
    ("OWN_TURN", Placement::System),
    ("FIRST_USER", Placement::FirstUser),
    ("LAST_USER", Placement::LastUser),
];

/// The format of the date in the knowledge-cutoff header.
pub(crate) const DATE_FORMAT: &str = "%d %b %Y";
/// The default of `skill_policy.joiner`.
pub(super) const SKILL_JOINER: &str = "\n";

members! {
    /// The member `global_policy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct GlobalPolicy {
        /// The text at the start of every prompt.
        "prefix" => prefix: String = PlainText(""),
    }
}

members! {
    /// The member `system_policy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SystemPolicy {
        /// Whether system turns are written.
        "use_system" => use_system: bool = Flag(true),
        /// Whether a system turn is written even without a system message.
        "use_system_without_system_message" => without_message: bool = Flag(true),
        /// Whether a conversation without a system message gets a system turn if it has tools or
        /// skills.
        "use_system_with_tools_provided" => with_tools: bool = Flag(true),
        /// Whether only the first part of a system message with parts is used.
        "parts" => first_part: bool = OneOf(&[("first", true), ("all", false)]),
        /// Whether the system turn is separate, or written before a user's text.
        "placement" => placement: Placement = OneOf(&SYSTEM_PLACEMENTS),
        /// Whether an empty system message counts as absent.
        "empty_message" => empty_message_is_none: bool =
            OneOf(&[("as_given", false), ("as_none", true)]),
        /// The format of `{date}`.
        "date_format" => date_format: String = PlainText(DATE_FORMAT),
        "content_processor" => processor: Option<Processor> = ProcessorTarget::System,
    }
}

members! {
    /// The member `assistant_policy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct AssistantPolicy {
        "content_processor" => processor: Option<Processor> = ProcessorTarget::Assistant,
        /// The content of an answer whose content is null.
        "null_content" => null_content: String = PlainText(""),
        "" => reasoning: ReasoningPolicy = Flattened,
    }
}

members! {
    /// The member `tool_policy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct ToolTurnPolicy {
        "placement" => placement: Placement = OneOf(Placement::NAMES),
        /// Whether an empty list of tools is written like a list with tools.
        "empty_list" => empty_list_as_tools: bool =
            OneOf(&[("as_none", false), ("as_tools", true)]),
        "formatter" => formatter: Formatter = FormatterCodec,
        "content_processor" => processor: Option<Processor> = ProcessorTarget::Tool,
        "tool_call_content_processor" => call_processor: Option<Processor> = ProcessorTarget::Call,
        "" => calls: CallPolicy = Flattened,
    }
}

impl ToolTurnPolicy {
    /// The Jinja condition that is true if there are tools.
    pub(crate) fn has_tools(&self) -> &'static str {
        if self.empty_list_as_tools { "(tools is defined and tools is not none)" } else { "tools" }
    }
}

members! {
    /// The member `skill_policy`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SkillPolicy {
        /// The template of a skill, if the spec has none. `ComponentSpec::read` moves it to the
        /// spec.
        "single_skill_template" => row: Option<SlotPattern> = Slots::Any,
        "joiner" => joiner: String = PlainText(SKILL_JOINER),
        "content_processor" => content_processor: () = Reserved,
    }
}

/// A member that must be null.
struct Reserved;

impl Codec<()> for Reserved {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<()> {
        match reader.get(key) {
            None => Ok(()),
            Some(_) => Err(reader.fault(Reason::BadValue, key, "reserved; expected null").into()),
        }
    }

    fn to_json(&self, (): &()) -> Value {
        Value::Null
    }
}
