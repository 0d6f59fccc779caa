//! The places of media in a prompt without a projector in memory: their number is in its header.
//!
//! In: the header of a projector, the headers of picture files, and sound files, whose length only
//! their decoder knows. Out: what stands for the media in a prompt, which can be counted but not
//! computed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{MediaLimits, Modality};
use crate::engine::{
    Interrupt, MediaChunk, MediaError, MediaPiece, MediaReader, MediaSource, TokenId, Vocab,
};
use crate::error::{Code, Error, Result};
use crate::gguf::{MediaPart, ProjectorHeader};

/// Counts the places of media.
pub(super) struct MediaCounter<'a> {
    projector: ProjectorHeader,
    vocab: &'a dyn Vocab,
    interrupt: &'a Interrupt,
    /// The tokens that were looked for, which takes a walk through the vocabulary: a picture of tiles
    /// has hundreds that are the same.
    found: RefCell<BTreeMap<&'static str, Option<TokenId>>>,
}

impl<'a> MediaCounter<'a> {
    pub(super) fn new(
        projector: ProjectorHeader,
        vocab: &'a dyn Vocab,
        interrupt: &'a Interrupt,
    ) -> MediaCounter<'a> {
        MediaCounter { projector, vocab, interrupt, found: RefCell::default() }
    }

    /// The token that is this text.
    fn token(&self, text: &'static str) -> Result<TokenId> {
        let mut found = self.found.borrow_mut();
        let token = *found.entry(text).or_insert_with(|| {
            let is_it = |token: &TokenId| self.vocab.piece(*token, true) == text.as_bytes();
            (0..self.vocab.len() as TokenId).find(is_it)
        });
        token.ok_or_else(|| no_token(text))
    }

    fn chunk(&self, part: &MediaPart) -> Result<MediaChunk> {
        Ok(match part {
            MediaPart::Text(text) => {
                MediaChunk::Tokens(self.vocab.tokenize(text, true, self.interrupt)?)
            }
            MediaPart::Token(text) => MediaChunk::Tokens(vec![self.token(text)?]),
            MediaPart::Places(count) => {
                let piece = MediaPiece::new(*count as usize, true, Box::new(NotComputed));
                MediaChunk::Piece(Arc::new(piece))
            }
        })
    }
}

impl MediaReader for MediaCounter<'_> {
    fn takes(&self, modality: Modality) -> bool {
        self.projector.modalities().any(|taken| taken == modality)
    }

    fn content(
        &self,
        modality: Modality,
        file: &[u8],
        limits: &MediaLimits,
        interrupt: &Interrupt,
    ) -> Result<Arc<[MediaChunk]>, MediaError> {
        let parts = parts(&self.projector, modality, file, limits, interrupt);
        let parts = parts.map_err(MediaError::File)?;
        let chunks: Result<Vec<MediaChunk>> = parts.iter().map(|part| self.chunk(part)).collect();
        Ok(chunks.map_err(MediaError::Engine)?.into())
    }
}

fn no_token(text: &str) -> Error {
    let problem = format!("the model has no token {text:?}, which media of this projector need");
    Error::invalid("projector", problem)
}

/// What stands for a file in a prompt.
#[cfg(feature = "media")]
fn parts(
    projector: &ProjectorHeader,
    modality: Modality,
    file: &[u8],
    limits: &MediaLimits,
    interrupt: &Interrupt,
) -> Result<Vec<MediaPart>, String> {
    use crate::media::{Picture, Sound};

    match (modality, projector.sound()) {
        (Modality::Audio, Some(windows)) => {
            let sound =
                Sound::decode(file, windows.sample_rate(), limits, &|| interrupt.is_over())?;
            projector.sound_parts(sound.samples().len())
        }
        _ => {
            let (width, height) = Picture::size(file, limits)?;
            Ok(projector.picture(width, height)?.parts)
        }
    }
}

#[cfg(not(feature = "media"))]
fn parts(
    _: &ProjectorHeader,
    _: Modality,
    _: &[u8],
    _: &MediaLimits,
    _: &Interrupt,
) -> Result<Vec<MediaPart>, String> {
    Err("this llb was built without its feature `media`".to_owned())
}

/// In place of an encoder.
struct NotComputed;

impl MediaSource for NotComputed {
    fn encode(&mut self, _: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
        Err(Error::new(Code::InferenceFailed, "the projector is not loaded"))
    }
}
