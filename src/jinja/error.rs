//! Errors of parsing and rendering, in Python's words where Python would raise them.

use std::fmt;

named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ErrorKind {
        /// The source is not a valid template.
        Syntax = "syntax",
        /// The template called `raise_exception`.
        Raised = "raised",
        /// An undefined value was used.
        Undefined = "undefined",
        /// The operation does not support the type or value.
        Type = "type",
        /// An unknown filter or test, an access that the sandbox rejects, or a missing feature.
        Unsupported = "unsupported",
        /// A limit was reached.
        Limit = "limit",
    }
}

/// An error of parsing or rendering.
#[derive(Debug, Clone)]
pub(crate) struct TemplateError(Box<TemplateErrorInner>);

#[derive(Debug, Clone)]
struct TemplateErrorInner {
    kind: ErrorKind,
    message: String,
    line: Option<u32>,
}

pub(crate) type Result<T, E = TemplateError> = std::result::Result<T, E>;

impl TemplateError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> TemplateError {
        TemplateError(Box::new(TemplateErrorInner { kind, message: message.into(), line: None }))
    }

    pub(crate) fn syntax(message: impl Into<String>, line: u32) -> TemplateError {
        TemplateError::new(ErrorKind::Syntax, message).at(line)
    }

    pub(crate) fn undefined(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Undefined, message)
    }

    /// A TypeError, ValueError or similar error in Python.
    pub(crate) fn value(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Type, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Limit, message)
    }

    /// Sets the line unless an inner expression has set it.
    pub(crate) fn at(mut self, line: u32) -> TemplateError {
        self.0.line.get_or_insert(line);
        self
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    pub(crate) fn line(&self) -> Option<u32> {
        self.0.line
    }
}

/// Fails with a TypeError, ValueError or similar error of Python.
pub(crate) fn type_error<T>(message: impl Into<String>) -> Result<T> {
    Err(TemplateError::value(message))
}

pub(crate) fn unsupported<T>(message: impl Into<String>) -> Result<T> {
    Err(TemplateError::unsupported(message))
}

pub(crate) fn limit_error<T>(message: impl Into<String>) -> Result<T> {
    Err(TemplateError::limit(message))
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for TemplateError {}
