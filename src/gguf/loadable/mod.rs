//! Checks requirements of llama.cpp that it does not check itself. A file that breaks them would
//! fail an assertion on a worker thread, or make it read invalid memory.
//!
//! In: architecture, metadata and tensor table. Out: an error that names the key or tensor, and the
//! rule. Unknown architectures are checked only against rules that need no table. The tables follow
//! the pinned llama.cpp (`scripts/architectures.py`); `make harden` tests them.

mod facts;
mod hyperparameters;
mod layers;
mod limits;
mod rotations;
#[cfg(test)]
mod tests;
mod types;

use std::path::Path;

use super::header::{ModelHeader, open};
use super::reader::Cursor;
use super::token_lengths;
use crate::error::Result;
use facts::Facts;

/// Fails with `MODEL_INVALID` at the first rule that the file breaks.
fn check(facts: &Facts<'_>) -> Result<()> {
    types::check(facts)?;
    hyperparameters::check(facts)?;
    limits::check(facts)?;
    rotations::check(facts)?;
    layers::check(facts)
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

    /// Checks requirements of llama.cpp on hyperparameters and tensors that it does not check
    /// itself.
    ///
    /// # Errors
    /// `MODEL_INVALID` with the key or tensor, and the rule that it breaks.
    pub fn check_loadable(&self) -> Result<()> {
        check(&Facts {
            architecture: self.architecture(),
            metadata: self.metadata(),
            tensors: &self.tensors().list,
        })?;
        self.check_size_of_states()
    }

    /// Checks that llama.cpp's tokenizer can handle the tokens. `path` is the file that was read.
    ///
    /// # Errors
    /// `MODEL_INVALID` if it cannot; otherwise as for [`ModelHeader::read_file`].
    pub fn check_tokens(&self, path: &Path) -> Result<()> {
        let open = || open(path).map(|(file, size)| Cursor::new(file, size));
        token_lengths::check(self.metadata(), open).map_err(|error| error.about(path.display()))
    }
}
