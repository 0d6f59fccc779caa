//! Why a template failed, in Python's words where Jinja2 would let Python speak.

use std::fmt;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The source is not a template.
    Syntax,
    /// The template refused, by `raise_exception`.
    Raised,
    /// Something undefined was used.
    Undefined,
    /// An operation does not take such a value.
    Type,
    /// Jinja2 has it, or lets it fail, and so do we.
    Unsupported,
    /// A limit was reached.
    Limit,
}

impl ErrorKind {
    /// The word in error details.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Syntax => "syntax",
            ErrorKind::Raised => "raised",
            ErrorKind::Undefined => "undefined",
            ErrorKind::Type => "type",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Limit => "limit",
        }
    }
}

/// A failed parse or render.
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

    /// What is a TypeError, ValueError or the like in Python.
    pub(crate) fn value(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Type, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> TemplateError {
        TemplateError::new(ErrorKind::Limit, message)
    }

    /// Adds the line, unless an inner expression has said it already.
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

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for TemplateError {}
