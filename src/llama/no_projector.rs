//! Replaces `projector` in a build without the feature `media`: no projector can be loaded.

use std::sync::Arc;

use super::context::{LlamaContext, Model};
use crate::api::{MediaLimits, Modality};
use crate::engine::{MediaChunk, MediaError, MediaReader};
use crate::error::{Error, Result};

/// In place of an encoder: there is none.
pub enum NoProjector {}

impl NoProjector {
    /// Always fails.
    pub(crate) fn load(
        _: &str,
        _: &Arc<Model>,
        _: &mut LlamaContext,
        _: u32,
        _: bool,
    ) -> Result<NoProjector> {
        let problem = "this llb was built without its feature `media`";
        Err(Error::invalid("projector", problem))
    }
}

impl MediaReader for NoProjector {
    /// Cannot be called.
    fn takes(&self, _: Modality) -> bool {
        match *self {}
    }

    /// Cannot be called.
    fn content(
        &self,
        _: Modality,
        _: &[u8],
        _: &MediaLimits,
    ) -> Result<Arc<[MediaChunk]>, MediaError> {
        match *self {}
    }
}
