//! Traits: what a template does with each part of a conversation. The sixteen flags of
//! `template_caps`, and the details that booleans cannot express. Found by probes, read by
//! polyfills.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::Evidence;

named_enum! {
    /// Where a template reads an earlier turn's reasoning from. The variants are in the order of
    /// detection.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ReasoningFormat {
        /// The member `reasoning_content`.
        ReasoningContentField = "REASONING_CONTENT_FIELD",
        /// The member `thought`.
        ThoughtField = "THOUGHT_FIELD",
        /// The member `thinking`.
        ThinkingField = "THINKING_FIELD",
        /// The member `tool_plan`, in messages with tool calls.
        ToolPlanField = "TOOL_PLAN_FIELD",
        /// A content part `{type: thinking, thinking}`.
        ThinkingContentBlock = "THINKING_CONTENT_BLOCK",
        /// A content part `{type: thoughts, text}`.
        ThoughtsContentBlock = "THOUGHTS_CONTENT_BLOCK",
        /// The member `reasoning`.
        ReasoningField = "REASONING_FIELD",
        /// Content `{blocks: [{type: thoughts, text}, {type: response, text}]}`.
        BlocksMapping = "BLOCKS_MAPPING",
        /// The template does not show reasoning of earlier turns.
        #[default]
        None = "NONE",
    }
}

/// The sixteen flags under minja's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a published format")]
pub struct TemplateCaps {
    /// System messages are in the prompt.
    pub supports_system_role: bool,
    /// Declared tools are in the prompt.
    pub supports_tools: bool,
    /// Tool calls are in the prompt, name and arguments.
    pub supports_tool_calls: bool,
    /// Tool results are in the prompt.
    pub supports_tool_responses: bool,
    /// The id of the call that a result answers is in the prompt.
    pub supports_tool_call_id: bool,
    /// Every call of a message is in the prompt.
    pub supports_parallel_tool_calls: bool,
    /// Arguments of calls work only as an object.
    pub requires_object_arguments: bool,
    /// Null content loses the message or fails; text does not.
    pub requires_non_null_content: bool,
    /// Content works only as a list of parts.
    pub requires_typed_content_blocks: bool,
    /// `reasoning_format` is not NONE.
    pub supports_reasoning: bool,
    /// Reasoning shows only in messages with tool calls.
    pub reasoning_requires_tools: bool,
    /// `clear_thinking` false keeps older reasoning, true drops it.
    pub supports_clear_thinking: bool,
    /// Reasoning shows in a turn without content.
    pub supports_reasoning_without_content: bool,
    /// Reasoning and content of a turn both show.
    pub supports_reasoning_with_content: bool,
    /// `enable_thinking` changes the prompt.
    pub respects_enable_reasoning: bool,
    /// Where reasoning is read from.
    pub reasoning_format: ReasoningFormat,
}

impl TemplateCaps {
    /// One JSON object of sixteen members.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

named_enum! {
    /// How an assistant message without content is written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum NoContent {
        /// No member `content`.
        Absent = "absent",
        /// `null`.
        Null = "null",
        /// `""`.
        Empty = "\"\"",
        /// `" "`: the template refuses all other forms.
        Space = "\" \"",
    }
}

named_enum! {
    /// The form in which a template takes the arguments of calls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AcceptedArguments {
        /// Only an object.
        Object = "object",
        /// Only JSON text.
        Text = "string",
        /// Either, with the same prompt.
        Either = "either_same",
        /// Either. The prompts differ, and the object's prompt is the natural one.
        PrefersObject = "prefers_object",
        /// Calls are not shown, or the form is unknown.
        Unknown = "unknown",
    }
}

named_enum! {
    /// How a template treats a message of an unusual role or position.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RoleSupport {
        /// Its text is in the prompt.
        Shown = "shown",
        /// The prompt renders without its text.
        Lost = "lost",
        /// The render fails.
        Refused = "refused",
    }
}

named_enum! {
    /// Which of reasoning and content a message with calls shows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum WithCalls {
        /// Both.
        Both = "both",
        /// Reasoning only; the content is dropped.
        ReasoningOnly = "reasoning_only",
        /// Content only; the reasoning is dropped.
        ContentOnly = "content_only",
        /// Neither.
        Neither = "neither",
        /// The render fails.
        Raises = "raises",
    }
}

named_enum! {
    /// How tools reach the model.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ToolSupport {
        /// The template shows tools and calls.
        Native = "native",
        /// The template shows a conversation of text, which can carry tools.
        Polyfilled = "polyfilled",
        /// In no way.
        None = "none",
    }
}

