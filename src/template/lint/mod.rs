//! Lints: remarks that the author of a template should read. In: a source and a prober. Out: lints
//! with their lines.
//!
//! Every lint is based on a render or on the source. A render that ends in an engine error or a
//! limit gives no lint. Codes: docs/templates.md.

mod instructions;
mod losses;
mod order;
mod python_repr;
mod refused_conversations;
mod rewrites;
mod source;

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::probe::baseline::{Baseline, RenderResult, tool};
use super::probe::exchange_form::ExchangeForm;
use super::probe::prober::Prober;
use super::probe::traits::{NoContent, Traits};
use super::templates::{CHATML, TOOL_USE};
use crate::jinja::Inspection;

/// The maximum number of lints of one template.
const MOST: usize = 50;
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

/// The tool_use template does not parse.
pub(super) fn tool_use_ignored(failure: &Failure) -> Lint {
    Lint {
        code: "tool_use_template_ignored",
        severity: Severity::Error,
        message: format!(
            "the tool_use template is ignored because it does not parse: {}",
            failure.message
        ),
        template: TOOL_USE,
        line: failure.line,
    }
}

/// The file has no template.
pub(super) fn built_in() -> Lint {
    Lint {
        code: "no_chat_template",
        severity: Severity::Warning,
        message: "the file has no chat template; the built-in ChatML is used".to_owned(),
        template: CHATML,
        line: None,
    }
}

/// Reviews one template.
pub(super) fn review(
    name: &'static str,
    mut prober: Prober,
    source: &Inspection,
    traits: &Traits,
) -> Vec<Lint> {
    let base = Baseline::find(&mut prober);
    let mut review = Review { base: &base, traits, source, name, lints: Vec::new() };
    source::review(&mut review);
    match &base.plain {
        Err(failure) => {
            let message = format!("a single user message does not render: {}", failure.message);
            review.add(Severity::Error, "does_not_render", failure.line, message);
        }
        Ok(_) => {
            refused_conversations::review(&mut review);
            losses::review(&mut review);
            python_repr::review(&mut review);
            instructions::review(&mut review);
            rewrites::review(&mut review);
            order::review(&mut review);
        }
    }
    review.lints.truncate(MOST);
    review.lints
}

/// A review in progress.
struct Review<'a> {
    base: &'a Baseline<'a>,
    traits: &'a Traits,
    source: &'a Inspection,
    name: &'static str,
    lints: Vec<Lint>,
}

const CALLED: &str = "some_tool";
const SECOND: &str = "second_tool";
const RESULT: &str = "result_needle";
const ANSWER: &str = "answer_needle";
const SYSTEM: &str = "system_needle";
const ID: &str = "call00001";
const SECOND_ID: &str = "call00002";

impl Review<'_> {
    fn add(
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
    fn has(&self, code: &str) -> bool {
        self.lints.iter().any(|lint| lint.code == code)
    }

    fn user(&self) -> Value {
        self.base.user()
    }

    fn answer(&self) -> Value {
        self.base.message("assistant", ANSWER)
    }

    fn system(&self) -> Value {
        self.base.message("system", SYSTEM)
    }

    fn render(&self, messages: Vec<Value>) -> RenderResult {
        self.base.render(messages)
    }

    /// The prompt of a conversation with the called tools declared.
    fn render_called(&self, messages: Vec<Value>) -> RenderResult {
        self.base.render_with(messages, &self.tools())
    }

    /// The called tools.
    fn tools(&self) -> Value {
        json!([tool(CALLED), tool(SECOND)])
    }

    /// The form in which calls appear in the prompt. If no form does, the form that fails least.
    fn form(&self) -> ExchangeForm {
        let form = ExchangeForm::of(self.traits);
        let content =
            if self.traits.caps.supports_tool_calls { form.content } else { NoContent::Empty };
        ExchangeForm { content, ..form }
    }

    /// An assistant message that calls a tool with these arguments, in that form.
    fn call(&self, arguments: Value) -> Value {
        self.form().call_of(self.base, CALLED, arguments)
    }

    /// An assistant message that calls a tool.
    fn plain_call(&self) -> Value {
        self.call(json!({ "argument": "value_needle" }))
    }

    /// The result of that call.
    fn result(&self) -> Value {
        let mut message = self.base.message("tool", RESULT);
        message["tool_call_id"] = ID.into();
        message["name"] = CALLED.into();
        message
    }
}

/// The start of a text, on one line.
fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
