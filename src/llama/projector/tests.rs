//! Compares the embeddings of pictures, and of sounds, with those of Hugging Face transformers, for
//! encoders with random weights. Finds out which patches of CLIP llama.cpp passes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sound;

use std::collections::BTreeMap;
use std::process::Command;

use image::ImageEncoder;
use serde_json::{Value, json};

use super::*;
use crate::api::{CacheType, FlashAttention};
use crate::gguf::ProjectorType;
use crate::llama::context::{ContextOptions, ModelOptions};
use crate::llama::devices::{DeviceSelection, DeviceSplit};

#[allow(clippy::duplicate_mod, reason = "each user of the test models compiles them")]
#[path = "../../../tests/scripted/mod.rs"]
mod scripted;

use scripted::projector::{IMAGE_SIZE, PATCH_SIZE, ProjectorFile, embedding, model};

const KIND: ProjectorType = ProjectorType::Qwen25Vl;
const WIDTH: u64 = 32;
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/encoder-reference.py");
/// What the script exits with if it cannot import transformers.
const MISSING: i32 = 3;

/// A projector file as Qwen2.5-VL's: without biases of norms, and with an inner layer of the merger
/// that is as long as its input.
fn projector() -> ProjectorFile {
    let mut file = ProjectorFile::new(KIND, embedding(KIND));
    file.set("clip.use_gelu", false);
    file.set("clip.use_silu", true);
    file.set("clip.vision.attention.layer_norm_epsilon", 1e-6_f32);
    file.tensors.retain(|(name, _)| {
        let is_norm = ["ln1", "ln2", "post_ln"].iter().any(|norm| name.contains(norm));
        !(is_norm && name.ends_with("bias"))
    });
    for (name, shape) in &mut file.tensors {
        match name.as_str() {
            "mm.0.weight" => *shape = vec![4 * WIDTH; 2],
            "mm.0.bias" => *shape = vec![4 * WIDTH],
            "mm.2.weight" => shape[0] = 4 * WIDTH,
            _ => (),
        }
    }
    file
}

/// The tensors of a projector file, by their names.
fn tensors<'a>(file: &'a ProjectorFile) -> BTreeMap<&'a str, Value> {
    let stored = |(tensor, numbers): (&'a (String, Vec<u64>), Vec<f32>)| {
        (tensor.0.as_str(), json!({ "shape": tensor.1, "numbers": numbers }))
    };
    file.tensors.iter().zip(file.numbers()).map(stored).collect()
}

/// Runs a script that writes the embeddings of transformers to the folder. `false` if there is no
/// Python with it, which a line says.
#[allow(clippy::print_stdout, reason = "a skipped test prints a line")]
fn run_reference(script: &str, folder: &Path) -> bool {
    let python = std::env::var("LLB_TRANSFORMERS").unwrap_or_else(|_| "python3".to_owned());
    let Ok(run) = Command::new(python).arg(script).arg(folder).output() else {
        println!("skipped: the embeddings of transformers: no Python");
        return false;
    };
    if run.status.code() == Some(MISSING) {
        let missing = String::from_utf8_lossy(&run.stdout);
        println!("skipped: the embeddings of transformers: {}", missing.trim());
        return false;
    }
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    true
}

/// A picture with edges and a gradient.
fn picture(width: u32, height: u32) -> Vec<u8> {
    let pixel = |index: u32| {
        let (x, y) = (index % width, index / width);
        let edge = if (x / 7 + y / 5).is_multiple_of(2) { 90 } else { 0 };
        [(x * 255 / width) as u8, (y * 255 / height) as u8, edge + (x * y % 97) as u8]
    };
    let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
    png(&pixels, width, height)
}

fn png(pixels: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(pixels, width, height, image::ExtendedColorType::Rgb8).unwrap();
    file
}

/// Loads a projector for a model of this type.
fn encoder(kind: ProjectorType, projector: &ProjectorFile) -> MediaEncoder {
    let folder = tempfile::tempdir().unwrap();
    let (file, path) = (folder.path().join("mmproj.gguf"), folder.path().join("model.gguf"));
    std::fs::write(&file, projector.to_bytes()).unwrap();
    std::fs::write(&path, model(kind)).unwrap();
    let options = ModelOptions {
        path: path.to_str().unwrap().to_owned(),
        n_gpu_layers: Some(0),
        devices: DeviceSelection::Default,
        split: DeviceSplit::BY_LAYERS,
        n_cpu_moe: None,
        rules: Vec::new(),
        // The file is removed.
        use_mmap: false,
        use_mlock: false,
        repacks: true,
        predicts: false,
    };
    let model = Arc::new(Model::load(&options, &mut |_| true).unwrap());
    let options = ContextOptions {
        n_ctx: 1024,
        n_batch: 512,
        n_parallel: 1,
        n_rollback: 0,
        kv_unified: true,
        n_threads: 1,
        adapts_threads: false,
        flash_attn: FlashAttention::Auto,
        cache_type_k: CacheType::F16,
        cache_type_v: CacheType::F16,
        pooling: None,
    };
    let mut context = LlamaContext::new(Arc::clone(&model), &options).unwrap();
    MediaEncoder::load(file.to_str().unwrap(), &model, &mut context, 1, false).unwrap()
}

