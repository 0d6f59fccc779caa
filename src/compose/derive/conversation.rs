//! One conversation as a template is given it: what a probe or a check renders.

use serde_json::{Value, json};

/// Messages and everything else that decides a prompt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    /// OpenAI-style messages.
    pub(crate) messages: Vec<Value>,
    /// Declared tools; None leaves them out.
    pub(crate) tools: Option<Vec<Value>>,
    /// Skills; None leaves them out.
    pub(crate) skills: Option<Vec<Value>>,
    /// End with the start of an assistant turn.
    pub(crate) generation_prompt: bool,
    /// How many days after the day of all other renders.
    pub(crate) later: i64,
    /// `enable_thinking`; None leaves it out.
    pub(crate) thinking: Option<bool>,
}

impl Conversation {
    /// A conversation that begins with this user message.
    pub(crate) fn asking(text: &str) -> Conversation {
        Conversation::default().user(text)
    }

    /// A conversation that begins with this system message.
    pub(crate) fn instructed(text: &str) -> Conversation {
        Conversation::default().message(json!({ "role": "system", "content": text }))
    }

    /// One more message.
    pub(crate) fn message(mut self, message: Value) -> Conversation {
        self.messages.push(message);
        self
    }

    /// One more user message.
    pub(crate) fn user(self, text: &str) -> Conversation {
        self.message(json!({ "role": "user", "content": text }))
    }

    /// One more answer.
    pub(crate) fn assistant(self, text: &str) -> Conversation {
        self.message(json!({ "role": "assistant", "content": text }))
    }

    /// One more answer with calls.
    pub(crate) fn calling(self, text: &str, calls: &[Value]) -> Conversation {
        self.message(json!({ "role": "assistant", "content": text, "tool_calls": calls }))
    }

    /// One more tool result, of the call with this id.
    pub(crate) fn result(self, id: &str, text: &str) -> Conversation {
        self.message(json!({ "role": "tool", "tool_call_id": id, "content": text }))
    }

    /// The same with these tools.
    pub(crate) fn tools(mut self, tools: &[Value]) -> Conversation {
        self.tools = Some(tools.to_vec());
        self
    }

    /// The same with these skills.
    pub(crate) fn skills(mut self, skills: &[Value]) -> Conversation {
        self.skills = Some(skills.to_vec());
        self
    }

    /// The same with a generation prompt.
    pub(crate) fn prompt(mut self) -> Conversation {
        self.generation_prompt = true;
        self
    }

    /// The same with `enable_thinking`.
    pub(crate) fn thinking(mut self, thinking: bool) -> Conversation {
        self.thinking = Some(thinking);
        self
    }

    /// The same, so many days later.
    pub(crate) fn later(mut self, days: i64) -> Conversation {
        self.later = days;
        self
    }
}

/// What the texts and names of all probes begin with.
const MARKS: [&str; 11] = [
    "Quser", "Qanswer", "Qreason", "Qlate", "Qsystem", "Qresult", "Qplace", "qtool", "qcall",
    "qkey", "qskill",
];

/// Whether a text has something of a probe's in it: then it is no constant text of the template.
pub(crate) fn shows_probe(text: &str) -> bool {
    MARKS.iter().any(|mark| text.contains(mark))
}

/// A tool in OpenAI's form.
pub(crate) fn tool(name: &str, description: &str, parameters: &Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
}

/// A call in OpenAI's form.
pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}
