#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use super::*;
use crate::error::Code;
use crate::gguf::GgufValue;
use crate::gguf::gguf_writer::GgufWriter;

#[allow(clippy::duplicate_mod, reason = "each user of the test models compiles them")]
#[path = "../../../tests/scripted/mod.rs"]
mod scripted;

use scripted::projector::{ProjectorFile, SAMPLE_RATE, image_tokens, sound_tokens};

const LENGTH: u64 = 64;

fn read(file: &[u8]) -> Result<ProjectorHeader> {
    let header = ModelHeader::read(Cursor::new(file), file.len() as u64)?;
    header.check_complete().and_then(|()| ProjectorHeader::of(&header))
}

#[test]
fn a_projector_says_what_it_takes() {
    for kind in ProjectorType::ALL {
        let header = read(&ProjectorFile::new(kind, LENGTH).to_bytes()).unwrap();
        assert_eq!(header.kinds().collect::<Vec<_>>(), [kind]);
        assert_eq!(header.embedding_length(), LENGTH);
        if let Some(windows) = header.sound() {
            assert_eq!(kind.modality(), Modality::Audio);
            assert_eq!(windows.sample_rate(), SAMPLE_RATE);
            assert_eq!(windows.tokens() as usize, sound_tokens(kind));
            assert!(header.picture(40, 40).is_err());
            continue;
        }
        assert_eq!(kind.modality(), Modality::Image);
        for (width, height) in [(40, 40), (24, 80)] {
            let layout = header.picture(width, height).unwrap();
            assert_eq!(layout.places() as usize, image_tokens(kind, width, height));
        }
    }
}

#[test]
fn a_projector_may_take_pictures_and_sound() {
    use ProjectorType::{Mlp, Qwen2Audio, Qwen25Vl, Voxtral};
    for (sight, hearing) in [(Mlp, Voxtral), (Qwen25Vl, Qwen2Audio)] {
        let header = read(&ProjectorFile::of_both(sight, hearing, LENGTH).to_bytes()).unwrap();
        assert_eq!(header.kinds().collect::<Vec<_>>(), [sight, hearing]);
        assert_eq!(header.sound().unwrap().tokens() as usize, sound_tokens(hearing));
        let layout = header.picture(40, 40).unwrap();
        assert_eq!(layout.places() as usize, image_tokens(sight, 40, 40));
    }
    // Older files of Qwen2.5-Omni have one name for both.
    let mut file = ProjectorFile::of_both(Qwen25Vl, Qwen2Audio, LENGTH);
    file.metadata.retain(|(key, _)| !key.ends_with(".projector_type"));
    let missing = read(&file.to_bytes()).expect_err("refused");
    assert_eq!(missing.message(), "clip.projector_type is missing");
    file.set("clip.projector_type", "qwen2.5o");
    let header = read(&file.to_bytes()).unwrap();
    assert_eq!(header.kinds().collect::<Vec<_>>(), [Qwen25Vl, Qwen2Audio]);
    // Each encoder needs all of its tensors, and both the same length.
    let good = || ProjectorFile::of_both(Mlp, Qwen2Audio, LENGTH);
    for name in ["v.blk.1.attn_q.weight", "a.blk.1.attn_q.weight", "mm.2.weight", "mm.a.fc.weight"]
    {
        let mut file = good();
        file.tensors.retain(|(other, _)| other != name);
        let error = read(&file.to_bytes()).expect_err("refused");
        assert_eq!(error.message(), format!("tensor {name:?} is missing"));
    }
    let mut file = good();
    for (name, shape) in &mut file.tensors {
        match name.as_str() {
            "mm.a.fc.weight" => shape[1] = LENGTH + 1,
            "mm.a.fc.bias" => shape[0] = LENGTH + 1,
            _ => (),
        }
    }
    let error = read(&file.to_bytes()).expect_err("refused");
    assert_eq!(
        error.message(),
        "the encoder of pictures computes embeddings of length 64, but that of sound of length 65"
    );
    let mut file = good();
    file.tensors.push(("mm.9.weight".to_owned(), vec![8]));
    let error = read(&file.to_bytes()).expect_err("refused");
    assert_eq!(
        error.message(),
        "tensor \"mm.9.weight\" is not one of a projector of type \"mlp and qwen2a\""
    );
}

