//! The policy for reasoning: which answers show it, and which member of a message contains it.

use serde_json::{Value, json};

use super::members::{Codec, OneOf, members};
use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::error::Result;

named_enum! {
    /// Which answers show their reasoning.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum KeepReasoning {
        /// All answers.
        All = "all",
        /// Answers after the last question.
        LastTurn = "last_turn",
    }
}

named_enum! {
    /// Which answers without reasoning are written with an empty reasoning block.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum EmptyReasoning {
        /// No answer.
        None = "none",
        /// The last message.
        Last = "last",
        /// Answers after the last question.
        LastTurn = "last_turn",
    }
}

/// An opening and a closing tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TagPair {
    pub(crate) start: String,
    pub(crate) end: String,
}

impl TagPair {
    fn read(reader: &mut SpecReader<'_>) -> Result<TagPair> {
        let mut text = |key: &'static str| -> Result<String> {
            let text = reader.string(key)?.filter(|text| !text.is_empty());
            let problem = "missing; expected a string that is not empty";
            Ok(text.ok_or_else(|| reader.fault(Reason::MissingField, key, problem))?.to_owned())
        };
        Ok(TagPair { start: text("start")?, end: text("end")? })
    }
}

/// The codec of `{"start": …, "end": …}`, which may be absent.
struct Tags;

impl Codec<Option<TagPair>> for Tags {
    fn read(&self, reader: &mut SpecReader<'_>, key: &'static str) -> Result<Option<TagPair>> {
        reader.nested(key, TagPair::read)
    }

    fn to_json(&self, value: &Option<TagPair>) -> Value {
        json!(value.as_ref().map(|tags| json!({ "start": tags.start, "end": tags.end })))
    }
}

members! {
    /// The members of `assistant_policy` for reasoning.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct ReasoningPolicy {
        "keep_reasoning" => keep: KeepReasoning = OneOf(KeepReasoning::NAMES),
        "empty_reasoning" => empty: EmptyReasoning = OneOf(EmptyReasoning::NAMES),
        /// The tags around reasoning inside the text of an answer.
        "inline_reasoning" => inline: Option<TagPair> = Tags,
        /// The tags around a user's message that does not count as a question.
        "no_question" => no_question: Option<TagPair> = Tags,
    }
}