/// The embeddings of a picture or a sound by llama.cpp.
fn embeddings(encoder: &MediaEncoder, modality: Modality, file: &[u8]) -> Vec<f32> {
    let content = encoder
        .content(modality, file, &MediaLimits::default(), &Interrupt::default())
        .ok()
        .unwrap();
    let pieces = content.iter().filter_map(|chunk| match chunk {
        MediaChunk::Piece(piece) => Some(piece.embeddings(&|| false).unwrap().unwrap().to_vec()),
        MediaChunk::Tokens(_) => None,
    });
    pieces.flatten().collect()
}

/// llama.cpp puts the class after the patches, and leaves out the first row (docs/upstream.md).
#[test]
fn the_first_patch_of_clip_is_left_out() {
    const CLIP: ProjectorType = ProjectorType::Mlp;
    let mut file = ProjectorFile::new(CLIP, embedding(CLIP));
    // The graph leaves out the last layer, so each row depends on one patch alone.
    file.set("clip.vision.block_count", 1_u32);
    file.tensors.retain(|(name, _)| !name.starts_with("v.blk.1."));
    let encoder = encoder(CLIP, &file);
    let rows = |dark: Option<u32>| {
        let is_dark = |pixel: u32| {
            let (x, y) = (pixel % IMAGE_SIZE, pixel / IMAGE_SIZE);
            dark == Some(y / PATCH_SIZE * (IMAGE_SIZE / PATCH_SIZE) + x / PATCH_SIZE)
        };
        let pixels = (0..IMAGE_SIZE * IMAGE_SIZE).map(|pixel| if is_dark(pixel) { 9 } else { 200 });
        let pixels: Vec<u8> = pixels.flat_map(|grey| [grey; 3]).collect();
        embeddings(&encoder, Modality::Image, &png(&pixels, IMAGE_SIZE, IMAGE_SIZE))
    };
    let length = embedding(CLIP) as usize;
    let bright = rows(None);
    let count = (IMAGE_SIZE / PATCH_SIZE) * (IMAGE_SIZE / PATCH_SIZE);
    assert_eq!(bright.len(), count as usize * length);
    for patch in 0..count {
        let dark = rows(Some(patch));
        let pairs = bright.chunks_exact(length).zip(dark.chunks_exact(length));
        let changed: Vec<u32> =
            (0..).zip(pairs).filter(|(_, (a, b))| a != b).map(|it| it.0).collect();
        assert_eq!(changed, patch.checked_sub(1).into_iter().collect::<Vec<u32>>(), "{patch}");
    }
}

/// The least cosine of two embeddings in the same place.
fn least_cosine(ours: &[f32], theirs: &[Value]) -> f64 {
    let length = embedding(KIND) as usize;
    assert_eq!(ours.len(), theirs.len() * length, "another number of places");
    let cosine = |(ours, theirs): (&[f32], &Value)| {
        let ours = ours.iter().map(|number| f64::from(*number));
        let theirs = theirs.as_array().unwrap().iter().map(|number| number.as_f64().unwrap());
        let (mut product, mut squares) = (0.0, [0.0, 0.0]);
        for (ours, theirs) in ours.zip(theirs) {
            product += ours * theirs;
            squares[0] += ours * ours;
            squares[1] += theirs * theirs;
        }
        product / (squares[0] * squares[1]).sqrt()
    };
    ours.chunks_exact(length).zip(theirs).map(cosine).fold(1.0, f64::min)
}

#[test]
#[allow(clippy::print_stdout, reason = "a skipped test prints a line")]
fn embeddings_are_those_of_transformers() {
    let folder = tempfile::tempdir().unwrap();
    let file = projector();
    let given = json!({
        "tensors": tensors(&file), "width": WIDTH, "layers": 2, "inner": 48, "heads": 4, "window": 112,
        "embedding": embedding(KIND), "full_layers": [1],
    });
    std::fs::write(folder.path().join("weights.json"), given.to_string()).unwrap();
    // Whole squares, some with several windows; one that is enlarged; and one whose sides are no
    // multiples of a square: llama.cpp pads it, and transformers stretches it.
    const PADDED: (u32, u32) = (37, 91);
    let sizes = [(64, 48), (16, 16), (160, 120), (240, 32), (96, 200), PADDED];
    let pictures = sizes.map(|(width, height)| picture(width, height));
    for (index, picture) in pictures.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{index}.png")), picture).unwrap();
    }
    if !run_reference(SCRIPT, folder.path()) {
        return;
    }
    let encoder = encoder(KIND, &file);
    for (index, picture) in pictures.iter().enumerate() {
        let theirs = std::fs::read(folder.path().join(format!("{index}.json"))).unwrap();
        let theirs: Vec<Value> = serde_json::from_slice(&theirs).unwrap();
        let least = least_cosine(&embeddings(&encoder, Modality::Image, picture), &theirs);
        println!("{:?}: {least:.6}", sizes[index]);
        assert!(least >= 0.999 || sizes[index] == PADDED, "{:?}: {least}", sizes[index]);
    }
}
