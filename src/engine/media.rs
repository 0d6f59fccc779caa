//! Media in a prompt: embeddings in the places of tokens.
//!
//! A piece of media takes as many places in a prompt as it has embeddings. Each place has a number of
//! its own, below 0, which no token has, so the prefix cache compares prompts with media as it
//! compares all prompts. A media file that is sent again must be the same [`MediaPiece`] for that:
//! only then has it the same numbers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Interrupt;
use super::backend::{PieceRotations, TokenId};
use crate::api::{MediaLimits, Modality};
use crate::error::{Code, Error, Result};
use crate::sync::lock;

/// Computes the embeddings of a piece.
pub trait MediaSource: Send {
    /// Computes them. `None` if `abort` returned true.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if nothing was begun, so that a later call may succeed.
    fn encode(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>>;
}

/// Why a media file has no content.
pub enum MediaError {
    /// The file is at fault.
    File(String),
    /// llama.cpp or the machine is.
    Engine(Error),
}

/// Reads media files for a model.
pub trait MediaReader {
    /// Whether the model takes such files.
    fn takes(&self, modality: Modality) -> bool;

    /// What stands for a file of this kind in a prompt. When the call is over, it may be an error
    /// about the file.
    fn content(
        &self,
        modality: Modality,
        file: &[u8],
        limits: &MediaLimits,
        interrupt: &Interrupt,
    ) -> Result<Arc<[MediaChunk]>, MediaError>;
}

/// The content of a media file for a model: tokens of the vocabulary, and pieces.
#[derive(Clone)]
pub enum MediaChunk {
    /// Tokens, such as those that begin and end a picture or a sound.
    Tokens(Vec<TokenId>),
    /// Embeddings.
    Piece(Arc<MediaPiece>),
}

/// Embeddings that are computed when they are first needed.
pub struct MediaPiece {
    /// The number of the first place. The next places have the numbers below it.
    first: TokenId,
    len: usize,
    is_causal: bool,
    rotations: Option<Arc<PieceRotations>>,
    state: Mutex<PieceState>,
}

enum PieceState {
    Source(Box<dyn MediaSource>),
    Embeddings(Arc<[f32]>),
    /// The source has failed, or has panicked.
    Failed,
}

impl MediaPiece {
    /// A piece of `len` embeddings, at least 1. If it is not causal, all its places attend to each
    /// other, and it must be decoded in one batch.
    pub fn new(len: usize, is_causal: bool, source: Box<dyn MediaSource>) -> MediaPiece {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // One number between two pieces is left out, so that they are not continuations of each
        // other. After 2^31 places the numbers start again.
        let taken = NEXT.fetch_add(len as u64 + 1, Ordering::Relaxed);
        let most = i32::MAX as u64 - len as u64;
        let first = -1 - (taken % most.max(1)) as TokenId;
        let state = Mutex::new(PieceState::Source(source));
        MediaPiece { first, len, is_causal, rotations: None, state }
    }

    /// The piece as a model with M-RoPE rotates it.
    pub fn with_rotations(self, rotations: Option<PieceRotations>) -> MediaPiece {
        MediaPiece { rotations: rotations.map(Arc::new), ..self }
    }

    /// The number of embeddings.
    #[allow(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The numbers of the places.
    pub fn places(&self) -> Vec<TokenId> {
        (0..self.len).map(|place| self.first - place as TokenId).collect()
    }

    pub(crate) fn is_causal(&self) -> bool {
        self.is_causal
    }

    /// `None` if each place is rotated as a token in it would be.
    pub(crate) fn rotations(&self) -> Option<&Arc<PieceRotations>> {
        self.rotations.as_ref()
    }

    /// The embeddings, one after another. `None` if `abort` returned true before they were computed.
    pub(crate) fn embeddings(
        &self,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Arc<[f32]>>> {
        let mut state = lock(&self.state);
        let mut source = match std::mem::replace(&mut *state, PieceState::Failed) {
            PieceState::Source(source) => source,
            PieceState::Embeddings(embeddings) => {
                *state = PieceState::Embeddings(Arc::clone(&embeddings));
                return Ok(Some(embeddings));
            }
            PieceState::Failed => {
                let problem = "the media could not be encoded before";
                return Err(Error::new(Code::InferenceFailed, problem));
            }
        };
        let encoded = source.encode(abort);
        if matches!(&encoded, Ok(None))
            || encoded.as_ref().is_err_and(|error| error.code() == Code::OutOfMemory)
        {
            *state = PieceState::Source(source);
        }
        let Some(embeddings) = encoded? else { return Ok(None) };
        let embeddings: Arc<[f32]> = embeddings.into();
        *state = PieceState::Embeddings(Arc::clone(&embeddings));
        Ok(Some(embeddings))
    }
}

/// A piece in a prompt.
#[derive(Clone)]
pub struct PlacedMedia {
    /// The index of its first place in the prompt.
    pub start: usize,
    /// The piece.
    pub piece: Arc<MediaPiece>,
}

impl PlacedMedia {
    /// The places in the prompt.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.piece.len()
    }

    /// `{"position","tokens"}`.
    pub fn to_json(&self) -> Value {
        json!({ "position": self.start, "tokens": self.piece.len() })
    }
}

/// Whether this is the number of a place of media, and no token.
pub(crate) fn is_media(token: TokenId) -> bool {
    token < 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Aborts once, then has embeddings; fails after that.
    struct Once(usize);

    impl MediaSource for Once {
        fn encode(&mut self, abort: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
            self.0 += 1;
            assert!(self.0 <= 2, "encoded again");
            Ok((!abort()).then(|| vec![1.0, 2.0]))
        }
    }

    #[test]
    fn embeddings_are_computed_once() {
        let piece = MediaPiece::new(1, true, Box::new(Once(0)));
        assert!(piece.embeddings(&|| true).unwrap().is_none());
        for _ in 0..3 {
            assert_eq!(*piece.embeddings(&|| false).unwrap().unwrap(), [1.0, 2.0]);
        }
    }

    #[test]
    fn a_failure_is_kept() {
        struct Fails;
        impl MediaSource for Fails {
            fn encode(&mut self, _: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
                Err(Error::new(Code::InferenceFailed, "no"))
            }
        }
        let piece = MediaPiece::new(1, true, Box::new(Fails));
        assert_eq!(piece.embeddings(&|| false).unwrap_err().message(), "no");
        assert!(piece.embeddings(&|| false).is_err());
    }

    /// The piece is kept for later requests with the same file.
    #[test]
    fn a_lack_of_memory_is_not_kept() {
        struct Later(bool);
        impl MediaSource for Later {
            fn encode(&mut self, _: &(dyn Fn() -> bool + Sync)) -> Result<Option<Vec<f32>>> {
                match std::mem::replace(&mut self.0, true) {
                    false => Err(Error::new(Code::OutOfMemory, "no")),
                    true => Ok(Some(vec![1.0])),
                }
            }
        }
        let piece = MediaPiece::new(1, true, Box::new(Later(false)));
        assert_eq!(piece.embeddings(&|| false).unwrap_err().message(), "no");
        assert_eq!(*piece.embeddings(&|| false).unwrap().unwrap(), [1.0]);
    }

    #[test]
    fn pieces_have_numbers_of_their_own() {
        let piece = || MediaPiece::new(3, true, Box::new(Once(0))).places();
        let (one, other) = (piece(), piece());
        assert!(one.iter().all(|number| is_media(*number) && !other.contains(number)));
        assert_eq!(one, [one[0], one[0] - 1, one[0] - 2]);
        assert_ne!(one[2] - 1, other[0]);
    }
}
