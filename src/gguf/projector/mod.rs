//! The header of a projector file: an encoder of media, and the projection of its output into the
//! embeddings of a text model. Such files are named `mmproj-…gguf`.
//!
//! In: a path. Out: what the file takes and produces. llama.cpp checks few of the shapes that its
//! encoders expect; a file that breaks them fails an assertion, at the first picture at the latest.
//! Here a file is refused unless its type is known and every tensor has the shape and type that the
//! encoder of this type expects (`shapes`).

mod kind;
mod selection;
mod shapes;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::header::ModelHeader;
use super::value::GgufValue;
use crate::error::Result;
use kind::refused;
pub use kind::{Modality, ProjectorType};
pub use selection::{is_projector, preferred_projector, projector_beside};
use shapes::Shapes;

/// The architecture in all projector files.
const ARCHITECTURE: &str = "clip";
/// A larger picture or more tokens would take gigabytes for each encode.
const MAX_IMAGE_SIZE: u32 = 4096;
const MAX_TOKENS: u32 = 16_384;
/// `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u32 = 512;
/// The number of patches, in each direction, that Gemma 3 makes one token of.
const GEMMA3_MERGE: u32 = 4;

/// The header of a projector.
#[derive(Debug, Clone)]
pub struct ProjectorHeader {
    kind: ProjectorType,
    embedding_length: u64,
    image_size: u32,
    image_tokens: u32,
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
        let keys = Keys(header);
        for (key, what) in [
            ("clip.has_audio_encoder", "an encoder of sound"),
            ("clip.has_gen_audio_encoder", "a generator of sound"),
        ] {
            if matches!(keys.value(key), Some(GgufValue::Bool(true))) {
                return Err(refused(format!("{key}: {what} is not supported yet")));
            }
        }
        if !matches!(keys.value("clip.has_vision_encoder"), Some(GgufValue::Bool(true))) {
            return Err(refused("clip.has_vision_encoder is not true".to_owned()));
        }
        let kind = keys.kind()?;
        keys.check_unused()?;
        let image_size = keys.number("clip.vision.image_size", 1..=MAX_IMAGE_SIZE)?;
        let patch_size = keys.number("clip.vision.patch_size", 1..=image_size)?;
        let layers = keys.number("clip.vision.block_count", 1..=MAX_LAYERS)?;
        let width = keys.number("clip.vision.embedding_length", 1..=1 << 16)?;
        let heads = keys.number("clip.vision.attention.head_count", 1..=width)?;
        if width % heads != 0 {
            return Err(refused(format!(
                "clip.vision.attention.head_count {heads} does not divide clip.vision.embedding_length {width}"
            )));
        }
        keys.optional("clip.vision.attention.head_dim", width / heads)?;
        keys.optional("clip.vision.attention.head_count_kv", heads)?;
        keys.check_epsilon()?;
        let side = image_size / patch_size;
        let merge = match kind {
            ProjectorType::Mlp | ProjectorType::JanusPro => 1,
            ProjectorType::Gemma3 => {
                let key = "clip.vision.projector.scale_factor";
                match keys.value(key) {
                    None => GEMMA3_MERGE,
                    Some(_) => keys.number(key, 1..=side)?,
                }
            }
        };
        if !side.is_multiple_of(merge) {
            return Err(refused(format!(
                "clip.vision.projector.scale_factor {merge} does not divide the {side} patches of a side"
            )));
        }
        let patches = side * side;
        if patches > MAX_TOKENS {
            return Err(refused(format!(
                "clip.vision.image_size {image_size} has {patches} patches; at most {MAX_TOKENS} are supported"
            )));
        }
        let shapes = Shapes {
            tensors: &header.tensors().list,
            width: width.into(),
            patch: patch_size.into(),
            patches: patches.into(),
            layers,
        };
        let embedding_length = shapes.check(kind)?;
        Ok(ProjectorHeader {
            kind,
            embedding_length,
            image_size,
            image_tokens: (side / merge) * (side / merge),
            bytes: header.tensors().list.iter().map(|tensor| tensor.bytes).sum(),
        })
    }

    /// The type.
    pub fn kind(&self) -> ProjectorType {
        self.kind
    }

    /// What the projector takes.
    pub fn modalities(&self) -> &'static [Modality] {
        &[Modality::Image]
    }

    /// The length of the embeddings that it computes: that of its text model.
    pub fn embedding_length(&self) -> u64 {
        self.embedding_length
    }

    /// The side of the square to which a picture is scaled, in pixels.
    pub fn image_size(&self) -> u32 {
        self.image_size
    }

    /// The number of embeddings of a picture, whatever its size.
    pub fn image_tokens(&self) -> u32 {
        self.image_tokens
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
        match model.embedding_length() {
            Some(length) if length == self.embedding_length => Ok(()),
            length => Err(refused(format!(
                "the projector computes embeddings of length {}, but those of the model have {}; it belongs to another model",
                self.embedding_length,
                length.map_or("an unknown length".to_owned(), |length| length.to_string())
            ))),
        }
    }
}

/// The metadata of a projector.
struct Keys<'a>(&'a ModelHeader);

impl Keys<'_> {
    fn value(&self, key: &str) -> Option<&GgufValue> {
        self.0.metadata().get(key)
    }

    fn kind(&self) -> Result<ProjectorType> {
        let keys = ["clip.projector_type", "clip.vision.projector_type"];
        let name = keys.into_iter().find_map(|key| self.0.metadata().str(key));
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| refused("clip.projector_type is missing".to_owned()))?;
        ProjectorType::ALL.iter().copied().find(|kind| kind.as_str() == name).ok_or_else(|| {
            let known: Vec<&str> = ProjectorType::ALL.iter().map(|kind| kind.as_str()).collect();
            refused(format!(
                "clip.projector_type: projectors of type {name:?} are not supported yet; supported are {}",
                known.join(", ")
            ))
        })
    }

    /// Refuses keys that change how llama.cpp computes, and that the supported types lack.
    fn check_unused(&self) -> Result<()> {
        for key in ["clip.vision.image_grid_pinpoints", "clip.vision.feature_layer"] {
            if self.0.metadata().contains(key) {
                return Err(refused(format!("{key} is not supported yet")));
            }
        }
        Ok(())
    }

    /// A number that must be there.
    fn number(&self, key: &str, allowed: std::ops::RangeInclusive<u32>) -> Result<u32> {
        match self.value(key) {
            Some(GgufValue::U32(number)) if allowed.contains(number) => Ok(*number),
            Some(GgufValue::U32(number)) => {
                let (least, most) = allowed.into_inner();
                Err(refused(format!("{key} is {number}; it must be from {least} to {most}")))
            }
            Some(_) => Err(refused(format!("{key} is not a 32-bit number"))),
            None => Err(refused(format!("{key} is missing"))),
        }
    }

    /// A number that has only one value, if it is there.
    fn optional(&self, key: &str, only: u32) -> Result<()> {
        match self.value(key) {
            None => Ok(()),
            Some(GgufValue::U32(number)) if *number == only => Ok(()),
            Some(_) => Err(refused(format!("{key} must be {only}"))),
        }
    }

    fn check_epsilon(&self) -> Result<()> {
        let key = "clip.vision.attention.layer_norm_epsilon";
        match self.value(key) {
            Some(GgufValue::F32(epsilon)) if epsilon.is_finite() && *epsilon >= 0.0 => Ok(()),
            _ => Err(refused(format!("{key} must be a number of at least 0"))),
        }
    }
}
