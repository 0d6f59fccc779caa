//! The policy of reasoning: which answers show it, and where in a message it is.

use serde_json::{Value, json};

use super::reader::SpecReader;
use crate::compose::fault::Reason;
use crate::error::Result;

/// Which turns keep their reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepReasoning {
    /// All.
    All,
    /// Those behind the last question.
    LastTurn,
}

const KEEP_REASONING: [(&str, KeepReasoning); 2] =
    [("all", KeepReasoning::All), ("last_turn", KeepReasoning::LastTurn)];

/// Which answers without reasoning have the template of reasoning all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyReasoning {
    /// None.
    None,
    /// The last message.
    Last,
    /// Those behind the last question.
    LastTurn,
}

const EMPTY_REASONING: [(&str, EmptyReasoning); 3] = [
    ("none", EmptyReasoning::None),
    ("last", EmptyReasoning::Last),
    ("last_turn", EmptyReasoning::LastTurn),
];

/// What stands before and behind a text.
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
                    .fault(Reason::MissingField, key, "missing: a text that is not empty")
                    .into()),
            }
        };
        let bounds = TagPair { start: text("start")?, end: text("end")? };
        reader.finish(ignored);
        Ok(bounds)
    }

    fn to_json(&self) -> Value {
        json!({ "start": self.start, "end": self.end })
    }
}

/// The policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReasoningPolicy {
    pub(crate) keep: KeepReasoning,
    pub(crate) empty: EmptyReasoning,
    /// Round reasoning that stands in an answer's text.
    pub(crate) inline: Option<TagPair>,
    /// A user's message that begins and ends so asks nothing.
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
    /// Reads its members of `assistant_policy`.
    pub(crate) fn read(
        policy: &mut SpecReader<'_>,
        ignored: &mut Vec<String>,
    ) -> Result<ReasoningPolicy> {
        let usual = ReasoningPolicy::default();
        let mut bounds = |policy: &mut SpecReader<'_>, key| -> Result<Option<TagPair>> {
            policy.below(key)?.map(|reader| TagPair::read(reader, ignored)).transpose()
        };
        Ok(ReasoningPolicy {
            keep: policy.one_of("keep_reasoning", &KEEP_REASONING)?.unwrap_or(usual.keep),
            empty: policy.one_of("empty_reasoning", &EMPTY_REASONING)?.unwrap_or(usual.empty),
            inline: bounds(policy, "inline_reasoning")?,
            no_question: bounds(policy, "no_question")?,
        })
    }

    /// Name and value of what is not usual, null for the rest.
    pub(crate) fn members(&self) -> [(&'static str, Value); 4] {
        let usual = ReasoningPolicy::default();
        let named = |names: &[(&'static str, usize)], at: usize, usual: usize| {
            names.iter().find(|(_, known)| *known == at && at != usual).map(|(name, _)| *name)
        };
        let keep = KEEP_REASONING.map(|(name, keep)| (name, keep as usize));
        let empty = EMPTY_REASONING.map(|(name, empty)| (name, empty as usize));
        [
            ("keep_reasoning", json!(named(&keep, self.keep as usize, usual.keep as usize))),
            ("empty_reasoning", json!(named(&empty, self.empty as usize, usual.empty as usize))),
            ("inline_reasoning", json!(self.inline.as_ref().map(TagPair::to_json))),
            ("no_question", json!(self.no_question.as_ref().map(TagPair::to_json))),
        ]
    }
}
