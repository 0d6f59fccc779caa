//! The metadata of a projector.

use std::ops::RangeInclusive;

use super::kind::{ProjectorType, refused};
use crate::api::Modality;
use crate::error::Result;
use crate::gguf::header::ModelHeader;
use crate::gguf::value::{GgufValue, ValueType};

/// With more layers llama.cpp's graph may have more than the 8,192 nodes that it has room for. CogVLM
/// has 63.
pub(super) const MAX_LAYERS: u32 = 80;
/// The same for layers of a conformer, each of which takes up to 150 nodes. Gemma 4 has 12.
const MAX_CONFORMER_LAYERS: u32 = 48;

/// The largest number that llama.cpp reads.
const MAX_NUMBER: u32 = i32::MAX as u32;

/// The types of the keys that llama.cpp reads for any encoder. Where it asks for one of another type,
/// an assertion fails.
const TYPES: [(&str, ValueType); 37] = [
    ("general.name", ValueType::String),
    ("general.description", ValueType::String),
    ("clip.projector_type", ValueType::String),
    ("clip.has_vision_encoder", ValueType::Bool),
    ("clip.has_audio_encoder", ValueType::Bool),
    ("clip.has_gen_audio_encoder", ValueType::Bool),
    ("clip.use_gelu", ValueType::Bool),
    ("clip.use_silu", ValueType::Bool),
    ("clip.minicpmv_version", ValueType::I32),
    ("clip.minicpmv_query_num", ValueType::U32),
    ("clip.vision.projector_type", ValueType::String),
    ("clip.vision.mm_patch_merge_type", ValueType::String),
    ("clip.vision.embedding_length", ValueType::U32),
    ("clip.vision.feed_forward_length", ValueType::U32),
    ("clip.vision.block_count", ValueType::U32),
    ("clip.vision.projection_dim", ValueType::U32),
    ("clip.vision.attention.head_count", ValueType::U32),
    ("clip.vision.attention.head_count_kv", ValueType::U32),
    ("clip.vision.attention.head_dim", ValueType::U32),
    ("clip.vision.attention.layer_norm_epsilon", ValueType::F32),
    ("clip.vision.image_size", ValueType::U32),
    ("clip.vision.patch_size", ValueType::U32),
    ("clip.vision.preproc_image_size", ValueType::U32),
    ("clip.vision.preproc_max_tiles", ValueType::U32),
    ("clip.vision.preproc_min_tiles", ValueType::U32),
    ("clip.vision.projector.scale_factor", ValueType::U32),
    ("clip.vision.spatial_merge_size", ValueType::U32),
    ("clip.audio.projector_type", ValueType::String),
    ("clip.audio.embedding_length", ValueType::U32),
    ("clip.audio.feed_forward_length", ValueType::U32),
    ("clip.audio.block_count", ValueType::U32),
    ("clip.audio.projection_dim", ValueType::U32),
    ("clip.audio.attention.head_count", ValueType::U32),
    ("clip.audio.attention.head_count_kv", ValueType::U32),
    ("clip.audio.attention.head_dim", ValueType::U32),
    ("clip.audio.attention.layer_norm_epsilon", ValueType::F32),
    ("clip.audio.projector.stack_factor", ValueType::U32),
];

/// Refuses keys of other types than llama.cpp reads, and numbers that it cannot read. The header has
/// no value for some arrays, as if their key were missing.
fn check_types(header: &ModelHeader) -> Result<()> {
    let metadata = header.metadata();
    for (key, expected) in TYPES.into_iter().filter(|(key, _)| metadata.contains(key)) {
        let value = metadata.get(key);
        if value.is_none_or(|value| value.value_type() != expected) {
            let wanted = match expected {
                ValueType::Bool => "true or false",
                ValueType::String => "a short text",
                ValueType::I32 => "a 32-bit number with a sign",
                ValueType::F32 => "a number of 32 bits with a fraction",
                _ => "a 32-bit number",
            };
            return Err(refused(format!("{key} is not {wanted}")));
        }
        if let Some(GgufValue::U32(number)) = value
            && *number > MAX_NUMBER
        {
            return Err(refused(format!("{key} is {number}; it must be at most {MAX_NUMBER}")));
        }
    }
    let is_true = |key| matches!(metadata.get(key), Some(GgufValue::Bool(true)));
    if is_true("clip.use_gelu") && is_true("clip.use_silu") {
        let problem = "clip.use_gelu and clip.use_silu cannot both be true";
        return Err(refused(problem.to_owned()));
    }
    Ok(())
}

/// The metadata of an encoder in a projector.
pub(super) struct Keys<'a> {
    header: &'a ModelHeader,
    pub(super) modality: Modality,
}

/// The sizes that all encoders have.
pub(super) struct EncoderSizes {
    /// The length of the encoder's embeddings.
    pub(super) width: u32,
    /// The length of a head, if there are layers.
    pub(super) head: u32,
    pub(super) layers: u32,
}

