//! The result of the polyfills.

use std::borrow::Cow;

use serde_json::Value;

use super::conversation::{PolyfillConversation, PolyfillMessage};
use super::node::Node;
use super::segmented_text::Segment;
use crate::diagnostic::Diagnostic;

/// Takes one string of the messages: message, JSON pointer inside it, text, segments.
pub type StringVisitor<'v> = &'v mut dyn FnMut(usize, &str, &str, &[Segment]);

/// Messages as a template takes them, and how they were changed.
#[derive(Debug, Clone)]
pub struct Polyfilled<'a> {
    /// The messages; borrowed if nothing changed.
    pub messages: Cow<'a, [Value]>,
    /// The steps that changed them, in order.
    pub applied: Vec<&'static str>,
    /// What was lost, moved, renamed or repaired.
    pub diagnostics: Vec<Diagnostic>,
    /// Ids of tool calls as sent, and the ids that the template gets instead.
    pub id_map: Vec<(String, String)>,
    /// The messages with the origin of their strings, if something changed.
    origins: Option<Vec<PolyfillMessage>>,
}

impl<'a> Polyfilled<'a> {
    /// Messages as they were sent.
    pub fn untouched(messages: &'a [Value], diagnostics: Vec<Diagnostic>) -> Polyfilled<'a> {
        let messages = Cow::Borrowed(messages);
        Polyfilled { messages, applied: Vec::new(), diagnostics, id_map: Vec::new(), origins: None }
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
            id_map: conversation.id_map,
            origins: Some(conversation.messages),
        }
    }

    /// Whether the messages are as they were sent: each string is its member's text.
    pub fn is_untouched(&self) -> bool {
        self.origins.is_none()
    }

    /// Calls `visit(message, pointer, text, segments)` for every string of every message. `pointer`
    /// is a JSON pointer inside the message, for example `/content` or
    /// `/tool_calls/0/function/arguments/city`. Bytes of `text` outside the segments were added by
    /// a polyfill.
    pub fn visit_strings(&self, visit: StringVisitor) {
        let mut pointer = String::new();
        match &self.origins {
            Some(messages) => {
                for (index, message) in messages.iter().enumerate() {
                    message.members.visit(&mut pointer, &mut |pointer, text, segments| {
                        visit(index, pointer, text, segments)
                    });
                }
            }
            None => {
                for (index, message) in self.messages.iter().enumerate() {
                    let node = Node::from_member(message, &format!("messages[{index}]"));
                    node.visit(&mut pointer, &mut |pointer, text, segments| {
                        visit(index, pointer, text, segments)
                    });
                }
            }
        }
    }
}
