//! Checks requirements of llama.cpp that it does not check itself. A file that breaks them would
//! fail an assertion on a worker thread, or make it read invalid memory.
//!
//! In: architecture, metadata and tensor table. Out: an error that names the key or tensor, and the
//! rule. Unknown architectures are checked only against rules that need no table. The tables follow
//! the pinned llama.cpp (`scripts/architectures.py`); `make harden` tests them.

mod experts;
mod hyperparameters;
mod indexers;
mod layers;
mod limits;
mod rotations;
#[cfg(test)]
mod tests;
mod types;

use std::path::Path;

use super::header::ModelHeader;
use super::metadata::Metadata;
use super::tensors::TensorInfo;
use crate::error::{Code, Error, Result};

pub(super) use hyperparameters::element;

/// `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u32 = 512;

/// The facts about a file that the checks read.
pub(super) struct Facts<'a> {
    pub(super) architecture: &'a str,
    pub(super) metadata: &'a Metadata,
    pub(super) tensors: &'a [TensorInfo],
}

/// Fails with `MODEL_INVALID` at the first rule that the file breaks.
pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    types::check(facts)?;
    hyperparameters::check(facts)?;
    limits::check(facts)?;
    rotations::check(facts)?;
    layers::check(facts)?;
    experts::check(facts)?;
    indexers::check(facts)
}

impl ModelHeader {
    /// Checks the file at `path`, before llama.cpp opens it.
    ///
    /// # Errors
    /// `MODEL_INVALID` with the path and the problem.
    pub fn check_before_load(&self, path: &Path) -> Result<()> {
        self.check_complete().map_err(|error| error.about(path.display()))?;
        self.check_loadable().map_err(|error| error.about(path.display()))?;
        self.check_tokens(path)
    }
}

fn refused(message: String) -> Error {
    Error::new(Code::ModelInvalid, message)
}