impl<'a> Keys<'a> {
    /// Finds out which encoders the file has: one of pictures, one of sound, or both.
    pub(super) fn all(header: &'a ModelHeader) -> Result<Vec<Keys<'a>>> {
        check_types(header)?;
        let has = |key| matches!(header.metadata().get(key), Some(GgufValue::Bool(true)));
        let [sees, hears, speaks] =
            ["clip.has_vision_encoder", "clip.has_audio_encoder", "clip.has_gen_audio_encoder"]
                .map(has);
        if speaks {
            let message = "clip.has_gen_audio_encoder: a generator of sound is not supported yet";
            return Err(refused(message.to_owned()));
        }
        let encoders = [(sees, Modality::Image), (hears, Modality::Audio)];
        let encoders = encoders.into_iter().filter(|(is_there, _)| *is_there);
        let all: Vec<Keys> = encoders.map(|(_, modality)| Keys { header, modality }).collect();
        if all.is_empty() {
            let message = "neither clip.has_vision_encoder nor clip.has_audio_encoder is true";
            return Err(refused(message.to_owned()));
        }
        Ok(all)
    }

    /// A key of the encoder: `clip.vision.block_count`.
    pub(super) fn of_encoder(&self, name: &str) -> String {
        let encoder = match self.modality {
            Modality::Image => "vision",
            Modality::Audio => "audio",
        };
        format!("clip.{encoder}.{name}")
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a GgufValue> {
        self.header.metadata().get(key)
    }

    pub(super) fn kind(&self) -> Result<ProjectorType> {
        let keys = ["clip.projector_type".to_owned(), self.of_encoder("projector_type")];
        let mut names = keys.iter().filter_map(|key| self.header.metadata().str(key));
        let name = names.find(|name| !name.is_empty());
        let name = name.ok_or_else(|| refused("clip.projector_type is missing".to_owned()))?;
        let name = match (name, self.modality) {
            // Older files of Qwen2.5-Omni name both of its projectors so.
            ("qwen2.5o", Modality::Image) => ProjectorType::Qwen25Vl.as_str(),
            ("qwen2.5o", Modality::Audio) => ProjectorType::Qwen2Audio.as_str(),
            (name, _) => name,
        };
        let of_encoder = |kind: &ProjectorType| kind.modality() == self.modality;
        let known: Vec<ProjectorType> =
            ProjectorType::ALL.iter().copied().filter(of_encoder).collect();
        known.iter().copied().find(|kind| kind.as_str() == name).ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|kind| kind.as_str()).collect();
            refused(format!(
                "clip.projector_type: projectors of type {name:?} are not supported yet; supported are {}",
                known.join(", ")
            ))
        })
    }

    /// Checks the keys that all encoders have, and refuses those that change how llama.cpp computes,
    /// and that the supported types lack.
    pub(super) fn check_encoder(&self, kind: ProjectorType) -> Result<EncoderSizes> {
        let pinpoints = "clip.vision.image_grid_pinpoints".to_owned();
        for key in [pinpoints, self.of_encoder("feature_layer")] {
            if self.header.metadata().contains(&key) {
                return Err(refused(format!("{key} is not supported yet")));
            }
        }
        for key in ["feed_forward_length", "projection_dim"] {
            self.number(&self.of_encoder(key), 0..=MAX_NUMBER)?;
        }
        for key in ["clip.vision.image_mean", "clip.vision.image_std"] {
            if self.modality == Modality::Image && !self.header.metadata().contains(key) {
                return Err(refused(format!("{key} is missing")));
            }
        }
        let most = match kind {
            // Its blocks are counted by their names.
            ProjectorType::Gemma3NV => MAX_NUMBER,
            ProjectorType::Gemma4Audio => MAX_CONFORMER_LAYERS,
            _ => MAX_LAYERS,
        };
        let counts = if kind.has_layers() { 1..=most } else { 0..=0 };
        let layers = self.number(&self.of_encoder("block_count"), counts)?;
        let (width_key, heads_key) =
            (self.of_encoder("embedding_length"), self.of_encoder("attention.head_count"));
        let width = self.number(&width_key, 1..=1 << 16)?;
        let counts = if kind.has_layers() { 1..=width } else { 0..=MAX_NUMBER };
        let heads = self.number(&heads_key, counts)?;
        let mut head = 0;
        if kind.has_layers() {
            if width % heads != 0 {
                return Err(refused(format!(
                    "{heads_key} {heads} does not divide {width_key} {width}"
                )));
            }
            head = width / heads;
            self.optional(&self.of_encoder("attention.head_dim"), head)?;
            self.optional(&self.of_encoder("attention.head_count_kv"), heads)?;
        }
        let epsilon_key = self.of_encoder("attention.layer_norm_epsilon");
        match self.value(&epsilon_key) {
            Some(GgufValue::F32(epsilon)) if epsilon.is_finite() && *epsilon >= 0.0 => (),
            _ => return Err(refused(format!("{epsilon_key} must be a number of at least 0"))),
        }
        Ok(EncoderSizes { width, head, layers })
    }

    /// A number that must be there.
    pub(super) fn number(&self, key: &str, allowed: RangeInclusive<u32>) -> Result<u32> {
        match self.value(key) {
            Some(GgufValue::U32(number)) if allowed.contains(number) => Ok(*number),
            Some(GgufValue::U32(number)) => {
                let (least, most) = allowed.into_inner();
                let allowed = match least == most {
                    true => least.to_string(),
                    false => format!("from {least} to {most}"),
                };
                Err(refused(format!("{key} is {number}; it must be {allowed}")))
            }
            Some(_) => Err(refused(format!("{key} is not a 32-bit number"))),
            None => Err(refused(format!("{key} is missing"))),
        }
    }

    /// A number that has only one value, if it is there.
    pub(super) fn optional(&self, key: &str, only: u32) -> Result<()> {
        match self.value(key) {
            None => Ok(()),
            Some(GgufValue::U32(number)) if *number == only => Ok(()),
            Some(_) => Err(refused(format!("{key} must be {only}"))),
        }
    }
}
