//! The members of a chat request that control its prompt.

use serde_json::{Map, Value};

use super::fields::{Fields, expected};
use super::member::members;
use super::options::ContextOverflow;
use super::polyfills::Polyfills;
use crate::error::Result;

members! {
    /// The control of a prompt.
    #[derive(Debug, Clone)]
    pub struct PromptControl {
        /// Skills that the template may list. Each is an object with `name`, `description` and
        /// other members that the template reads.
        skills: Vec<Value> = Vec::new() => custom(|fields| Ok(fields.objects("skills")?.cloned())),
        /// Additional variables of the chat template.
        template_kwargs("chat_template_kwargs"): Map<String, Value> = Map::new()
            => custom(check_template_kwargs) writes |_| Value::Null,
        /// The time that the template sees, as `2026-01-31T09:30:00`. None is the current time.
        now: Option<String> = None => text(),
        /// Whether text of messages and tools may spell special tokens.
        parse_special_in_messages: bool = false => boolean(),
        /// What to do if the conversation does not fit the context. None is the chat's
        /// `context_overflow`.
        context_overflow: Option<ContextOverflow> = None
            => optional(read_overflow) writes |_| Value::Null,
        /// Whether to reuse a cached prefix of the prompt.
        cache_prompt: bool = true => boolean(),
        /// Whether the prompt shows the schema of `response_format` to the model.
        schema_in_prompt: bool = false => boolean(),
        /// The polyfills of this request; None uses those of the chat.
        polyfills: Option<Polyfills> = None => optional(Polyfills::read) writes |_| Value::Null,
    }
}

members! {
    /// The settings of a model's reasoning. None leaves the choice to the template, which has its
    /// own names for these variables.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Thinking {
        /// Whether the model should reason.
        enabled("enable_thinking"): Option<bool> = None
            => optional(|fields| fields.boolean("enable_thinking")),
        /// How much the model should reason.
        effort("reasoning_effort"): Option<String> = None => text(),
        /// Whether the prompt keeps the reasoning of earlier turns.
        preserve("preserve_reasoning"): Option<bool> = None
            => optional(|fields| fields.boolean("preserve_reasoning")),
    }
}

/// Template variables that `chat_template_kwargs` must not set, because members of the request set
/// them.
pub const RESERVED_VARIABLES: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Reads `context_overflow`. A request cannot choose "shift", which is a property of the context.
fn read_overflow(fields: &mut Fields) -> Result<Option<ContextOverflow>> {
    let choices: Vec<_> = ContextOverflow::NAMES
        .iter()
        .filter(|(_, strategy)| *strategy != ContextOverflow::Shift)
        .copied()
        .collect();
    fields.one_of("context_overflow", &choices)
}

/// Checks `chat_template_kwargs`. Returns None: [`take_template_kwargs`] moves the values later.
fn check_template_kwargs(fields: &mut Fields) -> Result<Option<Map<String, Value>>> {
    let given = fields.object("chat_template_kwargs")?;
    for name in RESERVED_VARIABLES {
        if given.is_some_and(|given| given.contains_key(name)) {
            return Err(fields.invalid(
                &format!("chat_template_kwargs.{name}"),
                format!("set `{name}` of the request instead"),
            ));
        }
    }
    Ok(None)
}

/// Moves the checked `chat_template_kwargs` out of a request.
pub(super) fn take_template_kwargs(request: &mut Value) -> Map<String, Value> {
    match request.get_mut("chat_template_kwargs").map(Value::take) {
        Some(Value::Object(kwargs)) => kwargs,
        _ => Map::new(),
    }
}

/// Reads both members. Returns whether the prompt ends with a generation prompt, and the name of
/// the member of the last message that the reply continues, if any.
pub(crate) fn read_ending<'a>(fields: &mut Fields<'a>) -> Result<(bool, Option<&'a str>)> {
    let continued = read_continued(fields)?;
    let add_generation_prompt = fields.boolean("add_generation_prompt")?;
    if continued.is_some() && add_generation_prompt == Some(true) {
        let problem = "cannot be used together with `add_generation_prompt`: true";
        return Err(fields.invalid("continue_final_message", problem));
    }
    Ok((add_generation_prompt.unwrap_or(continued.is_none()), continued))
}

/// Reads the name of a member; true means `content`, and false means None.
fn read_continued<'a>(fields: &mut Fields<'a>) -> Result<Option<&'a str>> {
    match fields.get("continue_final_message") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some("content")),
        Some(Value::String(member)) if !member.is_empty() => Ok(Some(member)),
        Some(other) => Err(fields.invalid(
            "continue_final_message",
            expected("true, false or the name of a member", other),
        )),
    }
}
