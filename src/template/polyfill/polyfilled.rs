//! The result of the polyfills.

use std::borrow::Cow;

use serde_json::Value;

use super::conversation::{PolyfillConversation, PolyfillMessage};
use crate::diagnostic::Diagnostic;

/// The adapted messages, and how they were changed.
#[derive(Debug, Clone)]
pub struct Polyfilled<'a> {
    /// The messages; borrowed if nothing changed.
    pub messages: Cow<'a, [Value]>,
    /// The steps that changed them, in order.
    pub applied: Vec<&'static str>,
    /// Diagnostics about anything lost, moved, renamed or repaired.
    pub diagnostics: Vec<Diagnostic>,
    /// The messages with their origins, if anything changed.
    origins: Option<Vec<PolyfillMessage>>,
}

impl<'a> Polyfilled<'a> {
    /// Messages that were not changed.
    pub fn untouched(messages: &'a [Value], diagnostics: Vec<Diagnostic>) -> Polyfilled<'a> {
        let messages = Cow::Borrowed(messages);
        Polyfilled { messages, applied: Vec::new(), diagnostics, origins: None }
    }

    pub(super) fn of(
        sent: &'a [Value],
        conversation: PolyfillConversation,
        applied: Vec<&'static str>,
    ) -> Polyfilled<'a> {
        let messages: Vec<Value> =
            conversation.messages.iter().map(|message| message.members.to_json()).collect();
        if messages == sent {
            return Polyfilled::untouched(sent, conversation.diagnostics);
        }
        Polyfilled {
            messages: Cow::Owned(messages),
            applied,
            diagnostics: conversation.diagnostics,
            origins: Some(conversation.messages),
        }
    }

    /// The messages with the origins of their names, numbers and strings; `None` if nothing
    /// changed.
    pub(in crate::template) fn nodes(&self) -> Option<&[PolyfillMessage]> {
        self.origins.as_deref()
    }
}
