//! Renders of histories that differ in one thing. The assistant's part is the text after the last
//! user message.

use serde_json::{Map, Value, json};

use crate::output::call_writer::WrittenCall;
use crate::output::detect::history::HistoryForm;
use crate::probing::diff::text_between;
use crate::probing::{Probe, ProbeRenderer, assistant_message, tool};

pub(super) const CONTENT: &str = "Zarvox quillem.";
pub(super) const REASONING: &str = "Brindle snarvik first.";
const USER: &str = "Gimble the quorvex.";
const NEXT_USER: &str = "Mimsy tove outgrabe?";
const NAMES: [&str; 4] = ["fetch_plimsoll", "rank_quagga", "sort_wimble", "hover_dracht"];
const IDS: [&str; 4] = ["pQ7xK2mWz", "vR4tN9bLc", "hJ6yD3sFg", "kT8wB5nXq"];
/// Keys in alphabetical order: some templates sort them.
pub(super) const KEYS: [&str; 4] = ["akelv", "bmorn", "cquist", "dvrell"];
const VALUES: [[&str; 2]; 3] =
    [["tessilq", "umbrofz"], ["wexlim", "yorpund"], ["zintok", "sculvane"]];

/// Renders histories in one form.
pub(super) struct HistoryProber<'a> {
    pub(super) renderer: &'a ProbeRenderer<'a>,
    pub(super) form: HistoryForm,
}

impl HistoryProber<'_> {
    /// The generation prompt, after the user message.
    pub(super) fn prompt(&self) -> Result<String, String> {
        self.after_user(conversation().generation_prompt())
    }

    /// An answer with content only.
    pub(super) fn content(&self) -> Result<String, String> {
        self.after_user(conversation().message(assistant_message(CONTENT)))
    }

    /// The text between an answer with content only and the next user message.
    pub(super) fn turn_end(&self) -> Option<String> {
        let text = self.renderer.prompt(&conversation().assistant(CONTENT).user(NEXT_USER))?;
        let at = text.rfind(CONTENT)?;
        text_between(&text[at..], CONTENT, NEXT_USER).map(str::to_owned)
    }

    /// An answer with reasoning in this member, and with these calls. Without calls it has content
    /// instead.
    pub(super) fn reasoning(&self, member: &str, calls: &[WrittenCall]) -> Result<String, String> {
        let content = if calls.is_empty() { CONTENT } else { "" };
        self.answer(content, Some((member, REASONING)), calls)
    }

    /// An answer with calls, with or without content.
    pub(super) fn calls(&self, calls: &[WrittenCall], content: &str) -> Result<String, String> {
        self.answer(content, None, calls)
    }

    fn answer(
        &self,
        content: &str,
        reasoning: Option<(&str, &str)>,
        calls: &[WrittenCall],
    ) -> Result<String, String> {
        let calls = calls.iter().map(|call| self.form.call(&call.id, &call.name, &call.arguments));
        self.after_user(conversation().message(self.form.answer(
            content,
            reasoning,
            calls.collect(),
        )))
    }

    fn after_user(&self, probe: Probe) -> Result<String, String> {
        let text = self.renderer.render(&probe)?;
        let at = text.rfind(USER).ok_or("the template drops the text of the user message")?;
        Ok(text[at + USER.len()..].to_owned())
    }

    /// Calls of different functions with two strings each.
    pub(super) fn strings(&self, count: usize) -> Vec<WrittenCall> {
        let arguments = VALUES.iter().map(|[a, b]| json!({ KEYS[0]: a, KEYS[1]: b }));
        self.list(0, arguments.take(count))
    }

    /// Calls with these arguments and with the names from `first` on.
    pub(super) fn list(
        &self,
        first: usize,
        arguments: impl IntoIterator<Item = Value>,
    ) -> Vec<WrittenCall> {
        let list = arguments.into_iter().enumerate().map(|(i, arguments)| {
            let name = NAMES[(first + i) % NAMES.len()].to_owned();
            let id = self.form.id(i, &name, IDS[(first + i) % IDS.len()]);
            WrittenCall { name, arguments, id }
        });
        list.collect()
    }
}

fn conversation() -> Probe {
    let properties: Map<String, Value> = KEYS
        .iter()
        .zip(["string", "string", "integer", "object"])
        .map(|(key, kind)| ((*key).to_owned(), json!({ "type": kind, "description": "Ollits." })))
        .collect();
    let parameters = json!({ "type": "object", "properties": properties, "required": [] });
    Probe::from_user(USER).tools(&NAMES.map(|name| tool(name, "Ollits.", &parameters)))
}