#[test]
fn old_names_of_feed_forward_matrices_are_accepted() {
    let mut file = ProjectorFile::new(ProjectorType::Mlp, LENGTH);
    for (name, _) in &mut file.tensors {
        let (from, to) =
            if name.contains("ffn_up") { ("ffn_up", "ffn_down") } else { ("ffn_down", "ffn_up") };
        *name = name.replace(from, to);
    }
    assert!(read(&file.to_bytes()).is_ok());
}

/// Changes a good file and expects this message.
#[track_caller]
fn check(kind: ProjectorType, change: impl Fn(&mut ProjectorFile), expected: &str) {
    let mut file = ProjectorFile::new(kind, LENGTH);
    change(&mut file);
    let error = read(&file.to_bytes()).expect_err("refused");
    assert_eq!(error.code(), Code::ModelInvalid);
    assert_eq!(error.message(), expected);
}

#[track_caller]
fn check_key(key: &str, value: impl Into<GgufValue> + Clone, expected: &str) {
    check(ProjectorType::Gemma3, |file| file.set(key, value.clone()), expected);
}

#[track_caller]
fn check_shape(name: &str, shape: &[u64], expected: &str) {
    let set = |file: &mut ProjectorFile| {
        let tensor = file.tensors.iter_mut().find(|(other, _)| other == name).unwrap();
        tensor.1 = shape.to_vec();
    };
    check(ProjectorType::Mlp, set, expected);
}

#[test]
fn what_ends_a_process_is_refused() {
    // These four load in llama.cpp and fail an assertion at the first picture (docs/upstream.md).
    let heads = "clip.vision.attention.head_count";
    check_key(heads, 0_u32, "clip.vision.attention.head_count is 0; it must be from 1 to 32");
    check_key(
        heads,
        7_u32,
        "clip.vision.attention.head_count 7 does not divide clip.vision.embedding_length 32",
    );
    check_shape(
        "v.blk.0.attn_q.bias",
        &[31],
        "tensor \"v.blk.0.attn_q.bias\" has the shape [31], but its projector needs [32]",
    );
    check_shape(
        "v.position_embd.weight",
        &[32, 60],
        "tensor \"v.position_embd.weight\" has the shape [32, 60], but its projector needs [32, 65]",
    );
}

