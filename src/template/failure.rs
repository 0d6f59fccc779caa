//! Why a template failed: an error of the engine in, a kind, message and line out.

use std::any::Any;
use std::error::Error as _;
use std::fmt;

use minijinja::ErrorKind;

use super::limits::Exceeded;
use crate::error::{Code, Error};

/// The template itself refused, by `raise_exception`.
#[derive(Debug)]
pub(crate) struct Raised(pub(crate) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// A failed parse or render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// `syntax`, `raised`, `undefined`, `type`, `unsupported`, `limit` or `engine`.
    pub kind: &'static str,
    /// For `raised` the template's own message, verbatim.
    pub message: String,
    /// Line of the template, from 1, where known.
    pub line: Option<usize>,
}

impl Failure {
    /// What the engine reported.
    pub(crate) fn of(error: &minijinja::Error) -> Failure {
        let line = error.line();
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(Raised(message)) = inner.downcast_ref() {
                return Failure { kind: "raised", message: message.clone(), line };
            }
            if let Some(Exceeded(message)) = inner.downcast_ref() {
                return Failure { kind: "limit", message: message.clone(), line };
            }
            cause = inner.source();
        }
        let detail = error.detail().unwrap_or_default();
        let kind = match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape => "syntax",
            ErrorKind::OutOfFuel => "limit",
            // The engine has no kind of its own for these two.
            ErrorKind::InvalidOperation if detail == "recursion limit exceeded" => "limit",
            ErrorKind::InvalidOperation if detail.starts_with("range has too many elements") => "limit",
            ErrorKind::UndefinedError => "undefined",
            ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod
            | ErrorKind::TemplateNotFound
            | ErrorKind::BadInclude => "unsupported",
            _ => "type",
        };
        let message = match detail {
            "" => error.kind().to_string(),
            detail => format!("{}: {detail}", error.kind()),
        };
        Failure { kind, message, line }
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

    /// The crate's error: `TEMPLATE_LIMIT` for limits, else `TEMPLATE_ERROR`; details `{kind, line, template}`.
    pub(crate) fn into_error(self, template: &str) -> Error {
        let code = if self.kind == "limit" { Code::TemplateLimit } else { Code::TemplateError };
        let mut error = Error::new(code, self.message).with("kind", self.kind);
        if let Some(line) = self.line {
            error = error.with("line", line);
        }
        error.with("template", template)
    }
}
