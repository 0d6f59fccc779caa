//! What is wrong with a spec, and what is only odd.

use crate::diagnostic::Diagnostic;
use crate::error::Error;

/// Why a spec is refused: `details.reason` of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A field that must be there is not.
    MissingField,
    /// A field has a value that it cannot have.
    BadValue,
    /// A slot is unknown, missing, or there too often.
    BadSlot,
    /// A brace opens or closes nothing.
    UnbalancedBrace,
    /// Nobody knows the field, and `strict` was asked for.
    UnknownField,
    /// No template of this name is registered.
    UnknownTemplate,
    /// A template of this name is registered.
    NameTaken,
    /// A warning under `strict`: its own code is the reason.
    Warning(&'static str),
}

impl Reason {
    /// As `details.reason` spells it.
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

/// A refused spec.
#[derive(Debug)]
pub struct SpecFault {
    /// Why.
    pub reason: Reason,
    path: String,
    problem: String,
}

impl SpecFault {
    /// A fault of the field at `path`.
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