#[test]
fn keys_are_checked() {
    check_key(
        "clip.projector_type",
        "resampler",
        "clip.projector_type: projectors of type \"resampler\" are not supported yet; supported \
         are mlp, gemma3, janus_pro, qwen2vl_merger, qwen2.5vl_merger, qwen3vl_merger, idefics3, \
         internvl, pixtral, lfm2, kimivl, phi4, lightonocr, glm4v, llama4, \
         paddleocr, dots_ocr, cogvlm, adapter",
    );
    check_key("clip.projector_type", "", "clip.projector_type is missing");
    check_key(
        "clip.has_vision_encoder",
        false,
        "neither clip.has_vision_encoder nor clip.has_audio_encoder is true",
    );
    check_key(
        "clip.has_audio_encoder",
        true,
        "clip.projector_type: projectors of type \"gemma3\" are not supported yet; supported are \
         qwen2a, ultravox, voxtral, musicflamingo, meralion, glma",
    );
    check_key(
        "clip.has_gen_audio_encoder",
        true,
        "clip.has_gen_audio_encoder: a generator of sound is not supported yet",
    );
    check_key(
        "general.architecture",
        "llama",
        "not a projector: general.architecture is \"llama\", not \"clip\"",
    );
    check_key(
        "clip.vision.image_size",
        1_000_000_u32,
        "clip.vision.image_size is 1000000; it must be from 1 to 4096",
    );
    check_key(
        "clip.vision.patch_size",
        0_u32,
        "clip.vision.patch_size is 0; it must be from 1 to 32",
    );
    check_key("clip.vision.image_size", 32_u64, "clip.vision.image_size is not a 32-bit number");
    check_key(
        "clip.vision.block_count",
        u32::MAX,
        "clip.vision.block_count is 4294967295; it must be from 1 to 512",
    );
    check_key("clip.vision.attention.head_dim", 9_u32, "clip.vision.attention.head_dim must be 8");
    check_key(
        "clip.vision.projector.scale_factor",
        3_u32,
        "clip.vision.projector.scale_factor 3 does not divide the 8 patches of a side",
    );
    for epsilon in [-1.0_f32, f32::NAN, f32::INFINITY] {
        check_key(
            "clip.vision.attention.layer_norm_epsilon",
            epsilon,
            "clip.vision.attention.layer_norm_epsilon must be a number of at least 0",
        );
    }
    check_key(
        "clip.vision.image_grid_pinpoints",
        vec![32_i32, 32],
        "clip.vision.image_grid_pinpoints is not supported yet",
    );
}

#[test]
fn every_tensor_is_checked() {
    for kind in ProjectorType::ALL {
        let names: Vec<String> =
            ProjectorFile::new(kind, LENGTH).tensors.into_iter().map(|(name, _)| name).collect();
        for name in names {
            // A longer row is wrong for every tensor.
            let mut file = ProjectorFile::new(kind, LENGTH);
            let tensor = file.tensors.iter_mut().find(|(other, _)| *other == name).unwrap();
            tensor.1[0] += 1;
            let changed = read(&file.to_bytes());
            let freed = name == "mm.input_projection.weight";
            assert_eq!(changed.is_err(), !freed, "{name}: the last length is that of the model");
            // Without it, the file is refused unless the encoder computes without it.
            let mut file = ProjectorFile::new(kind, LENGTH);
            file.tensors.retain(|(other, _)| *other != name);
            // These graphs add them without a question.
            let is_needed_bias = kind.as_str().starts_with("qwen")
                && ["attn_q", "attn_k", "attn_v", "patch_embd"].iter().any(|it| name.contains(it))
                || kind == ProjectorType::Glm4V && name == "v.patch_embd.bias"
                || kind == ProjectorType::CogVlm && name.contains("attn_qkv");
            let is_optional_here = match kind {
                ProjectorType::Pixtral | ProjectorType::LightOnOcr => {
                    ["mm.1.bias", "mm.2.bias"].contains(&name.as_str())
                }
                ProjectorType::Glm4V => {
                    let optional = ["up.bias", "gate.bias", "down.bias", "norm.bias", "norm_embd"];
                    optional.iter().any(|it| name.contains(it)) || name.contains("position_embd")
                }
                ProjectorType::Lfm2 => name.starts_with("mm.input_norm."),
                _ => false,
            };
            let of_sound = ["ffn_up.bias", "ffn_down.bias", "attn_out.bias"];
            let is_optional = name.starts_with("v.") && name.ends_with("bias") && !is_needed_bias
                || name.starts_with("a.") && of_sound.iter().any(|end| name.ends_with(end))
                || ["pre_ln", "post_ln", "deepstack.0.norm", "ls1", "ls2"]
                    .iter()
                    .any(|it| name.contains(it))
                || is_optional_here;
            assert_eq!(read(&file.to_bytes()).is_ok(), is_optional, "{kind:?} {name}");
        }
        for name in ["v.blk.0.attn_q_norm.weight", "a.blk.0.attn_k.bias", "mm.a.mlp.9.bias"] {
            let mut file = ProjectorFile::new(kind, LENGTH);
            file.tensors.push((name.to_owned(), vec![8]));
            let message = read(&file.to_bytes()).expect_err("refused").message().to_owned();
            assert!(message.starts_with(&format!("tensor {name:?} is not one of")), "{message}");
        }
    }
}

