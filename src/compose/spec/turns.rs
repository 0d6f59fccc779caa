//! The policy for turns: the last answer, late system messages, the end of a prompt, and content
//! that is not text.
//!
//! These fields are extensions of chat-bricks. A spec without them renders the same as in
//! chat-bricks.

use super::members::{Flag, Literal, OneOf, SomeOf, members};
use super::slots::{Occurs, SlotPattern, Slots};

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
    /// The members of a spec for turns.
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
