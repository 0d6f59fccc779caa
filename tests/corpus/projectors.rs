//! Projectors with faults, for models without.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::ImageEncoder;
use llb::api::Modality;
use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::child::Outcome;
use crate::model_file::{ModelFile, TYPES, TensorSpec};
use crate::scripted::projector::{ProjectorFile, SAMPLE_RATE, embedding, is_half, model};

/// Keys that llama.cpp reads if a projector has them, besides those of the files.
const OPTIONAL: [&str; 14] = [
    "attention.head_count_kv",
    "attention.head_dim",
    "feature_layer",
    "image_grid_pinpoints",
    "image_max_pixels",
    "image_min_pixels",
    "n_wa_pattern",
    "preproc_image_size",
    "preproc_max_tiles",
    "preproc_min_tiles",
    "projector.scale_factor",
    "projector.stack_factor",
    "projector_type",
    "spatial_merge_size",
];

/// The sides of the pictures in requests.
const SIZES: [(u32, u32); 3] = [(40, 40), (17, 90), (1, 1)];

/// A valid projector of each type.
pub fn all() -> Vec<ModelFile> {
    ProjectorType::ALL.into_iter().map(projector).collect()
}

fn projector(kind: ProjectorType) -> ModelFile {
    let written = ProjectorFile::new(kind, embedding(kind));
    let mut file = ModelFile::new("clip");
    file.name = format!("clip {}", kind.as_str());
    let is_written = |key: &str| ["general.architecture", "general.file_type"].contains(&key);
    file.keys = written.metadata.into_iter().filter(|(key, _)| !is_written(key)).collect();
    let encoder = match kind.modality() {
        Modality::Image => "vision",
        Modality::Audio => "audio",
    };
    let optional = OPTIONAL.map(|key| format!("clip.{encoder}.{key}")).into_iter();
    let has = |name: &String| file.keys.iter().any(|(key, _)| key == name);
    file.optional_keys = optional.filter(|key| !has(key)).collect();
    let tensor = |(name, shape): &(String, Vec<u64>)| {
        let tensor_type = if is_half(name) { TYPES[1] } else { TYPES[0] };
        TensorSpec { tensor_type, ..TensorSpec::new(name, shape.clone()) }
    };
    file.tensors = written.tensors.iter().map(tensor).collect();
    file
}

/// The options of a create that uses the projector at `path`, with what a child asks about.
pub fn options(path: &Path, index: usize, folder: &Path) -> Value {
    let kind = ProjectorType::ALL[index];
    let target = folder.join(format!("{}.gguf", kind.as_str()));
    if !target.exists() {
        std::fs::write(&target, model(kind)).unwrap();
    }
    let parts: Vec<Value> = match kind.modality() {
        Modality::Image => SIZES.map(picture).to_vec(),
        Modality::Audio => vec![sound(SAMPLE_RATE), sound(1)],
    };
    json!({ "model": target, "projector": path, "media": parts })
}

fn picture((width, height): (u32, u32)) -> Value {
    let pixels: Vec<u8> = (0..width * height * 3).map(|index| (index % 251) as u8).collect();
    let mut file = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(&pixels, width, height, image::ExtendedColorType::Rgb8).unwrap();
    let url = format!("data:image/png;base64,{}", STANDARD.encode(file));
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn sound(samples: u32) -> Value {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    file.extend(SAMPLE_RATE.to_le_bytes());
    file.extend((SAMPLE_RATE * 2).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend((samples * 2).to_le_bytes());
    file.extend((0..samples).flat_map(|at| ((at % 97) as i16 * 99).to_le_bytes()));
    let data = STANDARD.encode(file);
    json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } })
}

/// Whether a fault was noticed by llama.cpp, which ends other processes: a refusal by the header was
/// due.
pub fn is_late(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(message) | Outcome::Failed(message) => message.contains("GGML_ASSERT"),
        _ => false,
    }
}
