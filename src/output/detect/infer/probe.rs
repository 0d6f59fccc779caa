//! Renders of histories that differ in one thing. What the assistant wrote is all behind the last
//! words of the user.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::output::call_writer::{WrittenCall, json as write_json};

/// `render(messages, tools, add_generation_prompt)`: a conversation through the model's own
/// template.
pub(crate) type Render<'a> = &'a dyn Fn(&[Value], &[Value], bool) -> Result<String>;

pub(super) const CONTENT: &str = "Zarvox quillem.";
pub(super) const REASONING: &str = "Brindle snarvik first.";
const USER: &str = "Gimble the quorvex.";
const NAMES: [&str; 4] = ["fetch_plimsoll", "rank_quagga", "sort_wimble", "hover_dracht"];
const IDS: [&str; 4] = ["pQ7xK2mWz", "vR4tN9bLc", "hJ6yD3sFg", "kT8wB5nXq"];
/// Keys in the order of the alphabet, in which some templates write them.
pub(super) const KEYS: [&str; 4] = ["akelv", "bmorn", "cquist", "dvrell"];
const VALUES: [[&str; 2]; 3] =
    [["tessilq", "umbrofz"], ["wexlim", "yorpund"], ["zintok", "sculvane"]];

/// A way of writing a history with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// Arguments as text, else as an object.
    pub(crate) text: bool,
    /// No content is null, else "".
    pub(crate) null: bool,
    /// Ids are `functions.f:0`, else nine letters and digits.
    pub(crate) named_ids: bool,
}

/// Renders in one form, and counts.
pub(super) struct Prober<'a> {
    pub(super) render: Render<'a>,
    pub(super) form: Form,
    pub(super) count: &'a Cell<u32>,
}

impl Prober<'_> {
    /// The prompt behind the user's words.
    pub(super) fn prompt(&self) -> Result<String, String> {
        self.behind_user(&[], true)
    }

    /// An answer that is nothing but content.
    pub(super) fn content(&self) -> Result<String, String> {
        self.behind_user(&[json!({ "role": "assistant", "content": CONTENT })], false)
    }

    /// What stands between an answer that is nothing but content and the next words of the user.
    pub(super) fn turn_end(&self) -> Option<String> {
        const NEXT: &str = "Mimsy tove outgrabe?";
        let user = |text: &str| json!({ "role": "user", "content": text });
        let messages = [user(USER), json!({ "role": "assistant", "content": CONTENT }), user(NEXT)];
        self.count.set(self.count.get() + 1);
        let text = (self.render)(&messages, &tools(), false).ok()?;
        let between = text.rsplit_once(CONTENT)?.1.split_once(NEXT)?.0;
        Some(between.to_owned())
    }

    /// An answer with reasoning under this key, and calls if there are any.
    pub(super) fn reasoning(&self, key: &str, list: &[WrittenCall]) -> Result<String, String> {
        let mut message = self.message(list, if list.is_empty() { CONTENT } else { "" });
        message.insert(key.to_owned(), REASONING.into());
        self.behind_user(&[Value::Object(message)], false)
    }

    /// An answer with calls, beside content or without any.
    pub(super) fn calls(&self, list: &[WrittenCall], content: &str) -> Result<String, String> {
        self.behind_user(&[Value::Object(self.message(list, content))], false)
    }

    fn message(&self, list: &[WrittenCall], content: &str) -> Map<String, Value> {
        let content =
            if content.is_empty() && self.form.null { Value::Null } else { content.into() };
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), content);
        if !list.is_empty() {
            let calls = list.iter().map(|call| {
                let arguments = if self.form.text { text(&call.arguments).into() } else { call.arguments.clone() };
                json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
            });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        message
    }

    fn behind_user(&self, messages: &[Value], prompt: bool) -> Result<String, String> {
        self.count.set(self.count.get() + 1);
        let mut all = vec![json!({ "role": "user", "content": USER })];
        all.extend_from_slice(messages);
        let text = (self.render)(&all, &tools(), prompt).map_err(|error| error.to_string())?;
        let at = text.rfind(USER).ok_or("the template drops what the user says")?;
        Ok(text[at + USER.len()..].to_owned())
    }

    /// Calls of different functions with two strings each.
    pub(super) fn strings(&self, count: usize) -> Vec<WrittenCall> {
        let arguments = VALUES.iter().map(|[a, b]| json!({ KEYS[0]: a, KEYS[1]: b }));
        self.list(0, arguments.take(count))
    }

    /// Calls with these arguments, the names from `first` on.
    pub(super) fn list(
        &self,
        first: usize,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Vec<WrittenCall> {
        let list = arguments.into_iter().enumerate().map(|(i, arguments)| {
            let name = NAMES[(first + i) % NAMES.len()].to_owned();
            let id = if self.form.named_ids {
                format!("functions.{name}:{i}")
            } else {
                IDS[(first + i) % IDS.len()].to_owned()
            };
            WrittenCall { name, arguments, id }
        });
        list.collect()
    }
}

/// Arguments as the text of a message.
fn text(arguments: &Value) -> String {
    let mut out = String::new();
    write_json(arguments, false, &mut out);
    out
}

fn tools() -> Vec<Value> {
    let tool = |name: &str| {
        let mut properties = Map::new();
        for (key, kind) in KEYS.iter().zip(["string", "string", "integer", "object"]) {
            properties.insert((*key).to_owned(), json!({ "type": kind, "description": "Ollits." }));
        }
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": "Ollits.",
                "parameters": { "type": "object", "properties": properties, "required": [] },
            },
        })
    };
    NAMES.map(tool).to_vec()
}
