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
mod sizing;
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
use sizing::{MAX_TILED_TOKENS, Sizing};
pub use sizing::{PictureLayout, PicturePart};

/// The architecture in all projector files.
const ARCHITECTURE: &str = "clip";
/// A larger picture or more tokens would take gigabytes for each encode.
const MAX_IMAGE_SIZE: u32 = 4096;
const MAX_TOKENS: u32 = 16_384;
/// `LLAMA_MAX_LAYERS`.
const MAX_LAYERS: u32 = 512;
/// The key of the number of patches, in each direction, that become one token.
const SCALE_FACTOR: &str = "clip.vision.projector.scale_factor";
/// That number for Gemma 3 without the key.
const GEMMA3_MERGE: u32 = 4;
/// The same for Qwen2-VL and later, whose graphs are written for this number.
const QWEN_MERGE: u32 = 2;
/// The least and the most tokens of a picture there, in llama.cpp. Larger patches would make pictures
/// of more than `MAX_IMAGE_SIZE` in both directions.
const QWEN_TOKENS: [u32; 2] = [8, 4096];
const QWEN_MAX_PATCH: u32 = 32;

/// The header of a projector.
#[derive(Debug, Clone)]
pub struct ProjectorHeader {
    kind: ProjectorType,
    embedding_length: u64,
    sizing: Sizing,
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
        let patches = (image_size / patch_size) * (image_size / patch_size);
        if patches > MAX_TOKENS {
            return Err(refused(format!(
                "clip.vision.image_size {image_size} has {patches} patches; at most {MAX_TOKENS} are supported"
            )));
        }
        let sizing = match kind {
            ProjectorType::Mlp | ProjectorType::JanusPro | ProjectorType::Gemma3 => {
                keys.fixed(kind, image_size, patch_size)?
            }
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl | ProjectorType::Qwen3Vl => {
                keys.squares(kind, patch_size, width / heads)?
            }
            ProjectorType::Idefics3 => keys.tiles(image_size, patch_size)?,
        };
        let patches_of_token = match sizing {
            Sizing::Fixed { tokens, .. } | Sizing::Tiles { tokens, .. } => patches / tokens,
            Sizing::Squares { .. } => QWEN_MERGE * QWEN_MERGE,
        };
        let shapes = Shapes {
            tensors: &header.tensors().list,
            width: width.into(),
            patch: patch_size.into(),
            patches: patches.into(),
            patches_of_token: patches_of_token.into(),
            layers,
        };
        let embedding_length = shapes.check(kind)?;
        if kind == ProjectorType::Qwen25Vl {
            // Its windows are put in order by this length.
            keys.check_projection(embedding_length)?;
        }
        Ok(ProjectorHeader {
            kind,
            embedding_length,
            sizing,
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

    /// What stands for a picture with these sides in a prompt.
    ///
    /// # Errors
    /// A message, if llama.cpp cannot scale such a picture.
    pub fn picture(&self, width: u32, height: u32) -> Result<PictureLayout, String> {
        self.sizing.layout(self.kind.texts_around(), width, height)
    }

    /// The most embeddings of a picture.
    pub fn most_tokens(&self) -> u32 {
        self.sizing.most_tokens()
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

/// The tokens of a square of patches.
fn merged(patches: u32, merge: u32) -> Result<u32> {
    if patches.is_multiple_of(merge) {
        return Ok((patches / merge) * (patches / merge));
    }
    let problem = format!("{SCALE_FACTOR} {merge} does not divide the {patches} patches of a side");
    Err(refused(problem))
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

    /// How pictures are scaled to one size.
    fn fixed(&self, kind: ProjectorType, image_size: u32, patch_size: u32) -> Result<Sizing> {
        let patches = image_size / patch_size;
        let merge = match kind {
            ProjectorType::Gemma3 if self.0.metadata().contains(SCALE_FACTOR) => {
                self.number(SCALE_FACTOR, 1..=patches)?
            }
            ProjectorType::Gemma3 => GEMMA3_MERGE,
            _ => 1,
        };
        let tokens = merged(patches, merge)?;
        Ok(Sizing::Fixed { side: image_size, tokens })
    }

    /// How pictures become tiles of this size.
    fn tiles(&self, image_size: u32, patch_size: u32) -> Result<Sizing> {
        let patches = image_size / patch_size;
        let tokens = merged(patches, self.number(SCALE_FACTOR, 2..=patches.max(2))?)?;
        let key = "clip.vision.preproc_image_size";
        let longest = match self.value(key) {
            None | Some(GgufValue::U32(0)) => None,
            Some(_) => Some(self.number(key, 1..=MAX_IMAGE_SIZE)?),
        };
        let sizing = Sizing::Tiles { side: image_size, tokens, longest };
        let most = sizing.most_tokens();
        if most > MAX_TILED_TOKENS {
            return Err(refused(format!(
                "{key} makes pictures of {most} tokens; at most {MAX_TILED_TOKENS} are supported"
            )));
        }
        Ok(sizing)
    }

    /// How pictures become squares of patches. Heads of this length have a rotary position in each
    /// direction.
    fn squares(&self, kind: ProjectorType, patch_size: u32, head: u32) -> Result<Sizing> {
        if !head.is_multiple_of(4) {
            return Err(refused(format!(
                "clip.vision.attention.head_count makes heads of length {head}, which 4 must divide"
            )));
        }
        self.number("clip.vision.patch_size", 1..=QWEN_MAX_PATCH)?;
        self.optional("clip.vision.spatial_merge_size", QWEN_MERGE)?;
        match kind {
            // The graph would read windows that are not there.
            ProjectorType::Qwen2Vl => self.optional("clip.vision.n_wa_pattern", 0)?,
            ProjectorType::Qwen25Vl => {
                self.number("clip.vision.n_wa_pattern", 0..=MAX_LAYERS)?;
            }
            _ => (),
        }
        let [least, most] = QWEN_TOKENS;
        Ok(Sizing::Squares { square: patch_size * QWEN_MERGE, least, most })
    }

    /// Checks the length of embeddings as the metadata has it.
    fn check_projection(&self, length: u64) -> Result<()> {
        let key = "clip.vision.projection_dim";
        match self.value(key).and_then(GgufValue::as_u64) {
            Some(stated) if stated == length => Ok(()),
            _ => Err(refused(format!("{key} must be {length}, the length of the embeddings"))),
        }
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
