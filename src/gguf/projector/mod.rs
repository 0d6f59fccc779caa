//! The header of a projector file: an encoder of media, and the projection of its output into the
//! embeddings of a text model. Such files are named `mmproj-…gguf`.
//!
//! In: a path. Out: what the file takes and produces. llama.cpp checks few of the shapes that its
//! encoders expect; a file that breaks them fails an assertion, at the first picture or sound at
//! the latest. Here a file is refused unless its type is known and every tensor has the shape and
//! type that the encoder of this type expects (`shapes`, `sound` and their like). A file may have
//! an encoder of pictures and one of sound.

mod conformer;
mod grids;
mod keys;
mod kind;
mod layout;
mod mobilenet;
mod picture;
mod selection;
mod shapes;
mod sizing;
mod slices;
mod sound;
mod squares;
mod tensors;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::header::ModelHeader;
use crate::api::Modality;
use crate::error::Result;
use keys::Keys;
pub use kind::ProjectorType;
use kind::refused;
pub use layout::{MediaPart, PictureLayout};
pub use selection::{is_projector, preferred_projector, projector_beside};
use sizing::Sizing;
pub use sound::SoundWindows;
use tensors::Unchecked;

/// The patches of a place, where a mask has a number for each two of them.
const MERGED_PATCHES: u32 = 4;
/// A 32-bit number of a mask, and its copy in llama.cpp's graph (`window_mask` in clip.cpp).
const MASK_BYTES: u64 = 8;

/// The architecture in all projector files.
const ARCHITECTURE: &str = "clip";

/// The header of a projector.
#[derive(Debug, Clone)]
pub struct ProjectorHeader {
    /// At least one of both.
    sight: Option<(ProjectorType, Sizing)>,
    hearing: Option<(ProjectorType, SoundWindows)>,
    embedding_length: u64,
    bytes: u64,
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
        let tensors = &header.tensors().list;
        let mut rest = Unchecked::new(tensors);
        let (mut sight, mut hearing) = (None, None);
        let (mut kinds, mut lengths) = (Vec::new(), Vec::new());
        for keys in Keys::all(header)? {
            // llama.cpp does not load the encoder of sound that these files have.
            if let Some((ProjectorType::Gemma3NV, _)) = sight {
                rest.ignore_sound();
                continue;
            }
            let kind = keys.kind()?;
            kinds.push(kind);
            lengths.push(match keys.modality {
                Modality::Image => {
                    let (sizing, length) = picture::check_encoder(kind, &keys, &mut rest)?;
                    sight = Some((kind, sizing));
                    length
                }
                Modality::Audio => {
                    let (windows, length) = sound::check_encoder(kind, &keys, &mut rest)?;
                    hearing = Some((kind, windows));
                    length
                }
            });
        }
        rest.check_empty(&kinds)?;
        let embedding_length = lengths[0];
        if lengths.iter().any(|length| *length != embedding_length) {
            return Err(refused(format!(
                "the encoder of pictures computes embeddings of length {}, but that of sound of \
                 length {}",
                lengths[0], lengths[1]
            )));
        }
        let bytes = tensors.iter().map(|tensor| tensor.bytes).sum();
        Ok(ProjectorHeader { sight, hearing, embedding_length, bytes })
    }

    /// The types of its encoders.
    pub fn kinds(&self) -> impl Iterator<Item = ProjectorType> {
        let sight = self.sight.map(|(kind, _)| kind);
        sight.into_iter().chain(self.hearing.map(|(kind, _)| kind))
    }

    /// What it takes.
    pub fn modalities(&self) -> impl Iterator<Item = Modality> {
        self.kinds().map(ProjectorType::modality)
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
        match self.sight {
            Some((kind, sizing)) => sizing.layout(kind.texts_around(), width, height),
            None => Err("the projector takes sound, not pictures".to_owned()),
        }
    }

    /// The bytes that grow with the square of a picture, while it is encoded. Other buffers are
    /// measured when the projector is loaded, or are small beside the decoded picture.
    pub fn encoding_bytes(&self, layout: &PictureLayout) -> u64 {
        match self.sight {
            Some((kind, _)) if kind.masks_patches() => {
                let patches = layout.places() * u64::from(MERGED_PATCHES);
                patches.saturating_mul(patches).saturating_mul(MASK_BYTES)
            }
            _ => 0,
        }
    }

    /// The windows of a sound, if the projector takes sound.
    pub fn sound(&self) -> Option<SoundWindows> {
        self.hearing.map(|(_, windows)| windows)
    }

    /// What stands for a sound with so many samples in a prompt.
    ///
    /// # Errors
    /// A message, if the projector takes pictures.
    pub fn sound_parts(&self, samples: usize) -> Result<Vec<MediaPart>, String> {
        let (kind, windows) = self.hearing.ok_or("the projector takes pictures, not sound")?;
        let [before, after] = kind.texts_around().map(|text| MediaPart::Text(text.into()));
        let places = windows.of_sound(samples).map(MediaPart::Places);
        let is_empty = |part: &MediaPart| *part == MediaPart::Text("".into());
        let parts = [before].into_iter().chain(places).chain([after]);
        Ok(parts.filter(|part| !is_empty(part)).collect())
    }

    /// The most embeddings of a picture, if it takes pictures.
    pub fn tokens_of_picture(&self) -> Option<u32> {
        self.sight.map(|(_, sizing)| sizing.most_tokens())
    }

    /// The most places of a picture that attend to each other, and must be decoded in one batch.
    /// `None` if each attends to those before it.
    pub fn places_in_one_batch(&self) -> Option<u32> {
        let (kind, sizing) = self.sight?;
        kind.attends_to_itself(self.embedding_length).then(|| sizing.most_tokens())
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
                "the projector computes embeddings of length {}, but those of the model have {}; \
                 it belongs to another model",
                self.embedding_length,
                length.map_or("an unknown length".to_owned(), |length| length.to_string())
            ))),
        }
    }
}
