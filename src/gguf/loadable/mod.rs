//! What llama.cpp needs of a file and does not check: it fails an assertion on a worker thread, or
//! reads memory that is not there.
//!
//! In: architecture, metadata and tensor table. Out: an error that names the key or tensor and the
//! rule. Unknown architectures get the rules that need no table. The tables follow the pinned
//! llama.cpp (`scripts/architectures.py`); `make harden` tries them.

mod hyperparameters;
mod layers;
#[cfg(test)]
mod tests;
mod types;

use super::metadata::Metadata;
use super::tensors::TensorInfo;
use crate::error::{Code, Error, Result};

/// What the checks read.
pub(super) struct Facts<'a> {
    pub(super) architecture: &'a str,
    pub(super) metadata: &'a Metadata,
    pub(super) tensors: &'a [TensorInfo],
}

/// `MODEL_INVALID` with the first rule that the file breaks.
pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    types::check(facts)?;
    hyperparameters::check(facts)?;
    layers::check(facts)
}

fn refused(message: String) -> Error {
    Error::new(Code::ModelInvalid, message)
}
