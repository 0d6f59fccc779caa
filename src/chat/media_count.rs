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
use crate::gguf::{PicturePart, ProjectorHeader};

/// Counts the places of pictures.
pub(super) struct MediaCounter<'a> {
    projector: ProjectorHeader,
    vocab: &'a dyn Vocab,
    interrupt: &'a Interrupt,
}

impl<'a> MediaCounter<'a> {
    pub(super) fn new(
        projector: ProjectorHeader,
        vocab: &'a dyn Vocab,
        interrupt: &'a Interrupt,
    ) -> MediaCounter<'a> {
        MediaCounter { projector, vocab, interrupt }
    }

    fn chunk(&self, part: &PicturePart) -> Result<MediaChunk> {
        Ok(match part {
            PicturePart::Text(text) => {
                MediaChunk::Tokens(self.vocab.tokenize(text, true, self.interrupt)?)
            }
            PicturePart::Token(text) => {
                let is_it = |token: &TokenId| self.vocab.piece(*token, true) == text.as_bytes();
                let token = (0..self.vocab.len() as TokenId).find(is_it);
                MediaChunk::Tokens(vec![token.ok_or_else(|| no_token(text))?])
            }
            PicturePart::Places(count) => {
                let piece = MediaPiece::new(*count as usize, true, Box::new(NotComputed));
                MediaChunk::Piece(Arc::new(piece))
            }
        })
    }
}

impl MediaReader for MediaCounter<'_> {
    fn content(&self, file: &[u8], limits: &MediaLimits) -> Result<Arc<[MediaChunk]>, MediaError> {
        let (width, height) = picture_size(file, limits).map_err(MediaError::File)?;
        let layout = self.projector.picture(width, height).map_err(MediaError::File)?;
        let chunks: Result<Vec<MediaChunk>> =
            layout.parts.iter().map(|part| self.chunk(part)).collect();
        Ok(chunks.map_err(MediaError::Engine)?.into())
    }
}

fn no_token(text: &str) -> Error {
    let problem = format!("the model has no token {text:?}, which pictures of this projector need");
    Error::invalid("projector", problem)
}

/// The sides of a picture by the header of its file.
#[cfg(feature = "media")]
fn picture_size(file: &[u8], limits: &MediaLimits) -> Result<(u32, u32), String> {
    crate::media::Picture::size(file, limits)
}

#[cfg(not(feature = "media"))]
fn picture_size(_: &[u8], _: &MediaLimits) -> Result<(u32, u32), String> {
    Err("this llb was built without its feature `media`".to_owned())
}

/// In place of an encoder.
struct NotComputed;

impl MediaSource for NotComputed {
    fn encode(&mut self, _: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        Err(Error::new(Code::InferenceFailed, "the projector is not loaded"))
    }
}
