//! The member of requests that names a model file.

use super::fields::Fields;
use crate::error::Result;

/// The name of the member.
pub(crate) const MODEL_PATH: &str = "model_path";

/// Reads the member, which is required.
pub(crate) fn model_path<'a>(fields: &mut Fields<'a>) -> Result<&'a str> {
    match fields.string(MODEL_PATH)? {
        Some("") => Err(fields.invalid(MODEL_PATH, "is empty; pass the path of a GGUF file")),
        Some(path) => Ok(path),
        None => Err(fields.invalid(MODEL_PATH, "missing; pass the path of a GGUF file")),
    }
}
