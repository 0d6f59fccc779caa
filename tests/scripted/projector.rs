//! Tiny projector files with random weights, for the models of `random`: pictures and sounds change
//! what those reply. The names and shapes are those that llama.cpp's `convert_hf_to_gguf.py` writes.

use llb::api::Modality;
use llb::gguf::{GgufValue, ProjectorType};

use super::gguf_writer::GgufWriter;

use super::random::{Memory, N_DEEP, N_EMBD, Numbers, dense_with_tokens, random, with_tokens};

/// The side of a picture, and of a patch, in pixels.
pub const IMAGE_SIZE: u32 = 32;
pub const PATCH_SIZE: u32 = 4;
/// The patches in each direction that are one token with most types.
pub const MERGE: u32 = 2;
/// The longer side of a picture of tiles.
pub const MAX_SIDE: u32 = 64;
/// The most tiles with `ProjectorType::InternVl`, without the one for the whole picture.
const MAX_TILES: u32 = 6;
/// The embeddings of a slice with `ProjectorType::MiniCpmV`.
const N_QUERIES: u32 = 16;
/// The samples of a second of sound.
pub const SAMPLE_RATE: u32 = 16_000;
/// The frequencies of a spectrum.
pub const MEL_BINS: u32 = 20;
const WIDTH: u64 = 32;
const N_FF: u64 = 48;
/// The channels of the convolutions of `ProjectorType::Qwen3Audio`, and of `Gemma4Audio`.
const CHANNELS: [u64; 3] = [6, 8, 10];
const N_HEAD: u32 = 4;
const N_LAYER: u32 = 2;

/// The content of a projector file, which a test may change before it is written.
pub struct ProjectorFile {
    pub metadata: Vec<(String, GgufValue)>,
    /// Names and shapes.
    pub tensors: Vec<(String, Vec<u64>)>,
}

impl ProjectorFile {
    /// A projector of this type for a model with embeddings of this length.
    pub fn new(kind: ProjectorType, embedding: u64) -> ProjectorFile {
        match kind.modality() {
            Modality::Image => ProjectorFile::of_pictures(kind, embedding),
            Modality::Audio => ProjectorFile::of_sound(kind, embedding),
        }
    }

    /// A projector with an encoder of pictures and one of sound.
    pub fn of_both(sight: ProjectorType, hearing: ProjectorType, embedding: u64) -> ProjectorFile {
        let mut file = ProjectorFile::of_pictures(sight, embedding);
        let sound = ProjectorFile::of_sound(hearing, embedding);
        file.metadata.retain(|(key, _)| key != "clip.projector_type");
        file.set("clip.vision.projector_type", sight.as_str());
        file.set("clip.audio.projector_type", hearing.as_str());
        let is_of_sound = |key: &str| key.starts_with("clip.audio.") || key.contains("has_audio");
        file.metadata.extend(sound.metadata.into_iter().filter(|(key, _)| is_of_sound(key)));
        file.tensors.extend(sound.tensors);
        file
    }

