//! The header of a projector file: an encoder of media, and the projection of its output into the
//! embeddings of a text model. Such files are named `mmproj-…gguf`.
//!
//! In: a path. Out: what the file takes and produces. llama.cpp checks few of the shapes that its
//! encoders expect; a file that breaks them fails an assertion, at the first picture or sound at the
//! latest. Here a file is refused unless its type is known and every tensor has the shape and type
//! that the encoder of this type expects (`shapes`, `sound`).

mod keys;
mod kind;
mod picture;
mod selection;
mod shapes;
mod sizing;
mod sound;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::header::ModelHeader;
use crate::api::Modality;
use crate::error::Result;
use keys::Keys;
pub use kind::ProjectorType;
use kind::refused;
pub use selection::{is_projector, preferred_projector, projector_beside};
use sizing::Sizing;
pub use sizing::{MediaPart, PictureLayout};
pub use sound::SoundWindows;

/// The architecture in all projector files.
const ARCHITECTURE: &str = "clip";

/// The header of a projector.
#[derive(Debug, Clone)]
pub struct ProjectorHeader {
    kind: ProjectorType,
    embedding_length: u64,
    encoder: Encoder,
    bytes: u64,
}

/// How the encoder makes pieces of its input.
#[derive(Debug, Clone, Copy)]
enum Encoder {
    Picture(Sizing),
    Sound(SoundWindows),
}

impl ProjectorHeader {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND` if the path is not a readable file. `MODEL_INVALID` with the key or tensor
    /// and the rule that it breaks, or with the type that is not supported.
    pub fn read_file(path: &Path) -> Result<ProjectorHeader> {
        let header = ModelHeader::read_file(path)?;
        let checked = header.check_complete().and_then(|()| ProjectorHeader::of(&header));
        checked.map_err(|error| error.about(path.display()))
    }

    fn of(header: &ModelHeader) -> Result<ProjectorHeader> {
        if header.architecture() != ARCHITECTURE {
            let architecture = header.architecture();
            return Err(refused(format!(
                "not a projector: general.architecture is {architecture:?}, not {ARCHITECTURE:?}"
            )));
        }
        let keys = Keys::new(header)?;
        let kind = keys.kind()?;
        let tensors = &header.tensors().list;
        let (encoder, embedding_length) = match keys.modality {
            Modality::Image => {
                let (sizing, length) = picture::check_encoder(kind, &keys, tensors)?;
                (Encoder::Picture(sizing), length)
            }
            Modality::Audio => {
                let (windows, length) = sound::check_encoder(kind, &keys, tensors)?;
                (Encoder::Sound(windows), length)
            }
        };
        let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
        Ok(ProjectorHeader { kind, embedding_length, encoder, bytes })
    }

    /// The type.
    pub fn kind(&self) -> ProjectorType {
        self.kind
    }

    /// The length of the embeddings that it computes: that of its text model.
    pub fn embedding_length(&self) -> u64 {
        self.embedding_length
    }

    /// What stands for a picture with these sides in a prompt.
    ///
    /// # Errors
    /// A message, if llama.cpp cannot scale such a picture, or if the projector takes sound.
    pub fn picture(&self, width: u32, height: u32) -> Result<PictureLayout, String> {
        match self.encoder {
            Encoder::Picture(sizing) => sizing.layout(self.kind.texts_around(), width, height),
            Encoder::Sound(_) => Err("the projector takes sound, not pictures".to_owned()),
        }
    }

    /// The windows of a sound, if the projector takes sound.
    pub fn sound(&self) -> Option<SoundWindows> {
        match self.encoder {
            Encoder::Picture(_) => None,
            Encoder::Sound(windows) => Some(windows),
        }
    }

    /// What stands for a sound with so many windows in a prompt.
    pub fn sound_parts(&self, windows: SoundWindows, count: usize) -> Vec<MediaPart> {
        let [before, after] = self.kind.texts_around().map(|text| MediaPart::Text(text.into()));
        let places = std::iter::repeat_n(MediaPart::Places(windows.tokens()), count);
        let is_empty = |part: &MediaPart| *part == MediaPart::Text("".into());
        let parts = [before].into_iter().chain(places).chain([after]);
        parts.filter(|part| !is_empty(part)).collect()
    }

    /// The most embeddings of a picture, or those of a window of sound.
    pub fn most_tokens(&self) -> u32 {
        match self.encoder {
            Encoder::Picture(sizing) => sizing.most_tokens(),
            Encoder::Sound(windows) => windows.tokens(),
        }
    }

    /// The size of the weights.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks that the projector belongs to a text model of this kind.
    ///
    /// # Errors
    /// `MODEL_INVALID` if the lengths of embeddings differ.
    pub fn check_fits(&self, model: &ModelHeader) -> Result<()> {
        match model.input_length() {
            Some(length) if length == self.embedding_length => Ok(()),
            length => Err(refused(format!(
                "the projector computes embeddings of length {}, but those of the model have {}; it belongs to another model",
                self.embedding_length,
                length.map_or("an unknown length".to_owned(), |length| length.to_string())
            ))),
        }
    }
}
