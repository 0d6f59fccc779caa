//! The reasoning policy: which answers show their reasoning, and where a message holds it.

use serde_json::{Value, json};

use super::name_of;
use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::error::Result;

/// Which answers keep their reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepReasoning {
    /// All.
    All,
    /// Those after the last question.
    LastTurn,
}

const KEEP_REASONING: [(&str, KeepReasoning); 2] =
    [("all", KeepReasoning::All), ("last_turn", KeepReasoning::LastTurn)];

/// Which answers without reasoning are written with an empty reasoning block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyReasoning {
    /// None.
    None,
    /// The last message.
    Last,
    /// Those after the last question.
    LastTurn,
}

const EMPTY_REASONING: [(&str, EmptyReasoning); 3] = [
    ("none", EmptyReasoning::None),
    ("last", EmptyReasoning::Last),
    ("last_turn", EmptyReasoning::LastTurn),
];

/// The opening and the closing tag of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TagPair {
    pub(crate) start: String,
    pub(crate) end: String,
}

impl TagPair {
    fn read(mut reader: SpecReader<'_>, ignored: &mut Vec<String>) -> Result<TagPair> {
        let mut text = |key: &'static str| -> Result<String> {
            match reader.string(key)? {
                Some(text) if !text.is_empty() => Ok(text.to_owned()),
                _ => Err(reader
                    .fault(
                        Reason::MissingField,
                        key,
                        "missing; expected a string that is not empty",
                    )
                    .into()),
            }
        };
        let tags = TagPair { start: text("start")?, end: text("end")? };
        reader.finish(ignored);
        Ok(tags)
    }

    fn to_json(&self) -> Value {
        json!({ "start": self.start, "end": self.end })
    }
}

/// The members of `assistant_policy` for reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReasoningPolicy {
    pub(crate) keep: KeepReasoning,
    pub(crate) empty: EmptyReasoning,
    /// Around reasoning inside the text of an answer.
    pub(crate) inline: Option<TagPair>,
    /// Around a user's message that is not a question.
    pub(crate) no_question: Option<TagPair>,
}

impl Default for ReasoningPolicy {
    fn default() -> ReasoningPolicy {
        ReasoningPolicy {
            keep: KeepReasoning::All,
            empty: EmptyReasoning::None,
            inline: None,
            no_question: None,
        }
    }
}

impl ReasoningPolicy {
    /// Reads the members of `assistant_policy`.
    pub(crate) fn read(
        policy: &mut SpecReader<'_>,
        ignored: &mut Vec<String>,
    ) -> Result<ReasoningPolicy> {
        let default = ReasoningPolicy::default();
        let mut tags = |policy: &mut SpecReader<'_>, key| -> Result<Option<TagPair>> {
            policy.object(key)?.map(|reader| TagPair::read(reader, ignored)).transpose()
        };
        Ok(ReasoningPolicy {
            keep: policy.one_of("keep_reasoning", &KEEP_REASONING)?.unwrap_or(default.keep),
            empty: policy.one_of("empty_reasoning", &EMPTY_REASONING)?.unwrap_or(default.empty),
            inline: tags(policy, "inline_reasoning")?,
            no_question: tags(policy, "no_question")?,
        })
    }

    /// The members by name. Those with a default value are null.
    pub(crate) fn members(&self) -> [(&'static str, Value); 4] {
        let keep = Some(self.keep).filter(|keep| *keep != KeepReasoning::All);
        let empty = Some(self.empty).filter(|empty| *empty != EmptyReasoning::None);
        [
            ("keep_reasoning", json!(keep.and_then(|keep| name_of(&KEEP_REASONING, keep)))),
            ("empty_reasoning", json!(empty.and_then(|empty| name_of(&EMPTY_REASONING, empty)))),
            ("inline_reasoning", json!(self.inline.as_ref().map(TagPair::to_json))),
            ("no_question", json!(self.no_question.as_ref().map(TagPair::to_json))),
        ]
    }
}
