//! Calls of `tokenizers`, whose panics are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::document::invalid;
use crate::error::Result;
use crate::json;
use crate::panic::{self, Quiet};

/// The stack that a call may need.
const STACK: usize = 1 << 20;

/// Runs what belongs to `tokenizers`.
pub(super) fn caught<T>(run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    let _quiet = Quiet::enter();
    let result = stacker::maybe_grow(STACK / 2, STACK, || catch_unwind(AssertUnwindSafe(run)));
    match result {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => Err(panic::message(&*payload)),
    }
}

/// A component as `tokenizers` has it.
pub(super) fn parsed<T: serde::de::DeserializeOwned>(member: &str, value: &Value) -> Result<T> {
    let parsed = caught(|| Ok(json::into_type(value.clone())?));
    parsed.map_err(|problem| invalid(format_args!("{member}: {problem}")))
}