#[test]
fn keys_of_tiles_are_checked() {
    let check_tiles = |key, value: u32, expected| {
        check(ProjectorType::Idefics3, |file| file.set(key, value), expected);
    };
    let factor = "clip.vision.projector.scale_factor";
    check_tiles(factor, 1, "clip.vision.projector.scale_factor is 1; it must be from 2 to 8");
    let expected = "clip.vision.projector.scale_factor 3 does not divide the 8 patches of a side";
    check_tiles(factor, 3, expected);
    check_tiles(
        "clip.vision.preproc_image_size",
        4096,
        "clip.vision.preproc_image_size makes pictures of 262160 tokens; at most 16384 are supported",
    );
    let check_grid = |key, value: u32, expected| {
        check(ProjectorType::InternVl, |file| file.set(key, value), expected);
    };
    check_grid("clip.vision.preproc_min_tiles", 5, "clip.vision.preproc_min_tiles must be 1");
    let most = "clip.vision.preproc_max_tiles";
    let expected = "clip.vision.preproc_max_tiles is 2000; it must be from 1 to 1024";
    check_grid(most, 2000, expected);
    let llama4 = ProjectorType::Llama4;
    let heads = "clip.vision.attention.head_count";
    let expected = "clip.vision.attention.head_count makes heads of length 2, which 4 must divide";
    check(llama4, |file| file.set(heads, 16_u32), expected);
    let expected = "clip.vision.image_size 352 makes pictures of 19360 tokens; at most 16384 are \
                    supported";
    check(llama4, |file| file.set("clip.vision.image_size", 352_u32), expected);
    let odd = |file: &mut ProjectorFile| file.set("clip.vision.image_size", 36_u32);
    let expected = "clip.vision.image_size 36 has 9 patches in a row, which 2 must divide";
    check(ProjectorType::GlmEdge, odd, expected);
    // Older files do not have it.
    let mut file = ProjectorFile::new(ProjectorType::Idefics3, LENGTH);
    file.set("clip.vision.preproc_image_size", 0_u32);
    let header = read(&file.to_bytes()).unwrap();
    assert_eq!(header.picture(70, 30).unwrap().places(), 3 * 16);
}

#[track_caller]
fn check_qwen(kind: ProjectorType, key: &str, value: impl Into<GgufValue> + Clone, expected: &str) {
    check(kind, |file| file.set(key, value.clone()), expected);
}

#[test]
fn keys_of_pictures_of_any_size_are_checked() {
    use ProjectorType::{Qwen2Vl, Qwen3Vl, Qwen25Vl};
    for kind in [Qwen2Vl, Qwen25Vl, Qwen3Vl, ProjectorType::Glm4V] {
        // Those of three would be a grid that is no whole number of four patches.
        let merge = "clip.vision.spatial_merge_size";
        check_qwen(kind, merge, 0_u32, "clip.vision.spatial_merge_size must be 2");
        check_qwen(kind, merge, 3_u32, "clip.vision.spatial_merge_size must be 2");
        check_qwen(
            kind,
            "clip.vision.attention.head_count",
            16_u32,
            "clip.vision.attention.head_count makes heads of length 2, which 4 must divide",
        );
    }
    // Windows of 112 pixels: patches of more than 56 would be none, and llama.cpp would never end.
    let large = |file: &mut ProjectorFile| {
        file.set("clip.vision.patch_size", 57_u32);
        file.set("clip.vision.image_size", 57_u32);
    };
    check(Qwen25Vl, large, "clip.vision.patch_size is 57; it must be from 1 to 32");
    let windows = "clip.vision.n_wa_pattern";
    check_qwen(Qwen2Vl, windows, 2_u32, "clip.vision.n_wa_pattern must be 0");
    let without = |file: &mut ProjectorFile| file.metadata.retain(|(key, _)| key != windows);
    check(Qwen25Vl, without, "clip.vision.n_wa_pattern is missing");
    check_qwen(
        Qwen25Vl,
        "clip.vision.projection_dim",
        65_u32,
        "clip.vision.projection_dim must be 64, the length of the embeddings",
    );
    let rows = |file: &mut ProjectorFile| {
        let mut tensors = file.tensors.iter_mut();
        tensors.find(|(name, _)| name == "v.position_embd.weight").unwrap().1[1] = 63;
    };
    let expected = "tensor \"v.position_embd.weight\" has 63 rows, which are no square";
    check(Qwen3Vl, rows, expected);
    let class = |file: &mut ProjectorFile| {
        file.tensors.push(("v.class_embd".to_owned(), vec![32]));
    };
    let expected = "tensor \"v.class_embd\" is not one of a projector of type \"qwen2vl_merger\"";
    check(Qwen2Vl, class, expected);
}

