//! Why a template failed: a kind, a message and a line.

use std::any::Any;

use serde::Serialize;

use crate::error::{Code, Error};
use crate::jinja::{ErrorKind, TemplateError};

/// A failed parse or render.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What went wrong.
    pub kind: ErrorKind,
    /// For `raised` the template's own message, verbatim up to 4 KiB.
    pub message: String,
    /// Line of the template, from 1, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Failure {
    /// An error of the engine.
    pub(crate) fn of(error: &TemplateError) -> Failure {
        let line = error.line().map(|line| line as usize);
        Failure { kind: error.kind(), message: error.message().to_owned(), line }
    }

    /// A limit that was exceeded outside of the engine.
    pub(crate) fn limit(message: String) -> Failure {
        Failure { kind: ErrorKind::Limit, message, line: None }
    }

    /// A panic of the engine.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Failure {
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("the template engine panicked");
        Failure { kind: ErrorKind::Engine, message: message.to_owned(), line: None }
    }

    /// Whether the template itself refused, by `raise_exception`.
    pub(crate) fn is_refusal(&self) -> bool {
        self.kind == ErrorKind::Raised
    }

    /// Whether a limit was exceeded.
    pub(crate) fn is_limit(&self) -> bool {
        self.kind == ErrorKind::Limit
    }

    /// The crate's error: `TEMPLATE_LIMIT` for limits, else `TEMPLATE_ERROR`; details `{kind, line,
    /// template}`.
    pub(crate) fn into_error(self, template: &str) -> Error {
        let code = if self.is_limit() { Code::TemplateLimit } else { Code::TemplateError };
        let mut error = Error::new(code, self.message).with("kind", self.kind.as_str());
        if let Some(line) = self.line {
            error = error.with("line", line);
        }
        error.with("template", template)
    }
}
