//! The messages while steps change them, and the diagnostics of the steps.

use serde_json::Value;

use super::call_writer::CallWriter;
use super::node::{Node, NodeMembers};
use super::segmented_text::SegmentedText;
use crate::api::Polyfills;
use crate::diagnostic::{Diagnostic, MESSAGE_INDEX};
use crate::error::{Code, Error, Result};
use crate::template::probe::traits::{Details, TemplateCaps};

/// A diagnostic with [`MESSAGE_INDEX`]: the index of the message in the request.
pub(super) fn diagnostic(
    code: &'static str,
    message: impl Into<String>,
    index: Option<usize>,
) -> Diagnostic {
    let diagnostic = Diagnostic::new(code, message);
    match index {
        Some(index) => diagnostic.with(MESSAGE_INDEX, index),
        None => diagnostic,
    }
}

/// `CANCELLED` if the call is over.
pub(super) fn check(is_over: &dyn Fn() -> bool) -> Result<()> {
    if is_over() {
        return Err(Error::new(Code::Cancelled, "cancelled while the messages were adapted"));
    }
    Ok(())
}

/// The input of every step.
pub(super) struct PolyfillContext<'a> {
    pub(super) caps: TemplateCaps,
    pub(super) details: &'a Details,
    pub(super) tool_call_example: Option<&'a str>,
    pub(super) options: &'a Polyfills,
    pub(super) call_writer: Option<&'a dyn CallWriter>,
    pub(super) is_answered_next: bool,
    pub(super) schema: Option<&'a Value>,
    pub(super) tools: &'a [Value],
}

/// The state that steps change.
#[derive(Debug, Default)]
pub(super) struct PolyfillConversation {
    pub(super) messages: Vec<PolyfillMessage>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl PolyfillConversation {
    /// `CANCELLED` if the call is over before all messages are copied.
    pub(super) fn of(
        messages: &[Value],
        is_over: &dyn Fn() -> bool,
    ) -> Result<PolyfillConversation> {
        let message = |(index, message): (usize, &Value)| {
            check(is_over)?;
            let node = Node::from_member(message, &format!("messages[{index}]"));
            let members =
                if let Node::Map(members) = node { members } else { NodeMembers::default() };
            Ok(PolyfillMessage { index: Some(index), members })
        };
        let messages = messages.iter().enumerate().map(message).collect::<Result<_>>()?;
        Ok(PolyfillConversation { messages, ..PolyfillConversation::default() })
    }

    /// Changes each message. Returns whether any of them changed.
    pub(super) fn change_each(
        &mut self,
        mut change: impl FnMut(&mut PolyfillMessage) -> bool,
    ) -> bool {
        let mut changed = false;
        for message in &mut self.messages {
            changed |= change(message);
        }
        changed
    }

    /// Adds a diagnostic about a message of the request.
    pub(super) fn report(
        &mut self,
        code: &'static str,
        index: Option<usize>,
        message: impl Into<String>,
    ) {
        self.diagnostics.push(diagnostic(code, message, index));
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::template) struct PolyfillMessage {
    /// Its index in the request; None if a step added it.
    pub(super) index: Option<usize>,
    pub(in crate::template) members: NodeMembers,
}

impl PolyfillMessage {
    pub(super) fn new(role: &str, content: Node, index: Option<usize>) -> PolyfillMessage {
        PolyfillMessage {
            index,
            members: NodeMembers::of([("role", Node::literal(role)), ("content", content)]),
        }
    }

    pub(super) fn has_role(&self, role: &str) -> bool {
        self.members.str("role") == Some(role)
    }

    /// The content; None if absent or null.
    pub(super) fn content(&self) -> Option<&Node> {
        self.members.get("content").filter(|content| **content != Node::Null)
    }

    /// Replaces the content, or inserts it after the role.
    pub(super) fn set_content(&mut self, content: Node) {
        self.members.set_after("role", "content", content);
    }

    /// Removes and returns the content; `None` if it was absent or null.
    pub(super) fn take_content(&mut self) -> Option<Node> {
        self.members.remove("content").filter(|content| *content != Node::Null)
    }

    /// The calls; empty without the member.
    pub(super) fn calls(&self) -> &[Node] {
        match self.members.get("tool_calls") {
            Some(Node::List(calls)) => calls,
            _ => &[],
        }
    }

    pub(super) fn calls_mut(&mut self) -> &mut [Node] {
        match self.members.get_mut("tool_calls") {
            Some(Node::List(calls)) => calls,
            _ => &mut [],
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls().is_empty()
    }

    /// The canonical reasoning of an assistant message.
    pub(super) fn reasoning(&self) -> Option<&SegmentedText> {
        self.members.text("reasoning_content").filter(|_| self.has_role("assistant"))
    }

    /// `messages[2]`, for errors.
    pub(super) fn path(&self) -> String {
        self.index.map_or_else(|| "messages".to_owned(), |index| format!("messages[{index}]"))
    }
}
