//! Content processors change a text before it fills its slot.
//!
//! The list is closed, so every processor has a form in Jinja.

use serde_json::{Map, Value, json};

use super::members::Codec;
use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::error::Result;

/// The kind of text that a processor applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessorTarget {
    /// The system message.
    System,
    /// An answer, without its calls.
    Assistant,
    /// A declared tool, before it is formatted.
    Tool,
    /// One tool call.
    Call,
    /// One tool result.
    Result,
}

/// A content processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Processor {
    /// Prepends the knowledge cutoff and today's date.
    DateHeader {
        /// The date at which the model's knowledge ends.
        cutoff: String,
    },
    /// Prepends a text.
    Prepend(String),
    /// Appends a text.
    Append(String),
    /// Appends a text if there are tools and a system text.
    AppendIfTools(IfTools),
    /// Prepends a text if there are tools and a system text.
    PrependIfTools(IfTools),
    /// Prepends a text unless the content is empty.
    PrependIfNonempty(String),
    /// Prepends a newline unless the content is empty.
    NewlineIfNonempty,
    /// Strips whitespace at both ends.
    Strip,
    /// Replaces the tool by its `function` member, if it has one.
    PickFunction,
    /// Parses arguments that are JSON text.
    ObjectArguments,
    /// Writes `ID<|tool_call_argument_begin|>ARGUMENTS`.
    KimiCall,
    /// Writes a DSML invoke block.
    DsmlCall,
    /// Writes the text as a JSON string.
    Json,
}

/// Text that is inserted between a system text and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IfTools {
    pub(crate) text: String,
    /// Whether the text is also inserted for an empty system message.
    pub(crate) empty: bool,
}

const CUTOFF: &str = "December 2023";

/// The kind, its name in chat-bricks, and the targets that allow it.
const KINDS: [(&str, &str, &[ProcessorTarget]); 13] = [
    ("date_header", "Llama32DateProcessor", &[ProcessorTarget::System]),
    ("prepend", "", &[ProcessorTarget::System, ProcessorTarget::Assistant]),
    ("append", "", &[ProcessorTarget::System, ProcessorTarget::Assistant]),
    ("append_if_tools", "", &[ProcessorTarget::System]),
    ("prepend_if_tools", "", &[ProcessorTarget::System]),
    ("prepend_if_nonempty", "", &[ProcessorTarget::Assistant]),
    ("newline_if_nonempty", "Qwen25AssistantContentProcessor", &[ProcessorTarget::Assistant]),
    ("strip", "", &[ProcessorTarget::System, ProcessorTarget::Assistant, ProcessorTarget::Result]),
    ("pick_function", "ToolMainContentProcessor", &[ProcessorTarget::Tool]),
    ("object_arguments", "", &[ProcessorTarget::Call]),
    ("kimi_call", "KimiK2ToolCallContentProcessor", &[ProcessorTarget::Call]),
    ("dsml_call", "DeepSeekV4ToolCallContentProcessor", &[ProcessorTarget::Call]),
    ("json", "", &[ProcessorTarget::Result]),
];

impl Codec<Option<Processor>> for ProcessorTarget {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<Processor>> {
        reader.nested(key, |reader| Processor::read(reader, *self))
    }

    fn to_json(&self, value: &Option<Processor>) -> Value {
        json!(value.as_ref().map(Processor::to_json))
    }
}

impl Processor {
    /// Whether arguments that are JSON text are parsed before this processor writes a call.
    pub(crate) fn parses_arguments(&self) -> bool {
        matches!(self, Processor::ObjectArguments | Processor::DsmlCall)
    }

    /// Reads `{"kind": …}` with its parameters. `target` decides which kinds are allowed.
    fn read(reader: &mut SpecReader<'_>, target: ProcessorTarget) -> Result<Processor> {
        let name = reader
            .string("kind")?
            .ok_or_else(|| reader.fault(Reason::MissingField, "kind", "missing"))?;
        let known = KINDS
            .iter()
            .find(|(kind, alias, _)| *kind == name || (!alias.is_empty() && *alias == name));
        let Some((kind, ..)) = known.filter(|(_, _, targets)| targets.contains(&target)) else {
            let allowed = KINDS
                .iter()
                .filter(|(_, _, targets)| targets.contains(&target))
                .map(|(kind, ..)| *kind);
            let allowed = allowed.collect::<Vec<_>>().join(", ");
            return Err(reader
                .fault(
                    Reason::BadValue,
                    "kind",
                    format!("unknown value {name:?}; expected one of {allowed}"),
                )
                .into());
        };
        let text = |reader: &mut SpecReader<'_>| -> Result<String> {
            Ok(reader
                .string("text")?
                .ok_or_else(|| reader.fault(Reason::MissingField, "text", "missing"))?
                .to_owned())
        };
        let if_tools = |reader: &mut SpecReader<'_>| -> Result<IfTools> {
            Ok(IfTools { text: text(reader)?, empty: reader.boolean("empty")?.unwrap_or(false) })
        };
        let processor = match *kind {
            "date_header" => Processor::DateHeader {
                cutoff: reader.string("cutoff")?.unwrap_or(CUTOFF).to_owned(),
            },
            "prepend" => Processor::Prepend(text(reader)?),
            "append" => Processor::Append(text(reader)?),
            "prepend_if_tools" => Processor::PrependIfTools(if_tools(reader)?),
            "append_if_tools" => Processor::AppendIfTools(if_tools(reader)?),
            "prepend_if_nonempty" => Processor::PrependIfNonempty(text(reader)?),
            "newline_if_nonempty" => Processor::NewlineIfNonempty,
            "strip" => Processor::Strip,
            "pick_function" => Processor::PickFunction,
            "object_arguments" => Processor::ObjectArguments,
            "kimi_call" => Processor::KimiCall,
            "json" => Processor::Json,
            _ => Processor::DsmlCall,
        };
        Ok(processor)
    }

    /// `{"kind": …}` with the parameters that differ from the defaults.
    pub(crate) fn to_json(&self) -> Value {
        let with_text = |kind: &str, text: &String| json!({ "kind": kind, "text": text });
        let if_tools = |kind: &str, IfTools { text, empty }: &IfTools| {
            let mut members = json!({ "kind": kind, "text": text });
            if *empty {
                members["empty"] = true.into();
            }
            members
        };
        let plain = |kind: &str| json!({ "kind": kind });
        match self {
            Processor::DateHeader { cutoff } => {
                let mut members = Map::new();
                members.insert("kind".to_owned(), "date_header".into());
                if cutoff != CUTOFF {
                    members.insert("cutoff".to_owned(), cutoff.as_str().into());
                }
                Value::Object(members)
            }
            Processor::Prepend(text) => with_text("prepend", text),
            Processor::Append(text) => with_text("append", text),
            Processor::AppendIfTools(text) => if_tools("append_if_tools", text),
            Processor::PrependIfTools(text) => if_tools("prepend_if_tools", text),
            Processor::PrependIfNonempty(text) => with_text("prepend_if_nonempty", text),
            Processor::NewlineIfNonempty => plain("newline_if_nonempty"),
            Processor::Strip => plain("strip"),
            Processor::PickFunction => plain("pick_function"),
            Processor::ObjectArguments => plain("object_arguments"),
            Processor::KimiCall => plain("kimi_call"),
            Processor::DsmlCall => plain("dsml_call"),
            Processor::Json => plain("json"),
        }
    }
}