#[test]
fn types_are_checked() {
    let file = ProjectorFile::new(ProjectorType::Gemma3, LENGTH);
    for (name, accepted) in [
        ("v.blk.0.attn_q.weight", true),
        ("v.patch_embd.weight", true),
        ("mm.input_projection.weight", true),
        ("v.blk.0.attn_q.bias", false),
        ("v.position_embd.weight", false),
        ("v.post_ln.weight", false),
    ] {
        let mut writer = GgufWriter::new();
        for (key, value) in &file.metadata {
            writer = writer.metadata(key.clone(), value.clone());
        }
        for (other, shape) in &file.tensors {
            let count: u64 = shape.iter().product();
            // ggml's numbers of F32 and F16.
            let (kind, size) = if other == name { (1, 2) } else { (0, 4) };
            writer =
                writer.tensor_bytes(other.clone(), shape, kind, vec![0; (count * size) as usize]);
        }
        assert_eq!(read(&writer.to_bytes()).is_ok(), accepted, "{name}");
    }
}

#[test]
fn keys_of_squares_and_their_tiles_are_checked() {
    use ProjectorType::{DotsOcr, KimiVl, Lfm2, PaddleOcr, Phi4, Pixtral};
    let factor = "clip.vision.projector.scale_factor";
    let without = |file: &mut ProjectorFile| file.metadata.retain(|(key, _)| key != factor);
    for kind in [KimiVl, Lfm2] {
        check(kind, without, "clip.vision.projector.scale_factor is missing");
    }
    let expected = "clip.vision.projector.scale_factor is 1; it must be from 2 to 4";
    check_qwen(KimiVl, factor, 1_u32, expected);
    let expected = "clip.vision.projector.scale_factor is 9; it must be from 2 to 8";
    check_qwen(Lfm2, factor, 9_u32, expected);
    let merge = "clip.vision.spatial_merge_size";
    let expected = "clip.vision.spatial_merge_size is 0; it must be from 1 to 4";
    check_qwen(Pixtral, merge, 0_u32, expected);
    for kind in [KimiVl, Pixtral] {
        let expected =
            "clip.vision.attention.head_count makes heads of length 2, which 4 must divide";
        check_qwen(kind, "clip.vision.attention.head_count", 16_u32, expected);
        let large = |file: &mut ProjectorFile| {
            file.set("clip.vision.patch_size", 65_u32);
            file.set("clip.vision.image_size", 65_u32);
        };
        let expected = "clip.vision.patch_size 65 makes pictures of 17305600 pixels; at most \
                        4096 x 4096 are supported";
        check(kind, large, expected);
    }
    let patch = "clip.vision.patch_size";
    let expected = "clip.vision.patch_size 24 does not divide 512, the side of a tile";
    check_qwen(Lfm2, patch, 24_u32, expected);
    let expected = "clip.vision.patch_size 2 makes tiles of 65536 patches; at most 16384 are \
                    supported";
    let tiny = |file: &mut ProjectorFile| {
        file.set(patch, 2_u32);
        file.set("clip.vision.image_size", 64_u32);
    };
    check(Lfm2, tiny, expected);
    let most = "clip.vision.image_max_pixels";
    let expected = "clip.vision.image_max_pixels is 15; it must be from 16 to 16777216";
    check_qwen(Phi4, most, 15_u32, expected);
    let least = "clip.vision.image_min_pixels";
    let expected = "clip.vision.image_min_pixels is 4097; it must be from 1 to 4096";
    check_qwen(Phi4, least, 4097_u32, expected);
    for kind in [PaddleOcr, DotsOcr] {
        let expected = "clip.vision.image_max_pixels is 63; it must be from 64 to 16777216";
        check_qwen(kind, most, 63_u32, expected);
        let expected = "clip.vision.image_min_pixels is 16385; it must be from 1 to 16384";
        check_qwen(kind, least, 16_385_u32, expected);
        let expected =
            "clip.vision.attention.head_count makes heads of length 2, which 4 must divide";
        check_qwen(kind, "clip.vision.attention.head_count", 16_u32, expected);
    }
    check_qwen(DotsOcr, factor, 3_u32, "clip.vision.projector.scale_factor is 3; it must be 2");
    // The file may allow pictures of more patches than are supported.
    let mut file = ProjectorFile::new(DotsOcr, LENGTH);
    file.set(most, 1_u32 << 24);
    let header = read(&file.to_bytes()).unwrap();
    assert_eq!(header.picture(512, 512).unwrap().places(), 64 * 64);
    assert!(header.picture(520, 512).is_err());
    // Squares of several patches need the matrix that merges them.
    let merger = |file: &mut ProjectorFile| {
        file.tensors.retain(|(name, _)| name != "mm.patch_merger.weight");
    };
    check(Pixtral, merger, "tensor \"mm.patch_merger.weight\" is missing");
    let large = |file: &mut ProjectorFile| file.set("clip.vision.preproc_image_size", 1025_u32);
    let expected =
        "a picture of 1025 pixels in a row has 66564 patches; at most 16384 are supported";
    check(ProjectorType::LightOnOcr, large, expected);
    // llama.cpp would fill 51 GB for the picture of its first buffers.
    for (kind, largest) in
        [(Phi4, 256), (ProjectorType::LightOnOcr, 256), (PaddleOcr, 73), (DotsOcr, 44)]
    {
        let large = |file: &mut ProjectorFile| {
            file.set("clip.vision.patch_size", 4096_u32);
            file.set("clip.vision.image_size", 4096_u32);
            file.set(merge, 1_u32);
        };
        let expected = format!("clip.vision.patch_size is 4096; it must be from 1 to {largest}");
        check(kind, large, &expected);
    }
    // Pixtral itself has single patches.
    let mut file = ProjectorFile::new(Pixtral, LENGTH);
    merger(&mut file);
    file.set(merge, 1_u32);
    let header = read(&file.to_bytes()).unwrap();
    assert_eq!(header.picture(40, 40).unwrap().places(), 10 * 10 + 9);
    for kind in [KimiVl, Lfm2, Phi4, PaddleOcr] {
        let rows = |file: &mut ProjectorFile| {
            let mut tensors = file.tensors.iter_mut();
            tensors.find(|(name, _)| name == "v.position_embd.weight").unwrap().1[1] = 63;
        };
        check(kind, rows, "tensor \"v.position_embd.weight\" has 63 rows, which are no square");
    }
}

