//! Errors in a spec.

use crate::diagnostic::Diagnostic;
use crate::error::Error;

/// The reason of an error, which becomes `details.reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A required field is missing.
    MissingField,
    /// The value of a field is not allowed.
    BadValue,
    /// A slot is unknown, missing or repeated.
    BadSlot,
    /// A brace is unmatched.
    UnbalancedBrace,
    /// The field is unknown. Reported only under `strict`.
    UnknownField,
    /// No template of this name is registered.
    UnknownTemplate,
    /// A template of this name is already registered.
    NameTaken,
    /// A warning that is an error under `strict`. The code of the warning is the reason.
    Warning(&'static str),
}

impl Reason {
    /// The value of `details.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::MissingField => "missing_field",
            Reason::BadValue => "bad_value",
            Reason::BadSlot => "bad_slot",
            Reason::UnbalancedBrace => "unbalanced_brace",
            Reason::UnknownField => "unknown_field",
            Reason::UnknownTemplate => "unknown_template",
            Reason::NameTaken => "name_taken",
            Reason::Warning(code) => code,
        }
    }
}

/// An error in a spec.
#[derive(Debug)]
pub struct SpecFault {
    /// The reason.
    pub reason: Reason,
    path: String,
    problem: String,
}

impl SpecFault {
    /// Creates an error in the field at `path`.
    pub(crate) fn new(reason: Reason, path: &str, problem: impl Into<String>) -> SpecFault {
        SpecFault { reason, path: path.to_owned(), problem: problem.into() }
    }
}

impl From<SpecFault> for Error {
    /// `INVALID_REQUEST` with `details` `{reason, path}`.
    fn from(fault: SpecFault) -> Error {
        let SpecFault { reason, path, problem } = fault;
        Error::invalid(&path, problem).with("reason", reason.as_str()).with("path", path)
    }
}

impl From<&Diagnostic> for SpecFault {
    fn from(warning: &Diagnostic) -> SpecFault {
        let path = warning.path.as_deref().unwrap_or_default();
        SpecFault::new(Reason::Warning(warning.code), path, warning.message.as_str())
    }
}
