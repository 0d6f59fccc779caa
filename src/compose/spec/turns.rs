//! The policy of turns: the last answer, late system messages, the end of a prompt, and content
//! that is not text.
//!
//! These fields extend chat-bricks. A spec without them renders as in chat-bricks.

use serde_json::{Value, json};

use super::name_of;
use super::reader::SpecReader;
use super::slots::{Occurs, SlotPattern, Slots, escaped, literal};
use crate::compose::fault::Reason;
use crate::error::Result;

/// What to do with content that is a list of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentParts {
    /// Unsupported parts are refused.
    Error,
    /// Unsupported parts are dropped.
    DropUnknown,
    /// Content other than a string is dropped.
    Drop,
}

const CONTENT_PARTS: [(&str, ContentParts); 3] = [
    ("error", ContentParts::Error),
    ("drop_unknown", ContentParts::DropUnknown),
    ("drop", ContentParts::Drop),
];

/// The role before the first message.
pub(crate) const START: &str = "start";
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
const ANSWER: Slots = Slots::Of(&[("content", Occurs::Once), ("tool_calls", Occurs::AtMostOnce)]);
const LATE_SYSTEM: Slots = Slots::Of(&[("content", Occurs::Somewhere)]);

/// The members of a spec for turns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnPolicy {
    /// The template of an answer that is the last message.
    pub(crate) last_answer: Option<SlotPattern>,
    /// `last_answer` also applies before a generation prompt.
    pub(crate) last_answer_with_prompt: bool,
    /// The template of system messages after the first message.
    pub(crate) late_system: Option<SlotPattern>,
    /// The generation prompt if `enable_thinking` is false.
    pub(crate) no_thinking_prompt: Option<String>,
    /// The generation prompt after an answer.
    pub(crate) prompt_after_answer: Option<String>,
    /// The prefix of templates that the first turn of a conversation omits.
    pub(crate) first_turn_without: String,
    /// The end of a prompt without a generation prompt.
    pub(crate) ending: String,
    pub(crate) content_parts: ContentParts,
    /// Roles of a last message after which there is no generation prompt.
    pub(crate) no_prompt_after: Vec<&'static str>,
    /// Roles of the preceding message after which an answer begins with the text before its first
    /// slot. Empty for all roles.
    pub(crate) opener_after: Vec<&'static str>,
}

impl TurnPolicy {
    /// Reads the members of a spec.
    pub(crate) fn read(spec: &mut SpecReader<'_>) -> Result<TurnPolicy> {
        let mut text = |key: &'static str| -> Result<Option<String>> {
            let path = spec.path(key);
            let source = spec.string(key)?;
            Ok(source.map(|text| literal(text, &path)).transpose()?)
        };
        Ok(TurnPolicy {
            no_thinking_prompt: text("no_thinking_prompt")?,
            prompt_after_answer: text("prompt_after_answer")?,
            ending: text("ending")?.unwrap_or_default(),
            first_turn_without: text("first_turn_without")?.unwrap_or_default(),
            last_answer: spec.pattern("last_assistant_template", ANSWER)?,
            last_answer_with_prompt: spec.boolean("last_assistant_with_prompt")?.unwrap_or(true),
            late_system: spec.pattern("late_system_template", LATE_SYSTEM)?,
            content_parts: spec
                .one_of("content_parts", &CONTENT_PARTS)?
                .unwrap_or(ContentParts::Error),
            no_prompt_after: roles(spec, "no_prompt_after", &ROLES)?,
            opener_after: roles(spec, "opener_after", &[&[START][..], &ROLES].concat())?,
        })
    }

    /// The members by name. Those with a default value are null.
    pub(crate) fn members(&self) -> [(&'static str, Value); 10] {
        let source =
            |pattern: &Option<SlotPattern>| json!(pattern.as_ref().map(SlotPattern::source));
        let filled = |text: &str| Some(escaped(text)).filter(|text| !text.is_empty());
        let parts = Some(self.content_parts).filter(|parts| *parts != ContentParts::Error);
        [
            ("last_assistant_template", source(&self.last_answer)),
            ("last_assistant_with_prompt", json!((!self.last_answer_with_prompt).then_some(false))),
            ("late_system_template", source(&self.late_system)),
            ("no_thinking_prompt", json!(self.no_thinking_prompt.as_deref().map(escaped))),
            ("prompt_after_answer", json!(self.prompt_after_answer.as_deref().map(escaped))),
            ("ending", json!(filled(&self.ending))),
            ("first_turn_without", json!(filled(&self.first_turn_without))),
            ("content_parts", json!(parts.and_then(|parts| name_of(&CONTENT_PARTS, parts)))),
            (
                "no_prompt_after",
                json!(Some(&self.no_prompt_after).filter(|roles| !roles.is_empty())),
            ),
            ("opener_after", json!(Some(&self.opener_after).filter(|roles| !roles.is_empty()))),
        ]
    }
}

/// A list of roles, in the order of `known`.
fn roles(
    spec: &mut SpecReader<'_>,
    key: &'static str,
    known: &[&'static str],
) -> Result<Vec<&'static str>> {
    let listed = spec.array(key)?.map_or(&[][..], Vec::as_slice);
    if let Some(unknown) = listed.iter().find(|role| !known.iter().any(|known| *role == known)) {
        let problem = format!("unknown role {unknown}; expected one of {}", known.join(", "));
        return Err(spec.fault(Reason::BadValue, key, problem).into());
    }
    Ok(known.iter().copied().filter(|known| listed.iter().any(|role| role == known)).collect())
}