#[track_caller]
fn check_sound(
    kind: ProjectorType,
    change: impl Fn(&mut ProjectorFile),
    expected: Result<u32, &str>,
) {
    let mut file = ProjectorFile::new(kind, LENGTH);
    change(&mut file);
    let tokens = read(&file.to_bytes()).map(|header| header.sound().unwrap().tokens());
    assert_eq!(
        tokens.as_ref().map_err(|error| error.message()),
        expected.as_ref().map_err(|it| *it)
    );
}

#[test]
fn keys_of_sound_are_checked() {
    let with = |key: &'static str, value: u32| move |file: &mut ProjectorFile| file.set(key, value);
    let kind = ProjectorType::Qwen2Audio;
    check_sound(kind, |_| (), Ok(750));
    let mel = "clip.audio.num_mel_bins";
    check_sound(
        kind,
        with(mel, 257),
        Err("clip.audio.num_mel_bins is 257; it must be from 1 to 256"),
    );
    check_sound(kind, with(mel, 0), Err("clip.audio.num_mel_bins is 0; it must be from 1 to 256"));
    check_sound(
        kind,
        with("clip.audio.attention.head_count", 7),
        Err("clip.audio.attention.head_count 7 does not divide clip.audio.embedding_length 32"),
    );
    check_sound(
        kind,
        |file| file.set("clip.projector_type", "mlp"),
        Err("clip.projector_type: projectors of type \"mlp\" are not supported yet; supported \
             are qwen2a, ultravox, voxtral, musicflamingo, meralion, glma"),
    );
    check_sound(
        kind,
        |file| file.set("clip.audio.feature_layer", vec![1_i32]),
        Err("clip.audio.feature_layer is not supported yet"),
    );
}