/// A variable that switches reasoning on and off.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// Its name: `enable_thinking`, `thinking`, …
    pub variable: &'static str,
    /// Its value for on.
    pub on: Value,
    /// Its value for off.
    pub off: Value,
    /// The effect of leaving it unset: `Some(true)` renders like on, `Some(false)` like off, `None`
    /// like neither.
    pub default: Option<bool>,
    /// The renders that it changes: `prompt`, `history`, `last`, `tool_chain`.
    pub positions: Vec<&'static str>,
}

/// The variables that set the reasoning effort.
#[derive(Debug, Clone, PartialEq)]
pub struct Effort {
    /// The variable whose value is the effort; `None` if there are only flags.
    pub variable: Option<&'static str>,
    /// Efforts with a variable that is true for them, such as `low` and `low_effort`.
    pub flags: Vec<(&'static str, &'static str)>,
    /// Values that change the prompt.
    pub accepted: Vec<&'static str>,
    /// Values that the template refuses.
    pub refused: Vec<&'static str>,
    /// The value that renders like leaving the variable unset, if one does.
    pub default: Option<&'static str>,
}

/// The traits of a template, with the evidence of each flag.
#[derive(Debug)]
pub struct TraitsReport {
    /// The traits.
    pub traits: Traits,
    /// One entry for each flag, in the order of the flags.
    pub evidence: Vec<(&'static str, Evidence)>,
}

/// The details that the sixteen flags cannot express.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// Whether a list of text parts as a user's content shows its text, instead of the list in
    /// Python notation.
    pub accepts_parts: bool,
    /// Whether empty content fails although text does not. Whitespace may fail too.
    pub requires_non_empty_content: bool,
    /// The forms of content of an assistant turn without calls: `absent`, `null`, `""`, `" "`,
    /// `"aa"`. Each is `ok`, `lost`, `prints None`, or the error.
    pub content_ladder: Vec<(&'static str, String)>,
    /// The form of a message without calls and content.
    pub no_content: NoContent,
    /// The form of a message with calls and without content.
    pub no_content_with_calls: NoContent,
    /// The form of arguments.
    pub arguments: AcceptedArguments,
    /// Whether ids of calls must have nine letters or digits.
    pub nine_character_ids: bool,
    /// Whether the prompt shows results by position alone, so that the ids of calls and results do
    /// not change it. Also true if calls or results are not shown.
    pub results_by_position: bool,
    /// Whether a user message after a result is refused.
    pub refuses_user_after_result: bool,
    /// How a developer message is treated.
    pub developer: RoleSupport,
    /// How a system message after the first message is treated.
    pub later_system: RoleSupport,
    /// Whether two consecutive user messages are refused but a single one is not.
    pub needs_alternation: bool,
    /// How reasoning is read, shown and switched.
    pub reasoning: ReasoningDetails,
}

/// The details about reasoning.
#[derive(Debug, Clone, PartialEq)]
pub struct ReasoningDetails {
    /// Whether `<think>` in text content is removed from earlier turns but shown in the last.
    pub inline: bool,
    /// Which of reasoning and content a message with calls shows.
    pub with_calls: WithCalls,
    /// The switch that is required to show reasoning.
    pub needs: Option<(&'static str, bool)>,
    /// The cells that show reasoning.
    pub visible: Vec<ReasoningCell>,
    /// The reasoning switches.
    pub switches: Vec<Switch>,
    /// The reasoning effort.
    pub effort: Option<Effort>,
}

named_enum! {
    /// Where a turn with reasoning stands in a conversation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TurnPosition {
        /// The turn is the last message.
        Last = "last",
        /// A user message follows.
        History = "hist",
        /// The turn calls a tool, and its result is the last message.
        OpenChain = "tc_open",
        /// An answer and a user message follow the result.
        ClosedChain = "tc_closed",
    }
}

impl TurnPosition {
    pub(crate) fn has_calls(self) -> bool {
        matches!(self, TurnPosition::OpenChain | TurnPosition::ClosedChain)
    }
}

/// One render in which reasoning shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningCell {
    /// Where the turn stands.
    pub position: TurnPosition,
    /// Whether the render has a generation prompt.
    pub add_generation_prompt: bool,
    /// The switch that was set, if any.
    pub flag: Option<(&'static str, bool)>,
}

/// Everything that polyfills need to know about a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Traits {
    /// The sixteen flags.
    pub caps: TemplateCaps,
    /// The details.
    pub details: Details,
    /// A call as the template writes it, for `polyfill_tools`. `None` if the template shows tools
    /// itself, or does not show calls.
    pub tool_call_example: Option<String>,
}
