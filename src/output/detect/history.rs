//! How calls are written in the messages of a history.

use serde_json::{Value, json};

use crate::output::call_writer::json as write_json;
use crate::probing;

/// The form of a history with calls; templates differ in what they accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HistoryForm {
    /// Whether arguments are JSON text instead of an object.
    pub(crate) text_arguments: bool,
    /// Whether missing content is null instead of "".
    pub(crate) null_content: bool,
    /// Whether ids contain the name, as in `functions.f:0`.
    pub(crate) named_ids: bool,
}

impl HistoryForm {
    /// The id of the call at this index: `id`, unless ids contain the name.
    pub(crate) fn id(self, index: usize, name: &str, id: &str) -> String {
        if self.named_ids { format!("functions.{name}:{index}") } else { id.to_owned() }
    }

    /// A call of a message.
    pub(crate) fn call(self, id: &str, name: &str, arguments: &Value) -> Value {
        if !self.text_arguments {
            return probing::call(id, name, arguments);
        }
        let mut text = String::new();
        write_json(arguments, false, &mut text);
        probing::call(id, name, &text.into())
    }

    /// An assistant message with calls. `reasoning` is the name of a member and its text.
    pub(crate) fn answer(
        self,
        content: &str,
        reasoning: Option<(&str, &str)>,
        calls: Vec<Value>,
    ) -> Value {
        let null = content.is_empty() && self.null_content;
        let content = if null { Value::Null } else { content.into() };
        let mut message = json!({ "role": "assistant", "content": content });
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        if let Some((member, text)) = reasoning {
            message[member] = text.into();
        }
        message
    }
}
