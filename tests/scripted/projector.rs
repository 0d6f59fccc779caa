//! Tiny projector files with random weights, for the models of `random`: pictures and sounds change
//! what those reply. The names and shapes are those that llama.cpp's `convert_hf_to_gguf.py` writes.

use llb::api::Modality;
use llb::gguf::{GgufValue, ProjectorType};

use super::gguf_writer::GgufWriter;

use super::random::{Memory, N_DEEP, N_EMBD, Numbers, dense_with_tokens, random};

/// The side of a picture, and of a patch, in pixels.
pub const IMAGE_SIZE: u32 = 32;
pub const PATCH_SIZE: u32 = 4;
/// The patches in each direction that are one token with most types.
pub const MERGE: u32 = 2;
/// The longer side of a picture of tiles.
pub const MAX_SIDE: u32 = 64;
/// The most tiles with `ProjectorType::InternVl`, without the one for the whole picture.
const MAX_TILES: u32 = 6;
/// The samples of a second of sound.
pub const SAMPLE_RATE: u32 = 16_000;
/// The frequencies of a spectrum.
pub const MEL_BINS: u32 = 20;
const WIDTH: u64 = 32;
const N_FF: u64 = 48;
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
        if kind == ProjectorType::Mlp {
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
        let mut tensors: Vec<(String, Vec<u64>)> = Vec::new();
        let mut tensor =
            |name: &str, shape: &[u64]| tensors.push((name.to_owned(), shape.to_vec()));
        for (number, from) in [(1, MEL_BINS.into()), (2, WIDTH)] {
            tensor(&format!("a.conv1d.{number}.weight"), &[3, from, WIDTH]);
            tensor(&format!("a.conv1d.{number}.bias"), &[1, WIDTH]);
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
                if matrix != "attn_k" {
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
            ProjectorType::MusicFlamingo | ProjectorType::Meralion | ProjectorType::GlmAsr => {
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
            let is_norm = shape.len() == 1 && name.ends_with("weight");
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

    /// Writes the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let with_key = |writer: GgufWriter, (key, value): &(String, GgufValue)| {
            writer.metadata(key.clone(), value.clone())
        };
        let writer = self.metadata.iter().fold(GgufWriter::new(), with_key);
        let tensors = self.tensors.iter().zip(self.numbers());
        let writer = tensors.fold(writer, |writer, ((name, shape), numbers)| {
            writer.tensor(name.clone(), shape, &numbers)
        });
        writer.to_bytes()
    }
}

/// The side of a picture, and of a patch, in pixels. Tiles of `ProjectorType::Lfm2` have 512
/// pixels, whatever the file says.
fn sizes(kind: ProjectorType) -> (u32, u32) {
    match kind {
        ProjectorType::Lfm2 => (8 * IMAGE_SIZE, 8 * PATCH_SIZE),
        _ => (IMAGE_SIZE, PATCH_SIZE),
    }
}

/// The tokens of a picture with these sides.
pub fn image_tokens(kind: ProjectorType, width: u32, height: u32) -> usize {
    let side = IMAGE_SIZE / PATCH_SIZE;
    let (columns, rows) = match kind {
        ProjectorType::Mlp | ProjectorType::JanusPro => (side, side),
        ProjectorType::Gemma3 => (side / MERGE, side / MERGE),
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

/// The tokens of a sound of less than 30 seconds.
pub fn sound_tokens(kind: ProjectorType) -> usize {
    let (positions, around) = match kind {
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
        ProjectorType::Gemma3 => Memory::Window,
        ProjectorType::Qwen2Vl
        | ProjectorType::Qwen25Vl
        | ProjectorType::Glm4V
        | ProjectorType::PaddleOcr => Memory::Grid,
        ProjectorType::Qwen3Vl => Memory::DeepGrid,
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
        ProjectorType::Lfm2 => dense_with_tokens(&[], &["<|img_thumbnail|>"]),
        _ => random(memory(kind)),
    }
}

/// A projector of this type for the models of `random`.
pub fn projector(kind: ProjectorType) -> Vec<u8> {
    ProjectorFile::new(kind, embedding(kind)).to_bytes()
}
