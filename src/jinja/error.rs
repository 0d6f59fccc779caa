//! Errors of parsing and rendering, in Python's words where Python would raise them.
//!
//! Messages are short, because they may quote the template's own texts: a message keeps
//! [`MESSAGE_BYTES`], a name in it [`NAME_BYTES`].

use std::fmt;

named_enum! {
    /// What went wrong in a parse or render.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErrorKind {
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
        /// The interpreter panicked. Only its callers report this.
        Engine = "engine",
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

/// Maximum bytes of a message.
const MESSAGE_BYTES: usize = 4 << 10;
/// Maximum bytes of a name in a message.
const NAME_BYTES: usize = 512;

pub(crate) type Result<T, E = TemplateError> = std::result::Result<T, E>;

impl TemplateError {
    /// An error with this message, cut to [`MESSAGE_BYTES`].
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> TemplateError {
        let mut message: String = message.into();
        if message.len() > MESSAGE_BYTES {
            message = format!("{}…", cut(&message, MESSAGE_BYTES - '…'.len_utf8()));
        }
        TemplateError(Box::new(TemplateErrorInner { kind, message, line: None }))
    }

    /// The error of `raise_exception`.
    pub(crate) fn raised(message: &str) -> TemplateError {
        // One byte more than fits shows that the message is cut.
        TemplateError::new(ErrorKind::Raised, cut(message, MESSAGE_BYTES + 4))
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

    /// The size in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<TemplateErrorInner>() + self.0.message.capacity()
    }

    pub(crate) fn line(&self) -> Option<u32> {
        self.0.line
    }
}

/// The start of a name, for a message.
pub(crate) fn shown(name: &str) -> &str {
    cut(name, NAME_BYTES)
}

/// The longest start of a text with at most this many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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
