//! A step of the pipeline, and the unchanged message by which a step decides whether it is needed.

use serde_json::{Map, Value};

use super::conversation::{PolyfillContext, PolyfillConversation};
use crate::error::Result;

/// A step. It is pure and idempotent.
pub(super) struct PolyfillStep {
    /// The name that replies report.
    pub(super) name: &'static str,
    /// Whether the template needs the step and the options allow it.
    pub(super) applies: fn(&PolyfillContext) -> bool,
    /// Whether a message of the request may need the step. A false positive costs a copy of the
    /// messages. A false negative is a bug.
    pub(super) needs: fn(&SentMessage, &PolyfillContext) -> bool,
    /// Changes the conversation. Returns whether anything changed.
    pub(super) run: fn(&mut PolyfillConversation, &PolyfillContext) -> Result<bool>,
}

/// For steps that depend only on the messages.
pub(super) fn always(_: &PolyfillContext) -> bool {
    true
}

/// A message of the request, borrowed.
pub(super) struct SentMessage<'a> {
    pub(super) index: usize,
    /// All messages of the request.
    pub(super) conversation: &'a [Value],
    pub(super) role: &'a str,
    pub(super) previous_role: Option<&'a str>,
    /// The member `content`. A null member is `Some`.
    pub(super) content: Option<&'a Value>,
    /// The member `tool_calls`, if it is a list.
    pub(super) calls: Option<&'a [Value]>,
    members: &'a Map<String, Value>,
}

impl<'a> SentMessage<'a> {
    /// Wraps validated messages, in order.
    pub(super) fn all(messages: &'a [Value]) -> impl Iterator<Item = SentMessage<'a>> {
        let mut previous_role = None;
        messages.iter().filter_map(Value::as_object).enumerate().map(move |(index, members)| {
            let (mut role, mut content, mut calls) = ("", None, None);
            for (name, value) in members {
                match name.as_str() {
                    "role" => role = value.as_str().unwrap_or_default(),
                    "content" => content = Some(value),
                    "tool_calls" => calls = value.as_array().map(Vec::as_slice),
                    _ => {}
                }
            }
            let previous_role = previous_role.replace(role);
            SentMessage {
                index,
                conversation: messages,
                role,
                previous_role,
                content,
                calls,
                members,
            }
        })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.members.iter()
    }

    /// Whether a member is present and not null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.members().any(|(key, value)| key == name && !value.is_null())
    }

    /// Whether a member is a string.
    pub(super) fn has_text(&self, name: &str) -> bool {
        self.members().any(|(key, value)| key == name && value.is_string())
    }

    /// The calls; nothing if the member is absent.
    pub(super) fn each_call(&self) -> impl Iterator<Item = &'a Value> {
        self.calls.into_iter().flatten()
    }
}
