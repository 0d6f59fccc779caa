//! The content of a model file. Mutants change it before it is written as bytes.

use std::sync::Arc;

use llb::gguf::GgufValue;

use super::scripted::gguf_writer::GgufWriter;

use super::numbers::Numbers;
use super::vocabularies::{N_TOKENS, Vocabulary};

/// A change to the written bytes.
pub type Edit = Arc<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// A model file before it is written.
#[derive(Clone)]
pub struct ModelFile {
    pub architecture: String,
    /// The architecture, with the name of the variant if it is one.
    pub name: String,
    pub keys: Vec<(String, GgufValue)>,
    /// Keys that llama.cpp reads if a model has them. This one does not.
    pub optional_keys: Vec<String>,
    pub tensors: Vec<TensorSpec>,
    pub vocabulary: Vocabulary,
    /// The number of tokens, at least `N_TOKENS`.
    pub n_tokens: usize,
    pub edits: Vec<Edit>,
}

#[derive(Clone)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<u64>,
    /// A row of `TYPES`.
    pub tensor_type: TensorType,
    pub content: Content,
}

/// The data of a tensor.
#[derive(Clone, Debug)]
pub enum Content {
    /// Numbers with which the model runs, if they are of 32 bits, otherwise zeros.
    Usual,
    /// Numbers for this many rows from the first one of these on, this many times as large as usual,
    /// and zeros for the others.
    Rows { first: u64, count: u64, factor: f32 },
    /// The bytes of these two numbers, again and again.
    Repeated(f32, f32),
    /// These numbers, of 32 bits.
    Numbers(Arc<[f32]>),
    /// Any bytes.
    Random,
}

impl TensorSpec {
    pub fn new(name: &str, shape: Vec<u64>) -> TensorSpec {
        TensorSpec { name: name.to_owned(), shape, tensor_type: TYPES[0], content: Content::Usual }
    }
}

/// The type's number, its elements per block, and its bytes per block.
pub type TensorType = (u32, u64, u64);

/// The type of tensors of integers.
pub const I32: TensorType = (26, 1, 4);

/// The types of ggml, and one that ggml does not know.
pub const TYPES: [TensorType; 36] = [
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (9, 32, 36),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (15, 256, 292),
    (16, 256, 66),
    (17, 256, 74),
    (18, 256, 98),
    (19, 256, 50),
    (20, 32, 18),
    (21, 256, 110),
    (22, 256, 82),
    (23, 256, 136),
    (24, 1, 1),
    (25, 1, 2),
    (26, 1, 4),
    (27, 1, 8),
    (28, 1, 8),
    (29, 256, 56),
    (30, 1, 2),
    (34, 256, 54),
    (35, 256, 66),
    (39, 32, 17),
    (40, 64, 36),
    (41, 128, 18),
    (42, 64, 18),
    (99, 1, 4),
];

impl ModelFile {
    pub fn new(architecture: &str) -> ModelFile {
        ModelFile {
            architecture: architecture.to_owned(),
            name: architecture.to_owned(),
            keys: Vec::new(),
            optional_keys: Vec::new(),
            tensors: Vec::new(),
            vocabulary: Vocabulary::bytes(),
            n_tokens: N_TOKENS,
            edits: Vec::new(),
        }
    }

    /// The number of layers, at most 8.
    pub fn n_layers(&self) -> usize {
        let key = format!("{}.block_count", self.architecture);
        let count = self.keys.iter().find(|(name, _)| *name == key).and_then(|(_, n)| n.as_u64());
        count.map_or(2, |count| count.clamp(1, 8) as usize)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", self.architecture.as_str())
            .metadata("tokenizer.chat_template.rerank", "{query} {document}")
            .metadata("general.file_type", 0_u32);
        for (key, value) in &self.keys {
            writer = writer.metadata(key, value.clone());
        }
        writer = self.vocabulary.write(writer, self.n_tokens);
        for tensor in &self.tensors {
            let (number, block, bytes) = tensor.tensor_type;
            let elements: u64 = tensor.shape.iter().product();
            let n_bytes = elements.div_ceil(block) * bytes;
            let repeated =
                |bytes: Vec<u8>| bytes.into_iter().cycle().take(n_bytes as usize).collect();
            let data = match &tensor.content {
                Content::Usual if number == 0 => {
                    floats(&tensor.name, elements).iter().flat_map(|x| x.to_le_bytes()).collect()
                }
                Content::Rows { first, count, factor } if number == 0 => {
                    let width = tensor.shape[0];
                    let rows = first * width..(first + count) * width;
                    let numbers = floats(&tensor.name, elements).into_iter().zip(0..);
                    numbers
                        .map(|(x, index)| if rows.contains(&index) { x * factor } else { 0.0 })
                        .flat_map(f32::to_le_bytes)
                        .collect()
                }
                Content::Numbers(numbers) if number == 0 => {
                    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
                }
                Content::Usual | Content::Rows { .. } | Content::Numbers(_) => {
                    vec![0; n_bytes as usize]
                }
                Content::Repeated(first, second) => {
                    repeated([first.to_le_bytes(), second.to_le_bytes()].concat())
                }
                Content::Random => {
                    let mut numbers = Numbers(elements);
                    (0..n_bytes).map(|_| numbers.below(256) as u8).collect()
                }
            };
            writer = writer.tensor_bytes(&tensor.name, &tensor.shape, number, data);
        }
        let mut bytes = self.vocabulary.finish(writer.to_bytes());
        self.edits.iter().for_each(|edit| edit(&mut bytes));
        bytes
    }
}

/// Ones for norms and factors, otherwise small numbers that depend on the index.
fn floats(name: &str, elements: u64) -> Vec<f32> {
    if name.contains("norm") && name.ends_with(".weight") || name.contains("rope") {
        return vec![1.0; elements as usize];
    }
    let mut state = name.bytes().fold(41_u64, |hash, byte| hash * 31 % 1_000_003 + u64::from(byte));
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..elements).map(|_| next() * 0.1).collect()
}
