//! One conversation to render, and the messages, tools and calls in it.

use serde_json::{Value, json};

/// The input of one render: messages and variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probe {
    /// OpenAI-style messages, passed on unchanged.
    pub(crate) messages: Vec<Value>,
    /// The variable `tools`; None leaves it undefined.
    pub(crate) tools: Option<Value>,
    /// The variable `skills`; None leaves it undefined.
    pub(crate) skills: Option<Vec<Value>>,
    /// Further variables.
    pub(crate) kwargs: Vec<(&'static str, Value)>,
    /// Whether the prompt ends with the start of an assistant turn.
    pub(crate) add_generation_prompt: bool,
    /// The clock of this probe, in seconds after [`PROBE_TIME`](super::PROBE_TIME).
    pub(crate) later: i64,
}

impl Probe {
    /// A conversation that starts with this user message.
    pub(crate) fn from_user(text: &str) -> Probe {
        Probe::default().user(text)
    }

    /// A conversation that starts with this system message.
    pub(crate) fn from_system(text: &str) -> Probe {
        Probe::default().message(json!({ "role": "system", "content": text }))
    }

    /// Appends a message.
    pub(crate) fn message(mut self, message: Value) -> Probe {
        self.messages.push(message);
        self
    }

    /// Appends a user message.
    pub(crate) fn user(self, text: &str) -> Probe {
        self.message(json!({ "role": "user", "content": text }))
    }

    /// Appends an assistant message.
    pub(crate) fn assistant(self, text: &str) -> Probe {
        self.message(assistant_message(text))
    }

    /// Appends an assistant message with tool calls.
    pub(crate) fn calls(self, text: &str, calls: &[Value]) -> Probe {
        self.message(json!({ "role": "assistant", "content": text, "tool_calls": calls }))
    }

    /// Appends a tool result for the call with this id.
    pub(crate) fn result(self, id: &str, text: &str) -> Probe {
        self.message(json!({ "role": "tool", "tool_call_id": id, "content": text }))
    }

    /// Declares tools.
    pub(crate) fn tools(mut self, tools: &[Value]) -> Probe {
        self.tools = Some(tools.into());
        self
    }

    /// Declares skills.
    pub(crate) fn skills(mut self, skills: &[Value]) -> Probe {
        self.skills = Some(skills.to_vec());
        self
    }

    /// Sets a variable.
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<Value>) -> Probe {
        self.kwargs.push((name, value.into()));
        self
    }

    /// Asks for a generation prompt.
    pub(crate) fn generation_prompt(mut self) -> Probe {
        self.add_generation_prompt = true;
        self
    }

    /// Moves the clock of this probe forward by this many days.
    pub(crate) fn days_later(mut self, days: i64) -> Probe {
        self.later = days * 86_400;
        self
    }

    /// The declared tools; `None` if `tools` is undefined or not a list.
    pub(crate) fn tool_list(&self) -> Option<&[Value]> {
        self.tools.as_ref()?.as_array().map(Vec::as_slice)
    }
}

pub(crate) fn assistant_message(text: &str) -> Value {
    json!({ "role": "assistant", "content": text })
}

/// A tool in OpenAI's form.
pub(crate) fn tool(name: &str, description: &str, parameters: &Value) -> Value {
    let function = json!({ "name": name, "description": description, "parameters": parameters });
    json!({ "type": "function", "function": function })
}

/// A call in OpenAI's form.
pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}
