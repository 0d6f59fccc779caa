//! The places of pictures in a prompt without a projector in memory: their number is in its header.
//!
//! In: the headers of a projector and of picture files. Out: what stands for the pictures in a
//! prompt, which can be counted but not computed.

use std::sync::Arc;

use crate::api::MediaLimits;
use crate::engine::{
    Interrupt, MediaChunk, MediaError, MediaPiece, MediaReader, MediaSource, TokenId, Vocab,
};
use crate::error::{Code, Error, Result};
use crate::gguf::ProjectorHeader;

/// Counts the places of pictures.
pub(super) struct MediaCounter {
    places: usize,
    /// The tokens before and after a picture.
    around: [Vec<TokenId>; 2],
}

impl MediaCounter {
    pub(super) fn new(
        projector: &ProjectorHeader,
        vocab: &dyn Vocab,
        interrupt: &Interrupt,
    ) -> Result<MediaCounter> {
        let [before, after] = projector.kind().texts_around();
        // llama.cpp tokenizes each text on its own.
        let tokens = |text: &str| match text {
            "" => Ok(Vec::new()),
            text => vocab.tokenize(text, true, interrupt),
        };
        let around = [tokens(before)?, tokens(after)?];
        Ok(MediaCounter { places: projector.image_tokens() as usize, around })
    }
}

impl MediaReader for MediaCounter {
    fn content(&self, file: &[u8], limits: &MediaLimits) -> Result<Arc<[MediaChunk]>, MediaError> {
        check_picture(file, limits).map_err(MediaError::File)?;
        let [before, after] = self.around.clone().map(MediaChunk::Tokens);
        let piece = MediaPiece::new(self.places, true, Box::new(NotComputed));
        Ok([before, MediaChunk::Piece(Arc::new(piece)), after].into())
    }
}

/// Checks a file by its header.
#[cfg(feature = "media")]
fn check_picture(file: &[u8], limits: &MediaLimits) -> Result<(), String> {
    crate::media::Picture::size(file, limits).map(|_| ())
}

#[cfg(not(feature = "media"))]
fn check_picture(_: &[u8], _: &MediaLimits) -> Result<(), String> {
    Err("this llb was built without its feature `media`".to_owned())
}

/// In place of an encoder.
struct NotComputed;

impl MediaSource for NotComputed {
    fn encode(&mut self, _: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        Err(Error::new(Code::InferenceFailed, "the projector is not loaded"))
    }
}
