#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use super::*;
use crate::error::Code;
use crate::gguf::GgufValue;
use crate::gguf::gguf_writer::GgufWriter;

#[allow(clippy::duplicate_mod, reason = "each user of the test models compiles them")]
#[path = "../../../tests/scripted/mod.rs"]
mod scripted;

use scripted::projector::{ProjectorFile, SAMPLE_RATE, image_tokens, window_tokens};

const LENGTH: u64 = 128;

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
            assert_eq!(windows.tokens() as usize, window_tokens(kind));
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
fn a_mask_of_patches_takes_memory() {
    let bytes = |kind, side| {
        let header = read(&ProjectorFile::new(kind, LENGTH).to_bytes()).unwrap();
        header.encoding_bytes(&header.picture(side, side).unwrap())
    };
    // 64 x 64 patches of 4 pixels, and a number for each two, twice.
    assert_eq!(bytes(ProjectorType::Qwen25Vl, 64 * 4), 4096 * 4096 * 8);
    assert_eq!(bytes(ProjectorType::Qwen2Vl, 64 * 4), 0);
}

#[test]
fn a_projector_may_take_pictures_and_sound() {
    use ProjectorType::{Gemma4Audio, Gemma4UnifiedAudio, Gemma4UnifiedV, Gemma4V};
    use ProjectorType::{Mlp, Qwen2Audio, Qwen25Vl, Voxtral};
    for (sight, hearing) in [
        (Mlp, Voxtral),
        (Qwen25Vl, Qwen2Audio),
        (Gemma4V, Gemma4Audio),
        (Gemma4UnifiedV, Gemma4UnifiedAudio),
    ] {
        let header = read(&ProjectorFile::of_both(sight, hearing, LENGTH).to_bytes()).unwrap();
        assert_eq!(header.kinds().collect::<Vec<_>>(), [sight, hearing]);
        assert_eq!(header.sound().unwrap().tokens() as usize, window_tokens(hearing));
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
        "the encoder of pictures computes embeddings of length 128, but that of sound of length 129"
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

/// llama.cpp fails an assertion at a key of another type. It also reads what the header skips.
#[test]
fn the_types_of_keys_are_checked() {
    let heads = "clip.vision.attention.head_dim";
    check_key(heads, vec![8.0_f32], "clip.vision.attention.head_dim is not a 32-bit number");
    check_key(heads, vec![8_u32], "clip.vision.attention.head_dim is not a 32-bit number");
    check_key("clip.use_gelu", 1_u32, "clip.use_gelu is not true or false");
    check_key("clip.has_audio_encoder", 0_u8, "clip.has_audio_encoder is not true or false");
    check_key("general.name", 7_u32, "general.name is not a short text");
    check_key(
        "clip.minicpmv_version",
        3_u32,
        "clip.minicpmv_version is not a 32-bit number with a sign",
    );
    let width = "clip.vision.feed_forward_length";
    check_key(width, 48_i32, "clip.vision.feed_forward_length is not a 32-bit number");
    check_key(
        width,
        1_u32 << 31,
        "clip.vision.feed_forward_length is 2147483648; it must be at most 2147483647",
    );
    check_key("clip.use_silu", true, "clip.use_gelu and clip.use_silu cannot both be true");
    let candidates = "clip.vision.image_grid_pinpoints";
    check_key(
        candidates,
        vec![32_i32; 2000],
        "clip.vision.image_grid_pinpoints is not supported yet",
    );
    for key in ["feed_forward_length", "projection_dim", "image_mean", "image_std"] {
        let key = format!("clip.vision.{key}");
        let without = |file: &mut ProjectorFile| file.metadata.retain(|(name, _)| *name != key);
        check(ProjectorType::Gemma3, without, &format!("{key} is missing"));
    }
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
        "yasa2",
        "clip.projector_type: projectors of type \"yasa2\" are not supported yet; supported are \
         mlp, ldp, ldpv2, gemma3, gemma3nv, gemma4v, gemma4uv, resampler, janus_pro, qwen2vl_merger, \
         qwen2.5vl_merger, qwen3vl_merger, idefics3, \
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
         qwen2a, qwen3a, ultravox, voxtral, musicflamingo, meralion, glma, gemma4a, \
             gemma4ua",
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
        "clip.vision.block_count is 4294967295; it must be at most 2147483647",
    );
    check_key(
        "clip.vision.block_count",
        81_u32,
        "clip.vision.block_count is 81; it must be from 1 to 80",
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
            let freed = name == "mm.input_projection.weight" && kind == ProjectorType::Gemma3
                || name == "resampler.pos_embed_k";
            assert_eq!(changed.is_err(), !freed, "{name}: a length that the graph does not use");
            // Without it, the file is refused unless the encoder computes without it.
            let mut file = ProjectorFile::new(kind, LENGTH);
            file.tensors.retain(|(other, _)| *other != name);
            // These graphs add them without a question.
            let is_needed_bias = kind.as_str().starts_with("qwen")
                && ["attn_q", "attn_k", "attn_v", "patch_embd"].iter().any(|it| name.contains(it))
                || kind == ProjectorType::Glm4V && name == "v.patch_embd.bias"
                || kind == ProjectorType::CogVlm && name.contains("attn_qkv")
                || kind == ProjectorType::Gemma4UnifiedV;
            let is_optional_here = match kind {
                ProjectorType::Pixtral | ProjectorType::LightOnOcr => {
                    ["mm.1.bias", "mm.2.bias"].contains(&name.as_str())
                }
                ProjectorType::Glm4V => {
                    let optional = ["up.bias", "gate.bias", "down.bias", "norm.bias", "norm_embd"];
                    optional.iter().any(|it| name.contains(it)) || name.contains("position_embd")
                }
                ProjectorType::Lfm2 => name.starts_with("mm.input_norm."),
                ProjectorType::Gemma4V => {
                    let optional = ["post_norm", "out_scale", "put_m", "v.std_", "ffn_gate"];
                    optional.iter().any(|it| name.contains(it))
                }
                ProjectorType::Gemma3NV => {
                    [".bn", "norm.weight", "layer_scale", "conv.bias"]
                        .iter()
                        .any(|it| name.contains(it))
                        && !name.starts_with("mm.")
                }
                ProjectorType::Qwen3Audio => name.starts_with("a.blk.") && name.ends_with("bias"),
                ProjectorType::Gemma4Audio => {
                    let needed = ["ffn_norm.weight", "ffn_norm_1.weight"];
                    [".bias", "norm", "ln1", "ln2", "per_dim", "put_m"]
                        .iter()
                        .any(|it| name.contains(it))
                        && !needed.iter().any(|it| name.ends_with(it))
                }
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
        let keys_have_biases = kind == ProjectorType::Qwen3Audio;
        let unknown = ["a.blk.0.attn_k.bias"].into_iter().filter(|_| !keys_have_biases);
        for name in unknown.chain(["v.blk.0.attn_sinks.weight", "mm.a.mlp.9.bias"]) {
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
        129_u32,
        "clip.vision.projection_dim must be 128, the length of the embeddings",
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
fn files_of_gemma_4_are_checked() {
    let kind = ProjectorType::Gemma4V;
    let factor = "clip.vision.projector.scale_factor";
    let expected = "clip.vision.projector.scale_factor is 4; it must be from 1 to 3";
    check_qwen(kind, factor, 4_u32, expected);
    let heads = "clip.vision.attention.head_count";
    let expected = "clip.vision.attention.head_count makes heads of length 2, which 4 must divide";
    check_qwen(kind, heads, 16_u32, expected);
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    // `ggml_get_rows` would end the process at a picture with more patches in a row.
    let positions = "v.position_embd.weight";
    let expected = "tensor \"v.position_embd.weight\" has 2239 rows; a picture may have up to \
                    2240 patches in a row or a column";
    check(kind, shaped(positions, &[32, 2239, 2]), expected);
    let expected = "tensor \"v.position_embd.weight\" has the shape [32, 2240], but its \
                    projector needs [32, 2240, 2]";
    check(kind, shaped(positions, &[32, 2240]), expected);
    let expected = "tensor \"v.blk.1.attn_k_norm.weight\" has the shape [32], but its projector \
                    needs [8]";
    check(kind, shaped("v.blk.1.attn_k_norm.weight", &[32]), expected);
    let expected = "tensor \"v.blk.0.ffn_up.input_max\" has the shape [2], but its projector \
                    needs [1]";
    check(kind, shaped("v.blk.0.ffn_up.input_max", &[2]), expected);
    // Without the key, three patches in each direction are one token.
    let mut file = ProjectorFile::new(kind, LENGTH);
    file.metadata.retain(|(key, _)| key != factor);
    shaped(positions, &[32, 3360, 2])(&mut file);
    let header = read(&file.to_bytes()).unwrap();
    // 12 pixels are a square.
    assert_eq!(header.picture(108, 96).unwrap().places(), 9 * 8);
    assert_eq!(header.picture(13_440, 12).unwrap().places(), 1120);
    assert!(header.picture(16_000, 12).is_err());
}

#[test]
fn files_of_minicpm_v_are_checked() {
    let kind = ProjectorType::MiniCpmV;
    let version = "clip.minicpmv_version";
    let expected = "clip.minicpmv_version must be from 2 to 6, or 100045";
    for wrong in [1_i32, 7, -1] {
        check_qwen(kind, version, wrong, expected);
    }
    let queries = "clip.minicpmv_query_num";
    let expected = "clip.minicpmv_query_num is 0; it must be from 1 to 1638";
    check_qwen(kind, queries, 0_u32, expected);
    let expected = "tensor \"resampler.query\" has the shape [128, 16], but its projector needs \
                    [128, 17]";
    check_qwen(kind, queries, 17_u32, expected);
    // Their number without the key.
    let with_queries = |version: Option<i32>, count: u64| {
        let mut file = ProjectorFile::new(kind, LENGTH);
        file.metadata.retain(|(key, _)| !key.starts_with("clip.minicpmv_"));
        if let Some(number) = version {
            file.set("clip.minicpmv_version", number);
        }
        let query = file.tensors.iter_mut().find(|(name, _)| name == "resampler.query");
        query.unwrap().1[1] = count;
        read(&file.to_bytes()).map(|header| header.picture(32, 32).unwrap().places())
    };
    assert_eq!(with_queries(None, 96).unwrap(), 96);
    assert_eq!(with_queries(Some(2), 96).unwrap(), 96);
    assert_eq!(with_queries(Some(6), 64).unwrap(), 64);
    assert!(with_queries(Some(2), 64).is_err());
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    let expected = "tensor \"v.position_embd.weight\" has the shape [32, 4899], but its projector \
                    needs [32, 4900]";
    check(kind, shaped("v.position_embd.weight", &[32, 4899]), expected);
    let expected = "tensor \"resampler.proj.weight\" has embeddings of length 64, which 128 must \
                    divide";
    check(kind, shaped("resampler.proj.weight", &[64, 64]), expected);
    let expected = "tensor \"resampler.proj.weight\" has the shape [128, 64], but its projector \
                    needs [128, 128]";
    check(kind, shaped("resampler.proj.weight", &[128, 64]), expected);
}

#[test]
fn files_of_mobilevlm_are_checked() {
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    for kind in [ProjectorType::Ldp, ProjectorType::LdpV2] {
        let expected = "clip.vision.image_size 100 has 25 patches in a row; it must have 24";
        check_qwen(kind, "clip.vision.image_size", 100_u32, expected);
        let expected = "tensor \"v.position_embd.weight\" has the shape [32, 576], but its projector \
                        needs [32, 577]";
        check(kind, shaped("v.position_embd.weight", &[32, 576]), expected);
    }
    let convolution = "mm.model.mb_block.2.block.0.0.weight";
    let expected = "tensor \"mm.model.mb_block.2.block.0.0.weight\" has the shape [5, 5, 128], but \
                    its projector needs [3, 3, 1, 128]";
    check(ProjectorType::Ldp, shaped(convolution, &[5, 5, 128]), expected);
    let expected = "tensor \"mm.model.mb_block.1.block.2.0.weight\" has the shape [128, 64], but its \
                    projector needs [128, 128]";
    check(ProjectorType::Ldp, shaped("mm.model.mb_block.1.block.2.0.weight", &[128, 64]), expected);
    let mut file = ProjectorFile::new(ProjectorType::LdpV2, LENGTH);
    shaped("mm.model.peg.0.weight", &[3, 3, 1, 128])(&mut file);
    assert_eq!(read(&file.to_bytes()).unwrap().picture(7, 9).unwrap().places(), 144);
}

#[test]
fn files_of_gemma_3n_are_checked() {
    let kind = ProjectorType::Gemma3NV;
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    // Other numbers of tokens than llama.cpp counts.
    let expected = "clip.vision.patch_size 3 makes 21 tokens, but the encoder computes 16";
    check_qwen(kind, "clip.vision.patch_size", 3_u32, expected);
    let expected = "the last stages compute sides of 7 and 4, which llama.cpp cannot scale to 7";
    check_qwen(kind, "clip.vision.image_size", 100_u32, expected);
    let squares = "v.blk.2.0.dw_mid.conv.weight";
    let expected = "tensor \"v.blk.2.0.dw_mid.conv.weight\" has the shape [4, 4, 1, 14], but its \
                    projector needs [3, 3, 1, 14]";
    check(kind, shaped(squares, &[4, 4, 1, 14]), expected);
    let expected = "tensor \"v.blk.2.1.attn.query.proj.weight\" makes 9 numbers, which the 4 of a \
                    head do not divide";
    check(kind, shaped("v.blk.2.1.attn.query.proj.weight", &[1, 1, 10, 9]), expected);
    let without = |name: &'static str| {
        move |file: &mut ProjectorFile| file.tensors.retain(|(other, _)| !other.contains(name))
    };
    check(kind, without("v.blk.3."), "there is no block \"v.blk.3.0\"");
    let expected = "the encoder computes 24 channels, but clip.vision.embedding_length is 128";
    let narrow = |file: &mut ProjectorFile| {
        without("v.msfa.ffn.pw_proj")(file);
        without("v.msfa.norm")(file);
    };
    check(kind, narrow, expected);
    let expected = "tensor \"v.blk.2.1.attn.value.down_conv.weight\" is missing";
    check(kind, without("value.down_conv"), expected);
    let many = |file: &mut ProjectorFile| {
        for block in 1..96 {
            let name = format!("v.blk.3.{block}.pw_exp.conv.weight");
            file.tensors.push((name, vec![1, 1, 12, 12]));
        }
    };
    check(kind, many, "there are more than 96 blocks");
    // Those of Gemma 3n: 768 pixels become 16 by 16 tokens. Here 512 pixels do.
    let mut file = ProjectorFile::new(kind, LENGTH);
    file.set("clip.vision.image_size", 512_u32);
    file.set("clip.vision.patch_size", 2_u32);
    // llama.cpp does not look at the sound of these files.
    file.set("clip.has_audio_encoder", true);
    file.set("clip.audio.projector_type", "gemma3na");
    for name in ["a.blk.0.attn_q.weight", "mm.a.input_projection.weight", "mm.embedding.weight"] {
        file.tensors.push((name.to_owned(), vec![8]));
    }
    let header = read(&file.to_bytes()).unwrap();
    assert_eq!(header.kinds().collect::<Vec<_>>(), [kind]);
    assert_eq!(header.picture(700, 30).unwrap().places(), 256);
}

#[test]
fn places_that_attend_to_each_other_are_known() {
    let most = |kind, length| {
        read(&ProjectorFile::new(kind, length).to_bytes()).unwrap().places_in_one_batch()
    };
    assert_eq!(most(ProjectorType::Gemma3, LENGTH), Some(16));
    assert_eq!(most(ProjectorType::Gemma4V, LENGTH), Some(1120));
    // Gemma 4 E2B and E4B.
    assert_eq!(most(ProjectorType::Gemma4V, 1536), None);
    assert_eq!(most(ProjectorType::Gemma4V, 2560), None);
    assert_eq!(most(ProjectorType::Gemma4UnifiedV, 1536), Some(1120));
    assert_eq!(most(ProjectorType::Qwen3Vl, LENGTH), None);
    assert_eq!(most(ProjectorType::Voxtral, LENGTH), None);
}

#[test]
fn types_are_checked() {
    let file = ProjectorFile::new(ProjectorType::Gemma3, LENGTH);
    // ggml's numbers of types with 16 bits.
    const F16: u32 = 1;
    const BF16: u32 = 30;
    for (name, half, accepted) in [
        ("v.blk.0.attn_q.weight", F16, true),
        ("v.patch_embd.weight", F16, true),
        ("v.patch_embd.weight", BF16, false),
        ("mm.input_projection.weight", F16, true),
        ("mm.input_projection.weight", BF16, true),
        ("v.blk.0.attn_q.bias", F16, false),
        ("v.position_embd.weight", F16, false),
        ("v.post_ln.weight", F16, false),
    ] {
        let mut writer = GgufWriter::new();
        for (key, value) in &file.metadata {
            writer = writer.metadata(key.clone(), value.clone());
        }
        for (other, shape) in &file.tensors {
            let count: u64 = shape.iter().product();
            let (kind, size) = if other == name { (half, 2) } else { (0, 4) };
            writer =
                writer.tensor_bytes(other.clone(), shape, kind, vec![0; (count * size) as usize]);
        }
        assert_eq!(read(&writer.to_bytes()).is_ok(), accepted, "{name} {half}");
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
             are qwen2a, qwen3a, ultravox, voxtral, musicflamingo, meralion, glma, gemma4a, \
             gemma4ua"),
    );
    check_sound(
        kind,
        |file| file.set("clip.audio.feature_layer", vec![1_i32]),
        Err("clip.audio.feature_layer is not supported yet"),
    );
}

#[test]
fn files_of_qwen3_asr_are_checked() {
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    let kind = ProjectorType::Qwen3Audio;
    check_sound(kind, |_| (), Ok(104));
    // A bias may also be a vector, and there may be fewer positions than 30 seconds have.
    check_sound(kind, shaped("a.conv2d.2.bias", &[8]), Ok(104));
    check_sound(kind, shaped("a.position_embd.weight", &[32, 13]), Ok(104));
    for (name, shape, needed) in [
        ("a.position_embd.weight", &[32_u64, 12][..], "[32, 13]"),
        ("a.conv2d.2.bias", &[1, 1, 7], "[8]"),
        ("a.conv2d.1.weight", &[3, 3, 2, 6], "[3, 3, 1, 6]"),
        ("a.conv2d.3.weight", &[5, 5, 8, 10], "[3, 3, 8, 10]"),
        ("a.conv_out.weight", &[20, 32], "[30, 32]"),
    ] {
        let problem =
            format!("tensor {name:?} has the shape {shape:?}, but its projector needs {needed}");
        check_sound(kind, shaped(name, shape), Err(&problem));
    }
}

#[test]
fn files_of_gemma_4_without_encoders_are_checked() {
    let (sight, hearing) = (ProjectorType::Gemma4UnifiedV, ProjectorType::Gemma4UnifiedAudio);
    // llama.cpp would load layers, and compute nothing with them.
    check_qwen(
        sight,
        "clip.vision.block_count",
        1_u32,
        "clip.vision.block_count is 1; it must be 0",
    );
    let expected = "clip.audio.block_count is 2; it must be 0";
    check_sound(hearing, |file| file.set("clip.audio.block_count", 2_u32), Err(expected));
    // Whatever these are, llama.cpp takes 640 samples.
    for (key, value) in
        [("num_mel_bins", 128_u32), ("num_mel_bins", 0), ("attention.head_count", 7)]
    {
        check_sound(hearing, |file| file.set(&format!("clip.audio.{key}"), value), Ok(750));
    }
    let rows = |file: &mut ProjectorFile| file.tensors[0].1[0] = 320;
    let expected = "tensor \"mm.a.input_projection.weight\" has the shape [320, 128], but its \
                    projector needs [640, 128]";
    check_sound(hearing, rows, Err(expected));
    let few = |file: &mut ProjectorFile| {
        let mut tensors = file.tensors.iter_mut();
        tensors.find(|(name, _)| name == "v.position_embd.weight").unwrap().1[1] = 1119;
    };
    let expected = "tensor \"v.position_embd.weight\" has 1119 rows; a picture may have up to 1120 \
                    patches in a row or a column";
    check(sight, few, expected);
    // Without the key, three patches are a square in each direction.
    let plain = |file: &mut ProjectorFile| {
        file.metadata.retain(|(key, _)| key != "clip.vision.projector.scale_factor");
    };
    let expected = "tensor \"v.patch_embd.weight\" has the shape [192, 32], but its projector needs \
                    [432, 32]";
    check(sight, plain, expected);
}

#[test]
fn files_of_gemma_4_with_sound_are_checked() {
    let shaped = |name: &'static str, shape: &'static [u64]| {
        move |file: &mut ProjectorFile| {
            file.tensors.iter_mut().find(|(other, _)| other == name).unwrap().1 = shape.to_vec();
        }
    };
    let kind = ProjectorType::Gemma4Audio;
    check_sound(kind, |_| (), Ok(750));
    for (name, shape, needed) in [
        // Others have another number of embeddings than llama.cpp counts.
        ("a.conv1d.0.weight", &[5_u64, 5, 1, 6][..], "[3, 3, 1, 6]"),
        ("a.conv1d.1.weight", &[3, 3, 1, 8], "[3, 3, 6, 8]"),
        // It would be added to frequencies.
        ("a.conv1d.0.bias", &[6], "[1, 1, 6]"),
        ("a.input_projection.weight", &[80, 32], "[40, 32]"),
        ("a.blk.1.conv_dw.weight", &[4, 40], "[5, 40]"),
        ("a.blk.1.per_dim_scale.weight", &[32], "[8]"),
        ("a.blk.1.attn_k_rel.weight", &[32, 31], "[32, 32]"),
    ] {
        let problem =
            format!("tensor {name:?} has the shape {shape:?}, but its projector needs {needed}");
        check_sound(kind, shaped(name, shape), Err(&problem));
    }
    let odd = "tensor \"a.blk.0.conv_pw1.weight\" has no half for its gate: it makes 79 numbers of a \
               row";
    check_sound(kind, shaped("a.blk.0.conv_pw1.weight", &[32, 79]), Err(odd));
    let many = "clip.audio.block_count is 49; it must be from 1 to 48";
    check_sound(kind, |file| file.set("clip.audio.block_count", 49_u32), Err(many));
    // Without a matrix after the layers, the projection takes what they compute.
    let plain = |file: &mut ProjectorFile| {
        file.tensors.retain(|(name, _)| !name.starts_with("a.pre_encode."));
        shaped("mm.a.soft_emb_norm.weight", &[32])(file);
        shaped("mm.a.input_projection.weight", &[32, LENGTH])(file);
    };
    check_sound(kind, plain, Ok(750));
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
