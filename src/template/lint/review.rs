//! A review in progress: the lints found so far, and the messages of most conversations.

use serde::Serialize;
use serde_json::{Value, json};

use crate::jinja::Inspection;
use crate::template::probe::baseline::{Baseline, tool};
use crate::template::probe::evidence::RenderResult;
use crate::template::probe::exchange_form::ExchangeForm;
use crate::template::probe::traits::{NoContent, Traits};

/// The maximum number of characters of template text that a message quotes.
const SHOWN: usize = 200;

named_enum! {
    /// How bad a lint is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// Something never works, or content is lost silently.
        Error = "error",
        /// Common conversations fail or change.
        Warning = "warning",
        /// Informative only.
        Info = "info",
    }
}

/// A remark on a chat template that its author should read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// Stable, for programs.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// A message for people.
    pub message: String,
    /// `default`, `tool_use`, or `chatml` (the built-in one).
    pub template: &'static str,
    /// The line in the template, counted from 1, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Lint {
    /// `{"code","severity","message","template","line"?}`.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

/// A review in progress.
pub(super) struct Review<'a> {
    pub(super) base: &'a Baseline<'a>,
    pub(super) traits: &'a Traits,
    pub(super) source: &'a Inspection,
    pub(super) name: &'static str,
    pub(super) lints: Vec<Lint>,
}

pub(super) const CALLED: &str = "some_tool";
pub(super) const SECOND: &str = "second_tool";
pub(super) const RESULT: &str = "result_needle";
pub(super) const ANSWER: &str = "answer_needle";
pub(super) const SYSTEM: &str = "system_needle";
pub(super) const ID: &str = "call00001";
pub(super) const SECOND_ID: &str = "call00002";

impl Review<'_> {
    /// Adds a lint without a line.
    pub(super) fn add(
        &mut self,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
    ) {
        self.add_at(severity, code, None, message);
    }

    /// Adds a lint.
    pub(super) fn add_at(
        &mut self,
        severity: Severity,
        code: &'static str,
        line: Option<usize>,
        message: impl Into<String>,
    ) {
        let message = message.into();
        self.lints.push(Lint { code, severity, message, template: self.name, line });
    }

    /// Whether there is a lint with this code.
    pub(super) fn has(&self, code: &str) -> bool {
        self.lints.iter().any(|lint| lint.code == code)
    }

    pub(super) fn user(&self) -> Value {
        self.base.user()
    }

    pub(super) fn answer(&self) -> Value {
        self.base.message("assistant", ANSWER)
    }

    pub(super) fn system(&self) -> Value {
        self.base.message("system", SYSTEM)
    }

    pub(super) fn render(&self, messages: Vec<Value>) -> RenderResult {
        self.base.render(messages)
    }

    /// The prompt of a conversation with the called tools declared.
    pub(super) fn render_called(&self, messages: Vec<Value>) -> RenderResult {
        self.base.render_with(messages, &self.tools())
    }

    /// The called tools.
    pub(super) fn tools(&self) -> Value {
        json!([tool(CALLED), tool(SECOND)])
    }

    /// The form in which calls appear in the prompt. If no form does, the form that fails least.
    pub(super) fn form(&self) -> ExchangeForm {
        let form = ExchangeForm::of(self.traits);
        let content =
            if self.traits.caps.supports_tool_calls { form.content } else { NoContent::Empty };
        ExchangeForm { content, ..form }
    }

    /// An assistant message that calls a tool with these arguments, in that form.
    pub(super) fn call(&self, arguments: Value) -> Value {
        self.form().call_of(self.base, CALLED, arguments)
    }

    /// An assistant message that calls a tool.
    pub(super) fn plain_call(&self) -> Value {
        self.call(json!({ "argument": "value_needle" }))
    }

    /// The result of that call.
    pub(super) fn result(&self) -> Value {
        let mut message = self.base.message("tool", RESULT);
        message["tool_call_id"] = ID.into();
        message["name"] = CALLED.into();
        message
    }
}

/// The start of a text, on one line.
pub(super) fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
