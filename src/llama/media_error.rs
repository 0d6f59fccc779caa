//! The error of a media file that has no content for a model.

use crate::error::Error;

/// Why a file has no content.
pub enum MediaError {
    /// The file is at fault.
    File(String),
    /// llama.cpp or the machine is.
    Engine(Error),
}
