//! What a spec says of turns beyond their usual templates: a last answer, a late system message,
//! the end of a prompt, content that is not text. All of it is ours; a spec that says nothing of it
//! is rendered as chat-bricks' are.

use serde_json::{Value, json};

use super::reader::SpecReader;
use super::slots::{Occurs, SlotPattern, Slots, escaped, literal};
use crate::compose::fault::Reason;
use crate::error::Result;

/// What happens to content that is a list of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentParts {
    /// Parts without a form are refused.
    Error,
    /// Parts without a form are left out.
    DropUnknown,
    /// Content that is no string is left out.
    Drop,
}

const CONTENT_PARTS: [(&str, ContentParts); 3] = [
    ("error", ContentParts::Error),
    ("drop_unknown", ContentParts::DropUnknown),
    ("drop", ContentParts::Drop),
];

/// Stands for a message before the first, of which there is none.
pub(crate) const START: &str = "start";
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
const ANSWER: Slots = Slots::Of(&[("content", Occurs::Once), ("tool_calls", Occurs::AtMostOnce)]);
const LATE_SYSTEM: Slots = Slots::Of(&[("content", Occurs::Somewhere)]);

/// The fields.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnPolicy {
    /// Of an answer that is the last message.
    pub(crate) last_answer: Option<SlotPattern>,
    /// Also where a generation prompt follows.
    pub(crate) last_answer_with_prompt: bool,
    /// Of system messages that are not the first message.
    pub(crate) late_system: Option<SlotPattern>,
    /// The generation prompt where `enable_thinking` is false.
    pub(crate) no_thinking_prompt: Option<String>,
    /// The generation prompt behind an answer.
    pub(crate) prompt_after_answer: Option<String>,
    /// The begin of turns' templates that the first turn of a conversation is written without.
    pub(crate) first_turn_without: String,
    /// The end of a prompt without a generation prompt.
    pub(crate) ending: String,
    pub(crate) content_parts: ContentParts,
    /// Roles of a last message behind which there is no generation prompt.
    pub(crate) no_prompt_after: Vec<&'static str>,
    /// Roles of the message before behind which an answer begins with the text before its slots;
    /// all, when empty.
    pub(crate) opener_after: Vec<&'static str>,
}

impl TurnPolicy {
    /// Reads its members of a spec.
    pub(crate) fn read(spec: &mut SpecReader<'_>) -> Result<TurnPolicy> {
        let mut text = |key: &'static str| -> Result<Option<String>> {
            let path = spec.path(key);
            let given = spec.string(key)?;
            Ok(given.map(|text| literal(text, &path)).transpose()?)
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

    /// Name and value of what is not usual, null for the rest.
    pub(crate) fn members(&self) -> [(&'static str, Value); 10] {
        let source =
            |pattern: &Option<SlotPattern>| json!(pattern.as_ref().map(SlotPattern::source));
        let filled = |text: &str| Some(escaped(text)).filter(|text| !text.is_empty());
        let parts = CONTENT_PARTS
            .iter()
            .find(|(_, parts)| *parts == self.content_parts && *parts != ContentParts::Error);
        [
            ("last_assistant_template", source(&self.last_answer)),
            ("last_assistant_with_prompt", json!((!self.last_answer_with_prompt).then_some(false))),
            ("late_system_template", source(&self.late_system)),
            ("no_thinking_prompt", json!(self.no_thinking_prompt.as_deref().map(escaped))),
            ("prompt_after_answer", json!(self.prompt_after_answer.as_deref().map(escaped))),
            ("ending", json!(filled(&self.ending))),
            ("first_turn_without", json!(filled(&self.first_turn_without))),
            ("content_parts", json!(parts.map(|(name, _)| name))),
            (
                "no_prompt_after",
                json!(Some(&self.no_prompt_after).filter(|roles| !roles.is_empty())),
            ),
            ("opener_after", json!(Some(&self.opener_after).filter(|roles| !roles.is_empty()))),
        ]
    }
}

/// A list of these roles, in their order.
fn roles(
    spec: &mut SpecReader<'_>,
    key: &'static str,
    known: &[&'static str],
) -> Result<Vec<&'static str>> {
    let given = spec.array(key)?.map_or(&[][..], Vec::as_slice);
    if let Some(unknown) = given.iter().find(|role| !known.iter().any(|known| *role == known)) {
        let problem = format!("unknown role {unknown}; it is one of {}", known.join(", "));
        return Err(spec.fault(Reason::BadValue, key, problem).into());
    }
    Ok(known.iter().copied().filter(|known| given.iter().any(|role| role == known)).collect())
}
