//! What a template does with each part of a conversation: the sixteen flags of `template_caps`, and
//! the details that sixteen booleans have no room for. Filled by probes, read by polyfills.

use serde_json::{Map, Value};

use super::evidence::Evidence;

/// Where a template reads an earlier turn's reasoning from. The order of the variants is the order
/// of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasoningFormat {
    /// The member `reasoning_content`.
    ReasoningContentField,
    /// The member `thought`.
    ThoughtField,
    /// The member `thinking`.
    ThinkingField,
    /// The member `tool_plan`, beside tool calls.
    ToolPlanField,
    /// A content part `{type: thinking, thinking}`.
    ThinkingContentBlock,
    /// A content part `{type: thoughts, text}`.
    ThoughtsContentBlock,
    /// The member `reasoning`.
    ReasoningField,
    /// Content `{blocks: [{type: thoughts, text}, {type: response, text}]}`.
    BlocksMapping,
    /// Reasoning of earlier turns is not shown.
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
    /// System messages reach the prompt.
    pub supports_system_role: bool,
    /// Declared tools reach the prompt.
    pub supports_tools: bool,
    /// Tool calls reach the prompt, name and arguments.
    pub supports_tool_calls: bool,
    /// Tool results reach the prompt.
    pub supports_tool_responses: bool,
    /// The id of the call that a result answers reaches the prompt.
    pub supports_tool_call_id: bool,
    /// More than one call in a message reaches the prompt.
    pub supports_parallel_tool_calls: bool,
    /// Arguments of calls work as an object only.
    pub requires_object_arguments: bool,
    /// A null content loses the message or fails, text does not.
    pub requires_non_null_content: bool,
    /// Content works as a list of parts only.
    pub requires_typed_content_blocks: bool,
    /// `reasoning_format` is not NONE.
    pub supports_reasoning: bool,
    /// Where reasoning is read from.
    pub reasoning_format: ReasoningFormat,
    /// Reasoning shows beside tool calls only.
    pub reasoning_requires_tools: bool,
    /// `clear_thinking` false keeps older reasoning, true drops it.
    pub supports_clear_thinking: bool,
    /// Reasoning shows when the turn has no content.
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

/// A way of saying that an assistant message has no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoContent {
    /// No member `content`.
    Absent,
    /// `null`.
    Null,
    /// `""`.
    Empty,
    /// `" "`: the template refuses all of the above.
    Space,
}

/// How arguments of calls are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentForm {
    /// As an object only.
    Object,
    /// As JSON text only.
    Text,
    /// As either, with the same prompt.
    Either,
    /// As either, but the prompts differ and the object's is the natural one.
    PrefersObject,
    /// Calls do not show at all, or it is not known.
    Unknown,
}

/// What becomes of a message of an unusual kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its text reaches the prompt.
    Shown,
    /// The prompt is rendered without its text.
    Lost,
    /// The render fails.
    Refused,
}

/// What reasoning beside calls and content leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithCalls {
    /// Both reasoning and content show.
    Both,
    /// Content is dropped.
    ReasoningOnly,
    /// Reasoning is dropped.
    ContentOnly,
    /// Neither shows.
    Neither,
    /// The render fails.
    Raises,
}

/// The variable that switches reasoning on and off.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// Its name: `enable_thinking`, `thinking`, …
    pub variable: &'static str,
    /// Its value for on.
    pub on: Value,
    /// Its value for off.
    pub off: Value,
    /// What leaving it unset renders like: Some(true) like on, Some(false) like off, None like
    /// neither.
    pub default: Option<bool>,
    /// In which renders it shows: `prompt`, `history`, `last`, `tool_chain`.
    pub positions: Vec<&'static str>,
}

/// The variable that sets how hard the model thinks.
#[derive(Debug, Clone, PartialEq)]
pub struct Effort {
    /// `reasoning_effort` or `reasoning_strength`.
    pub variable: &'static str,
    /// Values that change the prompt.
    pub accepted: Vec<&'static str>,
    /// Values that the template raises on.
    pub refused: Vec<&'static str>,
    /// The value that renders like leaving it unset, when there is one.
    pub default: Option<&'static str>,
}

/// The traits of a template, and the evidence of each flag of its caps.
#[derive(Debug)]
pub struct TraitsReport {
    /// The traits.
    pub traits: Traits,
    /// One entry for each flag, in the order of the flags.
    pub evidence: Vec<(&'static str, Evidence)>,
}

/// What sixteen booleans have no room for.
#[derive(Debug, Clone, PartialEq)]
pub struct Details {
    /// A list of text parts as a user's content shows its text, not Python's print of the list.
    pub accepts_parts: bool,
    /// Empty content fails where text does not (also blank).
    pub requires_non_empty_content: bool,
    /// The ladder of contents of an assistant turn without calls: `absent`, `null`, `""`, `" "`,
    /// `"aa"`, each `ok`, `lost`, `prints None`, or the error.
    pub content_ladder: Vec<(&'static str, String)>,
    /// How a message without calls says that it has no content.
    pub no_content: NoContent,
    /// How a message with calls says that it has no content.
    pub no_content_with_calls: NoContent,
    /// How arguments are taken.
    pub arguments: ArgumentForm,
    /// Ids of calls must be nine letters or digits.
    pub nine_character_ids: bool,
    /// A developer message.
    pub developer: Fate,
    /// A system message that is not the first message.
    pub later_system: Fate,
    /// Two user messages in a row are refused, one is not.
    pub needs_alternation: bool,
    /// `<think>` in text content is taken out of earlier turns and shown in the last.
    pub inline_reasoning: bool,
    /// Reasoning and content beside calls.
    pub reasoning_with_calls: WithCalls,
    /// The switch variable that reasoning needs in order to show at all.
    pub reasoning_needs: Option<(&'static str, bool)>,
    /// Where reasoning shows, one entry a cell: position (`last`, `hist`, `tc_open`, `tc_closed`),
    /// generation prompt, flag.
    pub reasoning_visible: Vec<ReasoningCell>,
    /// What switches reasoning.
    pub switches: Vec<Switch>,
    /// What sets its effort.
    pub effort: Option<Effort>,
}

/// One render in which reasoning shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningCell {
    /// `last`, `hist`, `tc_open` or `tc_closed`.
    pub position: &'static str,
    /// With the generation prompt.
    pub add_generation_prompt: bool,
    /// Switch that was set; None for none.
    pub flag: Option<(&'static str, bool)>,
}

/// All that polyfills need to know of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Traits {
    /// The sixteen flags.
    pub caps: TemplateCaps,
    /// The rest.
    pub details: Details,
    /// How this template writes a call, for `polyfill_tools`; None when its tools are shown
    /// natively or no call shows.
    pub tool_call_example: Option<String>,
}