    fn of_pictures(kind: ProjectorType, embedding: u64) -> ProjectorFile {
        let mut metadata: Vec<(String, GgufValue)> = Vec::new();
        let mut key = |name: &str, value: GgufValue| metadata.push((name.to_owned(), value));
        key("general.architecture", "clip".into());
        key("general.type", "mmproj".into());
        key("general.file_type", 0_u32.into());
        key("clip.projector_type", kind.as_str().into());
        key("clip.has_vision_encoder", true.into());
        key("clip.use_gelu", true.into());
        let (image_size, patch_size) = sizes(kind);
        key("clip.vision.image_size", image_size.into());
        key("clip.vision.patch_size", patch_size.into());
        key("clip.vision.embedding_length", (WIDTH as u32).into());
        key("clip.vision.feed_forward_length", (N_FF as u32).into());
        key("clip.vision.projection_dim", (embedding as u32).into());
        key("clip.vision.block_count", N_LAYER.into());
        key("clip.vision.attention.head_count", N_HEAD.into());
        key("clip.vision.attention.layer_norm_epsilon", 1e-5_f32.into());
        key("clip.vision.image_mean", vec![0.5_f32; 3].into());
        key("clip.vision.image_std", vec![0.5_f32; 3].into());
        let side = u64::from(image_size / patch_size);
        let patch = u64::from(patch_size);
        let mut tensors: Vec<(String, Vec<u64>)> = Vec::new();
        let mut tensor =
            |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
        match kind {
            ProjectorType::Llama4 => tensor("v.patch_embd.weight", &[3 * patch * patch, WIDTH]),
            _ => tensor("v.patch_embd.weight", &[patch, patch, 3, WIDTH]),
        }
        let mut norm = |name: &str| {
            tensor(&format!("{name}.weight"), &[WIDTH]);
            tensor(&format!("{name}.bias"), &[WIDTH]);
        };
        norm("v.post_ln");
        if matches!(kind, ProjectorType::Mlp | ProjectorType::Ldp | ProjectorType::LdpV2) {
            norm("v.pre_ln");
        }
        for layer in 0..N_LAYER {
            norm(&format!("v.blk.{layer}.ln1"));
            norm(&format!("v.blk.{layer}.ln2"));
        }
        let mut matrix = |name: &str, from: u64, to: u64| {
            tensor(&format!("{name}.weight"), &[from, to]);
            tensor(&format!("{name}.bias"), &[to]);
        };
        for layer in 0..N_LAYER {
            let name = |tensor: &str| format!("v.blk.{layer}.{tensor}");
            let joins = matches!(
                kind,
                ProjectorType::Qwen3Vl | ProjectorType::Glm4V | ProjectorType::CogVlm
            );
            if joins {
                matrix(&name("attn_qkv"), WIDTH, 3 * WIDTH);
            } else {
                for input in ["attn_q", "attn_k", "attn_v"] {
                    matrix(&name(input), WIDTH, WIDTH);
                }
            }
            matrix(&name("attn_out"), WIDTH, WIDTH);
            matrix(&name("ffn_up"), WIDTH, N_FF);
            matrix(&name("ffn_down"), N_FF, WIDTH);
            let has_gate = matches!(
                kind,
                ProjectorType::Qwen25Vl
                    | ProjectorType::Pixtral
                    | ProjectorType::LightOnOcr
                    | ProjectorType::Glm4V
                    | ProjectorType::DotsOcr
                    | ProjectorType::Gemma4V
            );
            if has_gate {
                matrix(&name("ffn_gate"), WIDTH, N_FF);
            }
        }
        match kind {
            ProjectorType::Mlp => {
                matrix("mm.0", WIDTH, N_FF);
                matrix("mm.2", N_FF, embedding);
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
            }
            ProjectorType::LdpV2 => {
                matrix("mm.model.mlp.0", WIDTH, N_FF);
                matrix("mm.model.mlp.2", N_FF, embedding);
                tensor("mm.model.peg.0.weight", &[3, 3, embedding]);
                tensor("mm.model.peg.0.bias", &[embedding]);
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
            }
            ProjectorType::Ldp => {
                matrix("mm.model.mlp.1", WIDTH, N_FF);
                matrix("mm.model.mlp.3", N_FF, embedding);
                let blocks = [1, 2].map(|block| format!("mm.model.mb_block.{block}.block"));
                for block in &blocks {
                    matrix(&format!("{block}.1.fc1"), embedding, N_FF);
                    matrix(&format!("{block}.1.fc2"), N_FF, embedding);
                }
                for block in &blocks {
                    let name = |part: &str| format!("{block}.{part}");
                    tensor(&name("0.0.weight"), &[3, 3, embedding]);
                    tensor(&name("2.0.weight"), &[embedding, embedding]);
                    for norm in ["0.1", "2.1"] {
                        tensor(&name(&format!("{norm}.weight")), &[embedding]);
                        tensor(&name(&format!("{norm}.bias")), &[embedding]);
                    }
                }
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
            }
            ProjectorType::JanusPro => {
                matrix("mm.0", WIDTH, N_FF);
                matrix("mm.1", N_FF, embedding);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
            }
            ProjectorType::CogVlm => {
                for (name, from, to) in [
                    ("mm.model.fc", WIDTH, N_FF),
                    ("mm.up", N_FF, N_FF + 8),
                    ("mm.gate", N_FF, N_FF + 8),
                    ("mm.down", N_FF + 8, embedding),
                ] {
                    tensor(&format!("{name}.weight"), &[from, to]);
                }
                tensor("mm.post_fc_norm.weight", &[N_FF]);
                tensor("mm.post_fc_norm.bias", &[N_FF]);
                tensor("v.boi", &[embedding]);
                tensor("v.eoi", &[embedding]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
            }
            ProjectorType::GlmEdge => {
                let merge = u64::from(MERGE);
                tensor("adapter.conv.weight", &[merge, merge, WIDTH, WIDTH + 8]);
                tensor("adapter.conv.bias", &[WIDTH + 8]);
                for (name, from, to) in [
                    ("linear", WIDTH + 8, N_FF),
                    ("dense_h_to_4h", N_FF, N_FF + 8),
                    ("gate", N_FF, N_FF + 8),
                    ("dense_4h_to_h", N_FF + 8, embedding),
                ] {
                    tensor(&format!("adapter.linear.{name}.weight"), &[from, to]);
                }
                tensor("adapter.linear.norm1.weight", &[N_FF]);
                tensor("adapter.linear.norm1.bias", &[N_FF]);
                tensor("adapter.boi", &[embedding]);
                tensor("adapter.eoi", &[embedding]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
            }
            ProjectorType::Gemma3 => {
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
                tensor("mm.soft_emb_norm.weight", &[WIDTH]);
                tensor("mm.input_projection.weight", &[embedding, WIDTH]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
            }
            ProjectorType::Gemma4V => {
                tensors.retain(|(name, _)| !name.ends_with("bias") && !name.contains("post_ln"));
                let mut tensor =
                    |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
                for layer in 0..N_LAYER {
                    let head = WIDTH / u64::from(N_HEAD);
                    for (norm, length) in [
                        ("attn_q_norm", head),
                        ("attn_k_norm", head),
                        ("attn_post_norm", WIDTH),
                        ("ffn_post_norm", WIDTH),
                        ("out_scale", 1),
                    ] {
                        tensor(&format!("v.blk.{layer}.{norm}.weight"), &[length]);
                    }
                    for bound in ["input_min", "input_max", "output_min", "output_max"] {
                        tensor(&format!("v.blk.{layer}.ffn_up.{bound}"), &[1]);
                    }
                }
                // As many as a column of the largest picture has patches.
                tensor("v.position_embd.weight", &[WIDTH, 1120 * u64::from(MERGE), 2]);
                tensor("v.std_bias", &[WIDTH]);
                tensor("v.std_scale", &[WIDTH]);
                tensor("mm.input_projection.weight", &[WIDTH, embedding]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
            }
            ProjectorType::Gemma4UnifiedV => {
                tensors.clear();
                let mut tensor =
                    |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
                // Of a square of patches.
                let square = 3 * (patch * u64::from(MERGE)).pow(2);
                tensor("v.patch_embd.weight", &[square, WIDTH]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                for (norm, length) in [(1, square), (2, WIDTH), (3, WIDTH)] {
                    tensor(&format!("v.patch_norm.{norm}.weight"), &[length]);
                    tensor(&format!("v.patch_norm.{norm}.bias"), &[length]);
                }
                // As many as a column of the largest picture has squares.
                tensor("v.position_embd.weight", &[WIDTH, 1120, 2]);
                tensor("mm.input_projection.weight", &[WIDTH, embedding]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
                return ProjectorFile { metadata, tensors }.without_layers("vision");
            }
            ProjectorType::MiniCpmV => {
                for projection in ["attn.q", "attn.k", "attn.v", "attn.out"] {
                    matrix(&format!("resampler.{projection}"), embedding, embedding);
                }
                for norm in ["ln_q", "ln_kv", "ln_post"] {
                    tensor(&format!("resampler.{norm}.weight"), &[embedding]);
                    tensor(&format!("resampler.{norm}.bias"), &[embedding]);
                }
                tensor("resampler.kv.weight", &[WIDTH, embedding]);
                tensor("resampler.proj.weight", &[embedding, embedding]);
                tensor("resampler.query", &[embedding, u64::from(N_QUERIES)]);
                tensor("resampler.pos_embed_k", &[embedding, side * side]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, 70 * 70]);
                metadata.push(("clip.minicpmv_version".to_owned(), 3_i32.into()));
                metadata.push(("clip.minicpmv_query_num".to_owned(), N_QUERIES.into()));
            }
            ProjectorType::Gemma3NV => {
                metadata.retain(|(key, _)| key != "clip.vision.embedding_length");
                let width = embedding as u32;
                metadata.push(("clip.vision.embedding_length".to_owned(), width.into()));
                tensors = mobilenet(embedding);
            }
            ProjectorType::InternVl => {
                let merged = u64::from(MERGE * MERGE) * WIDTH;
                matrix("mm.model.mlp.1", merged, N_FF);
                matrix("mm.model.mlp.3", N_FF, embedding);
                tensor("mm.model.mlp.0.weight", &[merged]);
                tensor("mm.model.mlp.0.bias", &[merged]);
                for layer in 0..N_LAYER {
                    tensor(&format!("v.blk.{layer}.ls1.weight"), &[WIDTH]);
                    tensor(&format!("v.blk.{layer}.ls2.weight"), &[WIDTH]);
                }
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
                metadata.push(("clip.vision.preproc_max_tiles".to_owned(), MAX_TILES.into()));
            }
            ProjectorType::Llama4 => {
                tensor("mm.model.mlp.1.weight", &[u64::from(MERGE * MERGE) * WIDTH, N_FF]);
                tensor("mm.model.mlp.2.weight", &[N_FF, N_FF + 8]);
                tensor("mm.model.fc.weight", &[N_FF + 8, embedding]);
                tensor("v.class_embd", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side + 1]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
            }
            ProjectorType::Idefics3 => {
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
                tensor("mm.model.fc.weight", &[u64::from(MERGE * MERGE) * WIDTH, embedding]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
                metadata.push(("clip.vision.preproc_image_size".to_owned(), MAX_SIDE.into()));
            }
            ProjectorType::Pixtral | ProjectorType::LightOnOcr => {
                matrix("mm.1", WIDTH, N_FF);
                matrix("mm.2", N_FF, embedding);
                tensor("mm.patch_merger.weight", &[u64::from(MERGE * MERGE) * WIDTH, WIDTH]);
                tensor("mm.input_norm.weight", &[WIDTH]);
                if kind == ProjectorType::Pixtral {
                    tensor("v.token_embd.img_break", &[embedding]);
                } else {
                    metadata.push(("clip.vision.preproc_image_size".to_owned(), MAX_SIDE.into()));
                }
                metadata.push(("clip.vision.spatial_merge_size".to_owned(), MERGE.into()));
            }
            ProjectorType::Glm4V => {
                matrix("mm.up", N_FF, N_FF + 8);
                matrix("mm.gate", N_FF, N_FF + 8);
                matrix("mm.down", N_FF + 8, embedding);
                let merge = u64::from(MERGE);
                tensor("mm.patch_merger.weight", &[merge, merge, WIDTH, WIDTH + 8]);
                tensor("mm.patch_merger.bias", &[WIDTH + 8]);
                tensor("mm.model.fc.weight", &[WIDTH + 8, N_FF]);
                tensor("mm.post_norm.weight", &[N_FF]);
                tensor("mm.post_norm.bias", &[N_FF]);
                tensor("v.norm_embd.weight", &[WIDTH]);
                tensor("v.patch_embd.weight.1", &[patch, patch, 3, WIDTH]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
            }
            ProjectorType::Lfm2 | ProjectorType::KimiVl => {
                let merged = u64::from(MERGE * MERGE) * WIDTH;
                let norm = if kind == ProjectorType::Lfm2 { merged } else { WIDTH };
                matrix("mm.1", merged, N_FF);
                matrix("mm.2", N_FF, embedding);
                tensor("mm.input_norm.weight", &[norm]);
                tensor("mm.input_norm.bias", &[norm]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
                metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
            }
            ProjectorType::PaddleOcr | ProjectorType::DotsOcr => {
                let merged = u64::from(MERGE * MERGE) * WIDTH;
                let is_paddle = kind == ProjectorType::PaddleOcr;
                matrix(if is_paddle { "mm.1" } else { "mm.0" }, merged, N_FF);
                matrix("mm.2", N_FF, embedding);
                if is_paddle {
                    tensor("v.position_embd.weight", &[WIDTH, side * side]);
                } else {
                    tensor("mm.post_norm.weight", &[WIDTH]);
                    metadata.push(("clip.vision.projector.scale_factor".to_owned(), MERGE.into()));
                }
                tensor("mm.input_norm.weight", &[WIDTH]);
                tensor("mm.input_norm.bias", &[WIDTH]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                metadata.push(("clip.vision.image_min_pixels".to_owned(), 512_u32.into()));
                metadata.push(("clip.vision.image_max_pixels".to_owned(), 16_384_u32.into()));
            }
            ProjectorType::Phi4 => {
                matrix("mm.0", WIDTH, N_FF);
                matrix("mm.2", N_FF, embedding);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
                metadata.push(("clip.vision.image_min_pixels".to_owned(), 512_u32.into()));
                metadata.push(("clip.vision.image_max_pixels".to_owned(), 4096_u32.into()));
            }
            ProjectorType::Qwen2Vl | ProjectorType::Qwen25Vl => {
                matrix("mm.0", 4 * WIDTH, N_FF);
                matrix("mm.2", N_FF, embedding);
                tensor("v.patch_embd.weight.1", &[patch, patch, 3, WIDTH]);
                if kind == ProjectorType::Qwen25Vl {
                    // The second layer sees everything, the first one windows.
                    metadata.push(("clip.vision.n_wa_pattern".to_owned(), 2_u32.into()));
                }
            }
            ProjectorType::Qwen3Vl => {
                // Each further state is as long as an embedding.
                let length = embedding / u64::from(1 + N_DEEP);
                matrix("mm.0", 4 * WIDTH, N_FF);
                matrix("mm.2", N_FF, length);
                matrix("v.deepstack.0.fc1", 4 * WIDTH, N_FF);
                matrix("v.deepstack.0.fc2", N_FF, length);
                tensor("v.deepstack.0.norm.weight", &[4 * WIDTH]);
                tensor("v.deepstack.0.norm.bias", &[4 * WIDTH]);
                tensor("v.patch_embd.weight.1", &[patch, patch, 3, WIDTH]);
                tensor("v.patch_embd.bias", &[WIDTH]);
                tensor("v.position_embd.weight", &[WIDTH, side * side]);
            }
            _ => unreachable!("a type of sound"),
        }
        ProjectorFile { metadata, tensors }
    }

    fn of_sound(kind: ProjectorType, embedding: u64) -> ProjectorFile {
        let mut metadata: Vec<(String, GgufValue)> = Vec::new();
        let mut key = |name: &str, value: GgufValue| metadata.push((name.to_owned(), value));
        key("general.architecture", "clip".into());
        key("general.type", "mmproj".into());
        key("general.file_type", 0_u32.into());
        key("clip.projector_type", kind.as_str().into());
        key("clip.has_audio_encoder", true.into());
        key("clip.audio.num_mel_bins", MEL_BINS.into());
        key("clip.audio.embedding_length", (WIDTH as u32).into());
        key("clip.audio.feed_forward_length", (N_FF as u32).into());
        key("clip.audio.projection_dim", (embedding as u32).into());
        key("clip.audio.block_count", N_LAYER.into());
        key("clip.audio.attention.head_count", N_HEAD.into());
        key("clip.audio.attention.layer_norm_epsilon", 1e-5_f32.into());
        let stack = stack(kind);
        if stack > 1 {
            key("clip.audio.projector.stack_factor", (stack as u32).into());
        }
        if kind == ProjectorType::Gemma4UnifiedAudio {
            let name = "mm.a.input_projection.weight".to_owned();
            let tensors = vec![(name, vec![640, embedding])];
            return ProjectorFile { metadata, tensors }.without_layers("audio");
        }
        if kind == ProjectorType::Gemma4Audio {
            return ProjectorFile { metadata, tensors: conformer(embedding) };
        }
        let mut tensors: Vec<(String, Vec<u64>)> = Vec::new();
        let mut tensor =
            |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
        if kind == ProjectorType::Qwen3Audio {
            let [first, second, third] = CHANNELS;
            for (number, from, to) in [(1, 1, first), (2, first, second), (3, second, third)] {
                tensor(&format!("a.conv2d.{number}.weight"), &[3, 3, from, to]);
                tensor(&format!("a.conv2d.{number}.bias"), &[1, 1, to]);
            }
            // Each convolution halves the frequencies.
            let frequencies = u64::from(MEL_BINS.div_ceil(8));
            tensor("a.conv_out.weight", &[frequencies * third, WIDTH]);
        } else {
            for (number, from) in [(1, MEL_BINS.into()), (2, WIDTH)] {
                tensor(&format!("a.conv1d.{number}.weight"), &[3, from, WIDTH]);
                tensor(&format!("a.conv1d.{number}.bias"), &[1, WIDTH]);
            }
        }
        tensor("a.position_embd.weight", &[WIDTH, 1500]);
        let norms =
            (0..N_LAYER).flat_map(|layer| ["ln1", "ln2"].map(|it| format!("blk.{layer}.{it}")));
        for norm in norms.chain(["post_ln".to_owned()]) {
            tensor(&format!("a.{norm}.weight"), &[WIDTH]);
            tensor(&format!("a.{norm}.bias"), &[WIDTH]);
        }
        for layer in 0..N_LAYER {
            for matrix in ["attn_q", "attn_k", "attn_v", "attn_out"] {
                tensor(&format!("a.blk.{layer}.{matrix}.weight"), &[WIDTH, WIDTH]);
                if matrix != "attn_k" || kind == ProjectorType::Qwen3Audio {
                    tensor(&format!("a.blk.{layer}.{matrix}.bias"), &[WIDTH]);
                }
            }
            for (matrix, from, to) in [("ffn_up", WIDTH, N_FF), ("ffn_down", N_FF, WIDTH)] {
                tensor(&format!("a.blk.{layer}.{matrix}.weight"), &[from, to]);
                tensor(&format!("a.blk.{layer}.{matrix}.bias"), &[to]);
            }
        }
        match kind {
            ProjectorType::Qwen2Audio => {
                tensor("mm.a.fc.weight", &[WIDTH, embedding]);
                tensor("mm.a.fc.bias", &[embedding]);
            }
            ProjectorType::Ultravox => {
                tensor("mm.a.norm_pre.weight", &[WIDTH * stack]);
                tensor("mm.a.mlp.1.weight", &[WIDTH * stack, 2 * N_FF]);
                tensor("mm.a.norm_mid.weight", &[N_FF]);
                tensor("mm.a.mlp.2.weight", &[N_FF, embedding]);
            }
            ProjectorType::Voxtral => {
                tensor("mm.a.mlp.1.weight", &[WIDTH * stack, N_FF]);
                tensor("mm.a.mlp.2.weight", &[N_FF, embedding]);
            }
            ProjectorType::Qwen3Audio
            | ProjectorType::MusicFlamingo
            | ProjectorType::Meralion
            | ProjectorType::GlmAsr => {
                let layers: &[(u32, u64, u64)] = match kind {
                    ProjectorType::Meralion => &[
                        (0, WIDTH * stack, N_FF),
                        (1, N_FF, N_FF + 8),
                        (2, N_FF, N_FF + 8),
                        (3, N_FF + 8, embedding),
                    ],
                    _ => &[(1, WIDTH * stack, N_FF), (2, N_FF, embedding)],
                };
                for (layer, from, to) in layers {
                    tensor(&format!("mm.a.mlp.{layer}.weight"), &[*from, *to]);
                    tensor(&format!("mm.a.mlp.{layer}.bias"), &[*to]);
                }
                let norm = match kind {
                    ProjectorType::Meralion => Some(WIDTH * stack),
                    ProjectorType::GlmAsr => Some(WIDTH),
                    _ => None,
                };
                if let Some(norm) = norm {
                    tensor("mm.a.norm_pre.weight", &[norm]);
                    tensor("mm.a.norm_pre.bias", &[norm]);
                }
                if kind == ProjectorType::GlmAsr {
                    tensor("v.boi", &[embedding]);
                    tensor("v.eoi", &[embedding]);
                }
            }
            _ => unreachable!("a type of pictures"),
        }
        ProjectorFile { metadata, tensors }
    }

    /// The keys of a file without layers.
    fn without_layers(mut self, encoder: &str) -> ProjectorFile {
        for key in ["block_count", "attention.head_count", "feed_forward_length"] {
            self.set(&format!("clip.{encoder}.{key}"), 0_u32);
        }
        self
    }

    /// Copies the first layer of an encoder until there are so many.
    pub fn repeat_layers(&mut self, count: u32) {
        for encoder in ["vision", "audio"] {
            let key = format!("clip.{encoder}.block_count");
            if self.metadata.iter().any(|(name, _)| *name == key) {
                self.set(&key, count);
            }
        }
        for prefix in ["v.blk.", "a.blk."] {
            let first = format!("{prefix}0.");
            let tensors = self.tensors.iter().filter(|(name, _)| name.starts_with(&first));
            let layer: Vec<_> = tensors.cloned().collect();
            for number in N_LAYER..count {
                let name = |name: &str| name.replacen(&first, &format!("{prefix}{number}."), 1);
                self.tensors.extend(layer.iter().map(|(of, shape)| (name(of), shape.clone())));
            }
        }
    }

    /// Sets a key, or adds it.
    pub fn set(&mut self, key: &str, value: impl Into<GgufValue>) {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value.into()));
    }

    /// The numbers of each tensor: norms around one, everything else around zero.
    pub fn numbers(&self) -> Vec<Vec<f32>> {
        let mut numbers = Numbers::new(77);
        let list = |(name, shape): &(String, Vec<u64>)| {
            let count: u64 = shape.iter().product();
            // Bounds of pictures are those that a file with none has.
            if name.ends_with("put_min") || name.ends_with("put_max") {
                let most = if name.starts_with("a.") { 1.0 } else { f32::MAX };
                return vec![if name.ends_with("max") { most } else { -most }];
            }
            let is_norm =
                shape.len() == 1 && (name.ends_with("weight") || name.ends_with("std_scale"));
            let last = shape.len() - 1;
            let rows: u64 = if last > 1 { shape[..last].iter().product() } else { shape[0] };
            // The sound weighs more than the place.
            let is_small = shape.len() == 1 || name == "a.position_embd.weight";
            let scale = if is_small { 0.1 } else { (6.0 / rows as f32).sqrt() };
            let mut list = numbers.list(count, scale);
            if is_norm {
                list.iter_mut().for_each(|number| *number += 1.0);
            }
            list
        };
        self.tensors.iter().map(list).collect()
    }

    /// The bytes of the tensors.
    pub fn weights(&self) -> u64 {
        let bytes = |(name, shape): &(String, Vec<u64>)| {
            shape.iter().product::<u64>() * if is_half(name) { 2 } else { 4 }
        };
        self.tensors.iter().map(bytes).sum()
    }

    /// Writes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_with_bf16(&[])
    }

    /// Writes the file, with the numbers of these tensors as the upper halves of their 32 bits.
    pub fn to_bytes_with_bf16(&self, halved: &[&str]) -> Vec<u8> {
        let with_key = |writer: GgufWriter, (key, value): &(String, GgufValue)| {
            writer.metadata(key.clone(), value.clone())
        };
        let writer = self.metadata.iter().fold(GgufWriter::new(), with_key);
        let tensors = self.tensors.iter().zip(self.numbers());
        let writer = tensors.fold(writer, |writer, ((name, shape), numbers)| {
            if halved.contains(&name.as_str()) {
                let upper = |number: &f32| ((number.to_bits() >> 16) as u16).to_le_bytes();
                let data = numbers.iter().flat_map(upper).collect();
                return writer.tensor_bytes(name.clone(), shape, BF16, data);
            }
            if !is_half(name) {
                return writer.tensor(name.clone(), shape, &numbers);
            }
            let data = numbers.iter().flat_map(|number| half(*number)).collect();
            writer.tensor_bytes(name.clone(), shape, F16, data)
        });
        writer.to_bytes()
    }
}

/// The tensors of the encoder of sound of Gemma 4.
fn conformer(embedding: u64) -> Vec<(String, Vec<u64>)> {
    let mut tensors: Vec<(String, Vec<u64>)> = Vec::new();
    let mut tensor = |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
    let [first, second, _] = CHANNELS;
    for (number, from, to) in [(0, 1, first), (1, first, second)] {
        tensor(&format!("a.conv1d.{number}.weight"), &[3, 3, from, to]);
        tensor(&format!("a.conv1d.{number}.bias"), &[1, 1, to]);
        tensor(&format!("a.conv1d.{number}.norm.weight"), &[to]);
    }
    // Each convolution halves the frequencies.
    let frequencies = u64::from(MEL_BINS.div_ceil(4));
    tensor("a.input_projection.weight", &[frequencies * second, WIDTH]);
    tensor("a.input_projection.bias", &[WIDTH]);
    for layer in 0..N_LAYER {
        let name = |tensor: &str| format!("a.blk.{layer}.{tensor}");
        for matrix in ["attn_q", "attn_k", "attn_v", "attn_out", "attn_k_rel"] {
            tensor(&name(&format!("{matrix}.weight")), &[WIDTH, WIDTH]);
        }
        tensor(&name("attn_out.bias"), &[WIDTH]);
        for scale in ["per_dim_scale", "per_dim_k_scale"] {
            tensor(&name(&format!("{scale}.weight")), &[WIDTH / u64::from(N_HEAD)]);
        }
        for norm in [
            "attn_pre_norm",
            "attn_post_norm",
            "ffn_norm",
            "ffn_norm_1",
            "ffn_post_norm",
            "ffn_post_norm_1",
            "conv_norm",
            "ln1",
            "ln2",
        ] {
            tensor(&name(&format!("{norm}.weight")), &[WIDTH]);
        }
        for block in ["", "_1"] {
            tensor(&name(&format!("ffn_up{block}.weight")), &[WIDTH, N_FF]);
            tensor(&name(&format!("ffn_down{block}.weight")), &[N_FF, WIDTH]);
        }
        let inner = WIDTH + 8;
        tensor(&name("conv_pw1.weight"), &[WIDTH, 2 * inner]);
        tensor(&name("conv_dw.weight"), &[5, inner]);
        tensor(&name("conv_dw.bias"), &[inner]);
        tensor(&name("norm_conv.weight"), &[inner]);
        tensor(&name("conv_pw2.weight"), &[inner, WIDTH]);
        for matrix in ["attn_q", "ffn_up_1", "conv_pw2"] {
            for bound in ["input_min", "input_max", "output_min", "output_max"] {
                tensor(&name(&format!("{matrix}.{bound}")), &[1]);
            }
        }
    }
    tensor("a.pre_encode.out.weight", &[WIDTH, N_FF]);
    tensor("a.pre_encode.out.bias", &[N_FF]);
    tensor("mm.a.soft_emb_norm.weight", &[N_FF]);
    tensor("mm.a.input_projection.weight", &[N_FF, embedding]);
    tensors
}

/// The tensors of MobileNetV5, with a block of each form. Sides of 64 become 32, and 16, 8, 4 and 2 by
/// the stages.
fn mobilenet(embedding: u64) -> Vec<(String, Vec<u64>)> {
    let mut tensors = vec![("v.conv_stem.conv.bias".to_owned(), vec![1, 1, 4])];
    let mut convolution = |name: &str, norm: &str, shape: [u64; 4], made: u64| {
        tensors.push((format!("{name}.weight"), shape.to_vec()));
        if !norm.is_empty() {
            tensors.push((format!("{norm}.weight"), vec![made]));
        }
    };
    convolution("v.conv_stem.conv", "v.conv_stem.bn", [3, 3, 3, 4], 4);
    for (block, from) in [("v.blk.0.0", 4), ("v.blk.0.1", 6)] {
        let name = |part: &str| format!("{block}.{part}");
        convolution(&name("conv_exp"), &name("bn1"), [3, 3, from, 8], 8);
        convolution(&name("conv_pwl"), &name("bn2"), [1, 1, 8, 6], 6);
    }
    convolution("v.blk.1.0.dw_start.conv", "v.blk.1.0.dw_start.bn", [3, 3, 1, 6], 6);
    for (block, from, inner, to) in
        [("v.blk.1.0", 6, 12, 8), ("v.blk.2.0", 8, 14, 10), ("v.blk.3.0", 10, 16, 12)]
    {
        let name = |part: &str| format!("{block}.{part}");
        convolution(&name("pw_exp.conv"), &name("pw_exp.bn"), [1, 1, from, inner], inner);
        convolution(&name("dw_mid.conv"), &name("dw_mid.bn"), [5, 5, 1, inner], inner);
        convolution(&name("pw_proj.conv"), &name("pw_proj.bn"), [1, 1, inner, to], to);
    }
    let attention = |part: &str| format!("v.blk.2.1.attn.{part}");
    convolution(&attention("query.proj"), "v.blk.2.1.norm", [1, 1, 10, 8], 10);
    for part in ["key", "value"] {
        let name = |tensor: &str| attention(&format!("{part}.{tensor}"));
        convolution(&name("down_conv"), &name("norm"), [3, 3, 1, 10], 10);
        convolution(&name("proj"), "", [1, 1, 10, 4], 4);
    }
    convolution(&attention("output.proj"), "", [1, 1, 8, 10], 10);
    let ffn = |part: &str| format!("v.msfa.ffn.{part}");
    convolution(&ffn("pw_exp.conv"), &ffn("pw_exp.bn"), [1, 1, 10 + 12, 24], 24);
    convolution(&ffn("pw_proj.conv"), &ffn("pw_proj.bn"), [1, 1, 24, embedding], embedding);
    for (name, shape) in [
        ("v.blk.1.0.layer_scale.gamma", vec![1, 1, 8]),
        ("v.blk.2.1.layer_scale.gamma", vec![1, 1, 10]),
        ("v.msfa.norm.weight", vec![embedding]),
        ("mm.soft_emb_norm.weight", vec![embedding]),
        ("mm.input_projection.weight", vec![embedding, embedding]),
    ] {
        tensors.push((name.to_owned(), shape));
    }
    tensors
}

/// The side of a picture, and of a patch, in pixels. Tiles of `ProjectorType::Lfm2` have 512
/// pixels, whatever the file says.
fn sizes(kind: ProjectorType) -> (u32, u32) {
    match kind {
        ProjectorType::Lfm2 => (8 * IMAGE_SIZE, 8 * PATCH_SIZE),
        ProjectorType::Ldp | ProjectorType::LdpV2 => (24 * PATCH_SIZE, PATCH_SIZE),
        // So many patches in a row as llama.cpp counts tokens.
        ProjectorType::Gemma3NV => (2 * IMAGE_SIZE, PATCH_SIZE),
        _ => (IMAGE_SIZE, PATCH_SIZE),
    }
}

/// ggml's numbers of the types.
const F16: u32 = 1;
const BF16: u32 = 30;

/// Whether a tensor has numbers of 16 bits: the convolutions of single channels, which llama.cpp
/// computes with these only.
pub fn is_half(name: &str) -> bool {
    [".block.0.0.weight", ".peg.0.weight", ".dw_start.conv.", ".dw_mid.conv.", ".down_conv."]
        .iter()
        .any(|part| name.contains(part))
}

/// The bytes of the number as F16, rounded towards zero.
fn half(number: f32) -> [u8; 2] {
    let bits = number.to_bits();
    let exponent = (bits >> 23 & 0xFF) as i32 - 127 + 15;
    let magnitude = match exponent {
        ..=0 => 0,
        31.. => 0x7BFF,
        _ => (exponent as u16) << 10 | (bits >> 13 & 0x3FF) as u16,
    };
    ((bits >> 16 & 0x8000) as u16 | magnitude).to_le_bytes()
}

/// The tokens of a picture with these sides.
pub fn image_tokens(kind: ProjectorType, width: u32, height: u32) -> usize {
    let side = IMAGE_SIZE / PATCH_SIZE;
    let (columns, rows) = match kind {
        ProjectorType::Mlp | ProjectorType::JanusPro => (side, side),
        // Of 24 patches in a row.
        ProjectorType::Ldp | ProjectorType::LdpV2 => (12, 12),
        ProjectorType::Gemma3 => (side / MERGE, side / MERGE),
        ProjectorType::Gemma3NV => (4, 4),
        // With one embedding before them and one after them.
        ProjectorType::CogVlm => (side * side + 2, 1),
        ProjectorType::GlmEdge => ((side / MERGE) * (side / MERGE) + 2, 1),
        ProjectorType::Idefics3 => {
            // The longer side has two tiles; the whole picture is one more.
            let tiles = |length: u32| (MAX_SIDE * length / width.max(height)).div_ceil(IMAGE_SIZE);
            let tiles = tiles(width).max(1) * tiles(height).max(1) + 1;
            (tiles * (side / MERGE), side / MERGE)
        }
        ProjectorType::InternVl => {
            // By hand: the grid that keeps all pixels and has the fewest tiles, or that keeps most.
            let tiles = match (width, height) {
                (1, 1) => 1,
                (24, 80) => 3 + 1,
                (40, 40) => 2 * 2 + 1,
                (6, 200) | (500, 20) => MAX_TILES + 1,
                _ => panic!("the tiles of {width}x{height} are not known"),
            };
            (tiles * (side / MERGE), side / MERGE)
        }
        // By hand: a picture larger than the square becomes slices, with the whole picture.
        ProjectorType::MiniCpmV => match (width, height) {
            (1, 1) => (N_QUERIES, 1),
            (24, 80) | (6, 200) => (N_QUERIES, 3 + 1),
            (40, 40) => (N_QUERIES, 2 + 1),
            (500, 20) => (N_QUERIES, 9 + 1),
            _ => panic!("the slices of {width}x{height} are not known"),
        },
        ProjectorType::Llama4 => {
            // By hand: up to three by three tiles, and the whole picture.
            let tiles = match (width, height) {
                (1, 1) => 1,
                (24, 80) | (6, 200) | (500, 20) => 3 + 1,
                (40, 40) => 2 * 2 + 1,
                _ => panic!("the tiles of {width}x{height} are not known"),
            };
            (tiles * (side / MERGE), side / MERGE)
        }
        ProjectorType::Qwen2Vl
        | ProjectorType::Qwen25Vl
        | ProjectorType::Qwen3Vl
        | ProjectorType::Glm4V
        | ProjectorType::KimiVl
        | ProjectorType::PaddleOcr
        | ProjectorType::DotsOcr
        | ProjectorType::Pixtral => {
            // Two patches in each direction, and at least eight tokens.
            let square = 2 * PATCH_SIZE;
            let (columns, rows) = (width.div_ceil(square), height.div_ceil(square));
            let (columns, rows) = if columns * rows < 8 { (3, 3) } else { (columns, rows) };
            match kind {
                // A row ends with a token, but not the last one.
                ProjectorType::Pixtral => (columns * rows + rows - 1, 1),
                _ => (columns, rows),
            }
        }
        // By hand: squares of 8 pixels, at least 70 of them.
        ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => match (width, height) {
            (1, 1) | (40, 40) => (9, 9),
            (24, 80) => (5, 16),
            (6, 200) => (2, 49),
            (500, 20) => (63, 3),
            _ => panic!("the tokens of {width}x{height} are not known"),
        },
        // By hand: squares of 64 pixels, at least 64 of them.
        ProjectorType::Lfm2 => match (width, height) {
            (1, 1) | (40, 40) => (8, 8),
            (24, 80) => (5, 15),
            (6, 200) => (2, 47),
            (500, 20) => (40, 2),
            // Three by two tiles of 64 tokens, and the whole picture.
            (2000, 1500) => (6 * 64 + 18 * 13, 1),
            _ => panic!("the tokens of {width}x{height} are not known"),
        },
        // By hand: squares of 8 pixels, 64 pixels in the longer side.
        ProjectorType::LightOnOcr => match (width, height) {
            (1, 1) | (40, 40) => (8, 8),
            (24, 80) => (3, 8),
            (6, 200) | (500, 20) => (1, 8),
            _ => panic!("the tokens of {width}x{height} are not known"),
        },
        // By hand: patches of 4 pixels, from 512 to 4,096 pixels of a picture.
        ProjectorType::Phi4 => match (width, height) {
            (1, 1) => (6, 6),
            (40, 40) => (10, 10),
            (24, 80) => (6, 20),
            (6, 200) => (2, 50),
            (500, 20) => (80, 3),
            _ => panic!("the tokens of {width}x{height} are not known"),
        },
        _ => panic!("{kind:?} takes no pictures"),
    };
    (columns * rows) as usize
}

/// The embeddings of sound that are one row of the projection.
fn stack(kind: ProjectorType) -> u64 {
    match kind {
        ProjectorType::Ultravox | ProjectorType::Meralion | ProjectorType::GlmAsr => 10,
        ProjectorType::Voxtral => 5,
        _ => 1,
    }
}

/// The tokens of the windows of a sound with so many samples, of one or two windows of 30 seconds.
pub fn sound_tokens(kind: ProjectorType, samples: u32) -> Vec<usize> {
    if kind == ProjectorType::Qwen3Audio {
        // By hand: a spectrum for 160 samples and one more, in windows of 800, with 13 tokens for each
        // 100 of them.
        return match samples {
            1 | 8000 => vec![13],
            400_000 => vec![104, 104, 104, 26],
            479_839 | 479_840 => vec![104, 104, 104, 78],
            _ => panic!("the tokens of {samples} samples are not known"),
        };
    }
    if kind == ProjectorType::Gemma4Audio {
        // By hand: a spectrum for each 160 samples before the last one, and a token for four.
        return match samples {
            1 => vec![1],
            8000 => vec![13],
            400_000 => vec![625],
            479_839 | 479_840 => vec![750],
            _ => panic!("the tokens of {samples} samples are not known"),
        };
    }
    if kind == ProjectorType::Gemma4UnifiedAudio {
        return vec![samples.div_ceil(640) as usize];
    }
    // 30 seconds of 16,000 samples, less one hop.
    vec![window_tokens(kind); if samples < 479_840 { 1 } else { 2 }]
}

/// The tokens of a full window, or of 30 seconds.
pub fn window_tokens(kind: ProjectorType) -> usize {
    let (positions, around) = match kind {
        // Eight seconds.
        ProjectorType::Qwen3Audio => return 8 * 13,
        ProjectorType::Ultravox | ProjectorType::Meralion => (1500, 0),
        // With one embedding before them and one after them.
        ProjectorType::GlmAsr => (1500, 2),
        _ => (750, 0),
    };
    positions / stack(kind) as usize + around
}

/// The types whose projectors take this.
pub fn kinds(modality: Modality) -> impl Iterator<Item = ProjectorType> {
    ProjectorType::ALL.into_iter().filter(move |kind| kind.modality() == modality)
}

/// The memory of the models that have projectors of this type.
pub fn memory(kind: ProjectorType) -> Memory {
    match kind {
        ProjectorType::Gemma3 | ProjectorType::Gemma4V | ProjectorType::Gemma4UnifiedV => {
            Memory::Window
        }
        ProjectorType::Qwen2Vl
        | ProjectorType::Qwen25Vl
        | ProjectorType::Glm4V
        | ProjectorType::PaddleOcr => Memory::Grid,
        // MiniCPM-V needs longer embeddings than the other models have.
        ProjectorType::Qwen3Vl | ProjectorType::MiniCpmV => Memory::DeepGrid,
        _ => Memory::Dense,
    }
}

/// The length of the embeddings that the models of `random` take for a picture.
pub fn embedding(kind: ProjectorType) -> u64 {
    match memory(kind) {
        Memory::DeepGrid => N_EMBD * u64::from(1 + N_DEEP),
        _ => N_EMBD,
    }
}

/// A model for projectors of this type.
pub fn model(kind: ProjectorType) -> Vec<u8> {
    match kind {
        // Those of a row are spelled.
        ProjectorType::Idefics3 => {
            dense_with_tokens(&["\n\n"], &["<fake_token_around_image>", "<global-img>"])
        }
        ProjectorType::MiniCpmV => {
            let controls = ["<image>", "</image>", "<slice>", "</slice>"];
            with_tokens(memory(kind), &[], &controls)
        }
        ProjectorType::Lfm2 => dense_with_tokens(&[], &["<|img_thumbnail|>"]),
        _ => random(memory(kind)),
    }
}

/// A projector of this type for the models of `random`.
pub fn projector(kind: ProjectorType) -> Vec<u8> {
    ProjectorFile::new(kind, embedding(kind)).to_bytes()
}
