//! Errors of the member `vision`: `INVALID_REQUEST` with details `{"reason","path"}`, as in compose
//! requests.

use std::fmt::Display;

use crate::api::Fields;
use crate::error::Error;

/// An error with a reason and a JSON path.
pub(crate) fn refused(reason: &str, path: &str, problem: impl Display) -> Error {
    Error::invalid(path, problem).with("reason", reason).with("path", path)
}

/// The error for a missing required member.
pub(super) fn missing(fields: &Fields, key: &str) -> Error {
    refused("missing_field", &fields.path(key), "missing")
}
