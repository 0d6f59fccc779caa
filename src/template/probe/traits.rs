//! Traits: what a template does with each part of a conversation. The sixteen flags of
//! `template_caps`, and the details that booleans cannot express. Found by probes, read by
//! polyfills.

use serde_json::{Map, Value};

use super::evidence::Evidence;

/// Where a template reads an earlier turn's reasoning from. The variants are in the order of
/// detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasoningFormat {
    /// The member `reasoning_content`.
    ReasoningContentField,
    /// The member `thought`.
    ThoughtField,
    /// The member `thinking`.
    ThinkingField,
    /// The member `tool_plan`, in messages with tool calls.
    ToolPlanField,
    /// A content part `{type: thinking, thinking}`.
    ThinkingContentBlock,
    /// A content part `{type: thoughts, text}`.
    ThoughtsContentBlock,
    /// The member `reasoning`.
    ReasoningField,
    /// Content `{blocks: [{type: thoughts, text}, {type: response, text}]}`.
    BlocksMapping,
    /// The template does not show reasoning of earlier turns.
    None,
}

impl ReasoningFormat {
    /// The published name, as in minja.
    pub fn as_str(self) -> &'static str {
        match self {
            ReasoningFormat::ReasoningContentField => "REASONING_CONTENT_FIELD",
            ReasoningFormat::ThoughtField => "THOUGHT_FIELD",
            ReasoningFormat::ThinkingField => "THINKING_FIELD",
            ReasoningFormat::ToolPlanField => "TOOL_PLAN_FIELD",
            ReasoningFormat::ThinkingContentBlock => "THINKING_CONTENT_BLOCK",
            ReasoningFormat::ThoughtsContentBlock => "THOUGHTS_CONTENT_BLOCK",
            ReasoningFormat::ReasoningField => "REASONING_FIELD",
            ReasoningFormat::BlocksMapping => "BLOCKS_MAPPING",
            ReasoningFormat::None => "NONE",
        }
    }
}

/// The sixteen flags under minja's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Where reasoning is read from.
    pub reasoning_format: ReasoningFormat,
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
}

impl TemplateCaps {
    /// One JSON object of sixteen members.
    pub fn to_json(&self) -> Value {
        let flags = [
            ("supports_system_role", self.supports_system_role),
            ("supports_tools", self.supports_tools),
            ("supports_tool_calls", self.supports_tool_calls),
            ("supports_tool_responses", self.supports_tool_responses),
            ("supports_tool_call_id", self.supports_tool_call_id),
            ("supports_parallel_tool_calls", self.supports_parallel_tool_calls),
            ("requires_object_arguments", self.requires_object_arguments),
            ("requires_non_null_content", self.requires_non_null_content),
            ("requires_typed_content_blocks", self.requires_typed_content_blocks),
            ("supports_reasoning", self.supports_reasoning),
            ("reasoning_requires_tools", self.reasoning_requires_tools),
            ("supports_clear_thinking", self.supports_clear_thinking),
            ("supports_reasoning_without_content", self.supports_reasoning_without_content),
            ("supports_reasoning_with_content", self.supports_reasoning_with_content),
            ("respects_enable_reasoning", self.respects_enable_reasoning),
        ];
        let mut object: Map<String, Value> =
            flags.into_iter().map(|(name, flag)| (name.to_owned(), flag.into())).collect();
        object.insert("reasoning_format".to_owned(), self.reasoning_format.as_str().into());
        Value::Object(object)
    }
}

/// How an assistant message without content is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoContent {
    /// No member `content`.
    Absent,
    /// `null`.
    Null,
    /// `""`.
    Empty,
    /// `" "`: the template refuses all other forms.
    Space,
}

/// The form in which a template takes the arguments of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedArguments {
    /// Only an object.
    Object,
    /// Only JSON text.
    Text,
    /// Either, with the same prompt.
    Either,
    /// Either. The prompts differ, and the object's prompt is the natural one.
    PrefersObject,
    /// Calls are not shown, or the form is unknown.
    Unknown,
}

/// How a template treats a message of an unusual role or position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleSupport {
    /// Its text is in the prompt.
    Shown,
    /// The prompt renders without its text.
    Lost,
    /// The render fails.
    Refused,
}

/// Which of reasoning and content a message with calls shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithCalls {
    /// Both.
    Both,
    /// Reasoning only; the content is dropped.
    ReasoningOnly,
    /// Content only; the reasoning is dropped.
    ContentOnly,
    /// Neither.
    Neither,
    /// The render fails.
    Raises,
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

/// The variable that sets the reasoning effort.
#[derive(Debug, Clone, PartialEq)]
pub struct Effort {
    /// `reasoning_effort` or `reasoning_strength`.
    pub variable: &'static str,
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
    /// How a developer message is treated.
    pub developer: RoleSupport,
    /// How a system message after the first message is treated.
    pub later_system: RoleSupport,
    /// Whether two consecutive user messages are refused but a single one is not.
    pub needs_alternation: bool,
    /// Whether `<think>` in text content is removed from earlier turns but shown in the last.
    pub inline_reasoning: bool,
    /// Which of reasoning and content a message with calls shows.
    pub reasoning_with_calls: WithCalls,
    /// The switch that is required to show reasoning.
    pub reasoning_needs: Option<(&'static str, bool)>,
    /// The cells that show reasoning: position (`last`, `hist`, `tc_open`, `tc_closed`), generation
    /// prompt, flag.
    pub reasoning_visible: Vec<ReasoningCell>,
    /// The reasoning switches.
    pub switches: Vec<Switch>,
    /// The reasoning effort.
    pub effort: Option<Effort>,
}

/// One render in which reasoning shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningCell {
    /// `last`, `hist`, `tc_open` or `tc_closed`.
    pub position: &'static str,
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