/// The embeddings that llama.cpp counts and computes differ for some factors, which ends the process
/// (docs/upstream.md).
#[test]
fn stack_factors_that_end_a_process_are_refused() {
    const KEY: &str = "clip.audio.projector.stack_factor";
    let stacked = |width: u64, stack: u32| {
        move |file: &mut ProjectorFile| {
            file.set(KEY, stack);
            file.set("clip.audio.embedding_length", width as u32);
            for (name, shape) in &mut file.tensors {
                let of_encoder = name.starts_with("a.").then_some((32, width));
                let first = ["mm.a.norm_pre.", "mm.a.mlp.0.weight", "mm.a.mlp.1.weight"];
                let of_projection = match shape[0] {
                    _ if !first.iter().any(|it| name.starts_with(it)) => None,
                    32 => Some((32, width)),
                    stacked if stacked % 32 == 0 => Some((stacked, width * u64::from(stack))),
                    _ => None,
                };
                if let Some((from, to)) = of_encoder.or(of_projection) {
                    shape.iter_mut().filter(|it| **it == from).for_each(|it| *it = to);
                }
            }
        }
    };
    let ultravox = ProjectorType::Ultravox;
    check_sound(ultravox, stacked(32, 10), Ok(150));
    check_sound(
        ultravox,
        stacked(32, 8),
        Err("clip.audio.projector.stack_factor 8 cannot be computed: of 30 seconds of sound, \
             llama.cpp expects 187 embeddings and computes 188"),
    );
    // The sizes of Ultravox 0.5 and of Voxtral.
    check_sound(ultravox, stacked(1280, 8), Ok(187));
    check_sound(ProjectorType::Voxtral, stacked(1280, 4), Ok(187));
    check_sound(ultravox, stacked(32, 1), Ok(1500));
    let glm = ProjectorType::GlmAsr;
    check_sound(glm, stacked(32, 10), Ok(150 + 2));
    check_sound(
        glm,
        stacked(32, 8),
        Err("clip.audio.projector.stack_factor 8 cannot be computed: of 30 seconds of sound, \
             llama.cpp expects 187 embeddings and computes 188"),
    );
    // The sizes of GLM-ASR Nano and of MERaLiON 2.
    check_sound(glm, stacked(1280, 4), Ok(375 + 2));
    check_sound(ProjectorType::Meralion, stacked(1280, 15), Ok(100));
    check_sound(
        ultravox,
        stacked(32, 1501),
        Err("clip.audio.projector.stack_factor is 1501; it must be from 1 to 1500"),
    );
}
