//! Why a template failed: a kind, a message and a line.

use std::any::Any;

use serde::Serialize;

use crate::error::{Code, Error};

/// A failed parse or render.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// `syntax`, `raised`, `undefined`, `type`, `unsupported`, `limit` or `engine`.
    pub kind: &'static str,
    /// For `raised` the template's own message, verbatim up to 4 KiB.
    pub message: String,
    /// Line of the template, from 1, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Failure {
    /// An error of the engine.
    pub(crate) fn of(error: &crate::jinja::TemplateError) -> Failure {
        Failure {
            kind: error.kind().as_str(),
            message: error.message().to_owned(),
            line: error.line().map(|line| line as usize),
        }
    }

    /// A panic of the engine.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Failure {
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("the template engine panicked");
        Failure { kind: "engine", message: message.to_owned(), line: None }
    }

    /// The crate's error: `TEMPLATE_LIMIT` for limits, else `TEMPLATE_ERROR`; details `{kind, line,
    /// template}`.
    pub(crate) fn into_error(self, template: &str) -> Error {
        let code = if self.kind == "limit" { Code::TemplateLimit } else { Code::TemplateError };
        let mut error = Error::new(code, self.message).with("kind", self.kind);
        if let Some(line) = self.line {
            error = error.with("line", line);
        }
        error.with("template", template)
    }
}
