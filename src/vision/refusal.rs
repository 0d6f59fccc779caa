//! Refusals of what a request says of images: `INVALID_REQUEST` with details `{"reason","path"}`,
//! as composing has them.

use std::fmt::Display;

use crate::api::Fields;
use crate::error::Error;

/// A refusal by reason and JSON path.
pub(crate) fn refused(reason: &str, path: &str, problem: impl Display) -> Error {
    Error::invalid(path, problem).with("reason", reason).with("path", path)
}

/// A member that must be there.
pub(super) fn missing(fields: &Fields, key: &str) -> Error {
    refused("missing_field", &fields.path(key), "missing")
}

/// What reading a member said, with the details that go with it.
pub(super) fn wrong(error: Error, path: &str) -> Error {
    error.with("reason", "bad_value").with("path", path)
}
