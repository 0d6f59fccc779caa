//! The policies of a spec, for turns, calls and results: options beyond the texts of templates.

use serde_json::Value;

use super::formatter::{Formatter, FormatterCodec};
use super::members::{Codec, Flag, Flattened, Literal, OneOf, PlainText, SomeOf, members};
use super::processor::{Processor, ProcessorTarget};
use super::reader::SpecReader;
use super::reasoning::ReasoningPolicy;
use super::slots::{Occurs, SlotPattern, Slots};
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

named_enum! {
    /// How the value of one argument is written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ArgumentValues {
        /// Strings are verbatim, and other values are JSON.
        Text = "text",
        /// Every value is JSON.
        Json = "json",
        /// Strings are verbatim, lists and objects are JSON, and constants are `True`, `False` and
        /// `None`.
        Python = "python",
        /// Strings are in `argument_quote` at every depth, keys are unquoted and in alphabetical
        /// order, and there are no spaces.
        Bare = "bare",
    }
}

members! {
    /// The members of `tool_policy` for calls and results.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct CallPolicy {
        /// The text between calls.
        "call_joiner" => joiner: String = PlainText(""),
        /// The text between the text of an answer and its calls, if it has both.
        "call_separator" => separator: String = PlainText(""),
        /// The text between arguments.
        "argument_joiner" => argument_joiner: String = PlainText(""),
        "argument_values" => argument_values: ArgumentValues = OneOf(ArgumentValues::NAMES),
        /// The quote around strings in bare values.
        "argument_quote" => argument_quote: String = PlainText(""),
        /// The spelling of `null` in bare values.
        "argument_null" => argument_null: String = PlainText("null"),
        /// Whether arguments that are a string are written verbatim, and not as a JSON string.
        "text_arguments" => text_as_is: bool = OneOf(&[("json", false), ("as_is", true)]),
        /// The text between consecutive results.
        "observation_joiner" => result_joiner: String = PlainText(""),
        "observation_content_processor" => result_processor: Option<Processor> =
            ProcessorTarget::Result,
        /// The text after consecutive results, unless a user's turn follows.
        "observations_end" => results_end: String = PlainText(""),
        /// Whether results are dropped if they have no template.
        "without_observations_template" => drops_results: bool =
            OneOf(&[("error", false), ("drop", true)]),
    }
}

named_enum! {
    /// How to treat content that is a list of parts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ContentParts {
        /// Unsupported parts are refused.
        Error = "error",
        /// Unsupported parts are dropped.
        DropUnknown = "drop_unknown",
        /// Content other than a string is dropped.
        Drop = "drop",
    }
}

/// The role before the first message.
pub(crate) const START: &str = "start";
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
const ROLES_BEFORE: [&str; 5] = [START, "system", "user", "assistant", "tool"];
const ANSWER: Slots = Slots::Of(&[("content", Occurs::Once), ("tool_calls", Occurs::AtMostOnce)]);
const LATE_SYSTEM: Slots = Slots::Of(&[("content", Occurs::Somewhere)]);

members! {
    /// The members of a spec for turns: the last answer, late system messages, the end of a prompt,
    /// and content that is not text. They are extensions of chat-bricks. A spec without them renders
    /// the same as in chat-bricks.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct TurnPolicy {
        /// The template of an answer that is the last message.
        "last_assistant_template" => last_answer: Option<SlotPattern> = ANSWER,
        /// Whether `last_answer` also applies before a generation prompt.
        "last_assistant_with_prompt" => last_answer_with_prompt: bool = Flag(true),
        /// The template of system messages after the first message.
        "late_system_template" => late_system: Option<SlotPattern> = LATE_SYSTEM,
        /// The generation prompt if `enable_thinking` is false.
        "no_thinking_prompt" => no_thinking_prompt: Option<String> = Literal,
        /// The generation prompt after an answer.
        "prompt_after_answer" => prompt_after_answer: Option<String> = Literal,
        /// The end of a prompt without a generation prompt.
        "ending" => ending: String = Literal,
        /// The prefix of templates that the first turn of a conversation omits.
        "first_turn_without" => first_turn_without: String = Literal,
        "content_parts" => content_parts: ContentParts = OneOf(ContentParts::NAMES),
        /// The roles of a last message that are not followed by a generation prompt.
        "no_prompt_after" => no_prompt_after: Vec<&'static str> = SomeOf(&ROLES),
        /// The roles of the preceding message after which an answer begins with the text before its
        /// first slot. Empty means all roles.
        "opener_after" => opener_after: Vec<&'static str> = SomeOf(&ROLES_BEFORE),
    }
}
