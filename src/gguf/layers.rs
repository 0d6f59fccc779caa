//! Computes the memory that the layers of a model need, from its header: weights, and state per
//! token or per sequence.

use super::header::ModelHeader;
use super::value::GgufValue;
use crate::error::{Code, Error, Result};

/// Architectures whose layers with states have linear attention, with a square for each head.
const LINEAR_ATTENTION: [&str; 1] = ["minimax-01"];
/// Architectures whose layers have states if, and only if, they have no heads of keys
/// (`is_recr_impl` in src/models). In others an interval decides, or all layers have both.
const STATES_WITHOUT_HEADS: [&str; 11] = [
    "bailingmoe3",
    "glm5-next",
    "granitehybrid",
    "jamba",
    "kimi-k3",
    "kimi-linear",
    "lfm2",
    "lfm2moe",
    "nemotron_h",
    "nemotron_h_moe",
    "plamo2",
];
/// Architectures for which llama.cpp always disables flash attention (`llama_init_from_model`).
const WITHOUT_FLASH_ATTENTION: [&str; 1] = ["grok"];
/// Architectures that add a number to each score of attention, so that `build_attn_mha` computes
/// the scores.
const WITH_BIASES: [&str; 2] = ["t5", "t5encoder"];
const KEY_LENGTH: &str = "attention.key_length";
/// The most numbers that the state of a layer may have for each sequence. Known models have up to 4
/// million.
const MAX_OF_A_STATE: u64 = 1 << 24;
/// The most numbers of a state that is larger than the weights of every layer in bytes. The states
/// of known models are at most an eighth of the weights.
const MAX_BESIDE_WEIGHTS: u64 = 1 << 16;

/// The memory that a model's layers need. Sizes are in bytes unless noted otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// The blocks, in order.
    pub blocks: Vec<Layer>,
    /// The size of the weights after the last block, which compute logits.
    pub output: u64,
    /// The size of the largest tensor of a block.
    pub largest: u64,
    /// The number of elements in a token's embedding, in the widest layer inside a block, and in
    /// its logits.
    pub widths: [u64; 3],
    /// The number of attention heads.
    pub heads: u64,
    /// How the attention can be computed.
    pub attention: Attention,
}

/// How llama.cpp can compute the attention of an architecture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attention {
    /// With flash attention or without.
    #[default]
    Any,
    /// Without flash attention. It computes a score for each pair of tokens and head.
    Scored,
    /// As `Scored`, with a number that is added to each score. The values of the KV cache are
    /// stored as for flash attention.
    Biased,
}

/// The memory that one block needs, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layer {
    /// The size of the weights.
    pub weights: u64,
    /// The KV cache for each token of context.
    pub per_token: u64,
    /// The part of it for values.
    pub values_per_token: u64,
    /// The state for each sequence, in a block that has state instead of a KV cache.
    pub per_sequence: u64,
}

impl ModelHeader {
    /// The memory that the layers need. The arguments are the sizes of a key element and of a value
    /// element in the KV cache, in bytes (2.0 for f16).
    ///
    /// An upper bound for layers that share a cache. `None` if the header lacks the sizes.
    pub fn layers(&self, key_element: f64, value_element: f64) -> Option<Layers> {
        let tensors = self.tensors();
        tensors.data_bytes?;
        let count = self.block_count().filter(|count| (1..=65_536).contains(count))?;
        let embedding = self.embedding_length()?;
        let number = |key: &str| self.architecture_value(key).and_then(GgufValue::as_u64);
        let heads =
            self.architecture_value("attention.head_count").and_then(largest_u64).unwrap_or(0);
        let length = |key: &str| self.head_lengths(key).into_iter().max().unwrap_or(0) as f64;
        let key = length(KEY_LENGTH) * key_element;
        let value = length("attention.value_length") * value_element;
        let kv_heads = self
            .architecture_value("attention.head_count_kv")
            .or_else(|| self.architecture_value("attention.head_count"));
        let marks_states = STATES_WITHOUT_HEADS.contains(&self.architecture());
        let state = self.state_elements(embedding).saturating_mul(4);
        let block = |index: u64| {
            let kv_heads = match kv_heads {
                Some(GgufValue::Array(_, items)) => {
                    items.get(index as usize).and_then(GgufValue::as_element)
                }
                Some(scalar) => scalar.as_u64(),
                None => None,
            };
            let kv_heads = kv_heads.unwrap_or(0);
            let per_token = kv_heads as f64 * (key + value);
            let may_have_state = kv_heads == 0 || !marks_states;
            Layer {
                weights: tensors.blocks.get(&(index as u32)).copied().unwrap_or(0),
                per_token: per_token.ceil() as u64,
                values_per_token: (kv_heads as f64 * value).ceil() as u64,
                per_sequence: if may_have_state { state } else { 0 },
            }
        };
        let experts = number("expert_used_count")
            .unwrap_or(0)
            .saturating_mul(number("expert_feed_forward_length").unwrap_or(0));
        let inner = [
            self.architecture_value("feed_forward_length").and_then(largest_u64),
            number("ssm.inner_size"),
            Some(experts),
        ];
        Some(Layers {
            blocks: (0..count).map(block).collect(),
            // Without output weights the model uses a copy of the embedding.
            output: tensors.output.saturating_add(if tensors.has_output {
                0
            } else {
                tensors.embedding
            }),
            largest: tensors.largest,
            widths: [
                embedding,
                inner.into_iter().flatten().max().unwrap_or(0),
                self.n_tokens().unwrap_or(0),
            ],
            heads,
            attention: match self.architecture() {
                name if WITHOUT_FLASH_ATTENTION.contains(&name) => Attention::Scored,
                name if WITH_BIASES.contains(&name) => Attention::Biased,
                _ => Attention::Any,
            },
        })
    }

    /// The size of the KV cache per token of context, in bytes. The arguments are the sizes of a
    /// key element and of a value element in bytes (2.0 for f16).
    ///
    /// An upper bound for models with sliding windows or layers that share a cache. `None` if the
    /// header lacks the sizes.
    pub fn kv_bytes_per_token(&self, key_element: f64, value_element: f64) -> Option<u64> {
        let layers = self.layers(key_element, value_element)?;
        Some(layers.cache_per_token()).filter(|bytes| *bytes > 0)
    }

    /// The lengths of a head of keys, in layers without a window and with one.
    #[cfg(feature = "engine")]
    pub(crate) fn key_lengths(&self) -> [u64; 2] {
        self.head_lengths(KEY_LENGTH)
    }

    /// The lengths of a head by this key, in layers without a window and with one.
    fn head_lengths(&self, key: &str) -> [u64; 2] {
        let number = |key: &str| self.architecture_value(key).and_then(GgufValue::as_u64);
        let heads = self.architecture_value("attention.head_count").and_then(first_u64);
        let by_heads = || self.embedding_length()?.checked_div(heads?);
        let full = number(key).or_else(by_heads).unwrap_or(0);
        [full, number(&format!("{key}_swa")).unwrap_or(full)]
    }

    /// Fails with `MODEL_INVALID` if a layer has a huge state for each sequence.
    pub(super) fn check_size_of_states(&self) -> Result<()> {
        let weights = self.tensors().blocks.values().copied().max().unwrap_or(0);
        let most = weights.clamp(MAX_BESIDE_WEIGHTS, MAX_OF_A_STATE);
        let state = self.state_elements(self.embedding_length().unwrap_or(0));
        if state <= most {
            return Ok(());
        }
        let reason = if most == weights { ", the bytes of its weights" } else { "" };
        let message = format!(
            "the state of a layer has {state} numbers for each sequence, more than {most}{reason}"
        );
        Err(Error::new(Code::ModelInvalid, message))
    }

    /// The number of elements in the state of a layer (llama.cpp `n_embd_r` and `n_embd_s`). 0
    /// without state, or if its size is unknown.
    fn state_elements(&self, embedding: u64) -> u64 {
        let number =
            |key: &str| self.architecture_value(key).and_then(GgufValue::as_u64).unwrap_or(0);
        let (inner, state) = (number("ssm.inner_size"), number("ssm.state_size"));
        let groups = number("ssm.group_count").saturating_mul(state).saturating_mul(2);
        let convolution = number("ssm.conv_kernel")
            .saturating_sub(1)
            .saturating_mul(inner.saturating_add(groups));
        let shifts =
            number("wkv.head_size").saturating_add(if number("wkv.head_size") > 0 { 2 } else { 0 });
        let short = number("shortconv.l_cache").saturating_sub(1);
        let by_embedding = shifts.saturating_add(short).saturating_mul(embedding);
        let head = match number("kda.head_dim") {
            0 if LINEAR_ATTENTION.contains(&self.architecture()) => number("attention.key_length"),
            head => head,
        };
        let heads =
            self.architecture_value("attention.head_count").and_then(largest_u64).unwrap_or(0);
        // The convolution of KDA has three vectors of all heads for each position.
        let of_heads = number("ssm.conv_kernel").saturating_mul(3).saturating_add(head);
        let of_heads = heads.saturating_mul(head).saturating_mul(of_heads);
        convolution
            .saturating_add(inner.saturating_mul(state))
            .saturating_add(by_embedding)
            .saturating_add(of_heads)
    }
}

impl Layers {
    /// The size of the KV cache of all blocks for each token of context, in bytes.
    pub fn cache_per_token(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| block.per_token);
        blocks.fold(0, u64::saturating_add)
    }

    /// The layers without flash attention. The values of every layer are then as wide as those of
    /// the widest one (`n_embd_v_gqa_max` in llama-kv-cache.cpp).
    pub fn with_equal_values(mut self) -> Layers {
        let widest = self.blocks.iter().map(|block| block.values_per_token).max().unwrap_or(0);
        // A block without heads has values too, unless it has state instead.
        let is_cached = |block: &&mut Layer| block.per_token > 0 || block.per_sequence == 0;
        for block in self.blocks.iter_mut().filter(is_cached) {
            block.per_token =
                block.per_token.saturating_add(widest.saturating_sub(block.values_per_token));
            block.values_per_token = widest;
        }
        self
    }
}

/// A number, or the first of an array that is not 0.
fn first_u64(value: &GgufValue) -> Option<u64> {
    match value {
        GgufValue::Array(_, items) => {
            items.iter().filter_map(GgufValue::as_element).find(|number| *number > 0)
        }
        scalar => scalar.as_u64(),
    }
}

/// A number, or the largest of an array.
fn largest_u64(value: &GgufValue) -> Option<u64> {
    match value {
        GgufValue::Array(_, items) => items.iter().filter_map(GgufValue::as_element).max(),
        scalar => scalar.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Cursor;

    use super::*;
    use crate::gguf::gguf_writer::GgufWriter;

    fn read(bytes: Vec<u8>) -> Option<Layers> {
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap().layers(2.0, 1.0)
    }

    fn base() -> GgufWriter {
        GgufWriter::new()
            .metadata("general.architecture", "x")
            .metadata("x.block_count", 2_u32)
            .metadata("x.embedding_length", 8_u32)
            .metadata("x.feed_forward_length", vec![16_u32, 24])
            .metadata("x.attention.head_count", 4_u32)
            .tensor("token_embd.weight", &[8, 3], &[0.0; 24])
            .tensor("blk.1.attn_q.weight", &[8], &[0.0; 8])
    }

    #[test]
    fn layers_with_heads_need_cache_per_token() {
        let layers = read(base().to_bytes()).unwrap();
        // Four heads. A key has two elements of two bytes each, and a value two elements of one
        // byte each.
        let layer = |weights| Layer {
            weights,
            per_token: 4 * (2 * 2 + 2),
            values_per_token: 4 * 2,
            per_sequence: 0,
        };
        assert_eq!(layers.blocks, [layer(0), layer(32)]);
        assert_eq!(
            (layers.output, layers.largest, layers.widths, layers.heads),
            (96, 32, [8, 24, 0], 4)
        );
        let own = base()
            .tensor("output.weight", &[8], &[0.0; 8])
            .metadata("x.attention.key_length", 10_u32);
        let layers = read(own.metadata("x.attention.head_count_kv", 1_u32).to_bytes()).unwrap();
        assert_eq!((layers.output, layers.blocks[0].per_token), (32, 22));
    }

    /// Two layers with heads of length 2 of an architecture.
    fn of_heads(architecture: &str, kv_heads: &[u32], keys: &[(&str, u32)]) -> Layers {
        let name = |key: &str| format!("{architecture}.{key}");
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", architecture)
            .metadata(name("block_count"), 2_u32)
            .metadata(name("embedding_length"), 8_u32)
            .metadata(name("attention.head_count"), 4_u32)
            .metadata(name("attention.head_count_kv"), kv_heads.to_vec());
        for (key, value) in keys {
            writer = writer.metadata(name(key), *value);
        }
        read(writer.to_bytes()).unwrap()
    }

    #[test]
    fn layers_with_state_need_it_per_sequence() {
        let keys = [("ssm.conv_kernel", 4), ("ssm.inner_size", 16), ("ssm.state_size", 5)];
        let state = 4 * (3 * 16 + 16 * 5);
        let of = |architecture, kv_heads: &[u32]| {
            let blocks = of_heads(architecture, kv_heads, &keys).blocks;
            blocks.iter().map(|it| (it.per_token, it.per_sequence)).collect::<Vec<_>>()
        };
        assert_eq!(of("jamba", &[0, 2]), [(0, state), (12, 0)]);
        // Layers have both, or an interval decides.
        assert_eq!(of("falcon-h1", &[2, 2]), [(12, state); 2]);
        assert_eq!(of("qwen3next", &[2, 0]), [(12, state), (0, state)]);
    }

    #[test]
    fn heads_of_windows_may_be_longer() {
        let keys = |key: &'static str| [("attention.key_length", 2), (key, 6)];
        let per_token = |key| of_heads("x", &[1, 3], &keys(key)).cache_per_token();
        assert_eq!(per_token("attention.head_count_of_nothing"), 4 * (2 * 2 + 2));
        assert_eq!(per_token("attention.key_length_swa"), 4 * (6 * 2 + 2));
        assert_eq!(per_token("attention.value_length_swa"), 4 * (2 * 2 + 6));
    }

    #[test]
    fn values_are_equal_without_flash_attention() {
        let of = |architecture, kv_heads: &[u32], keys: &[(&str, u32)]| {
            let layers = of_heads(architecture, kv_heads, keys).with_equal_values();
            layers.blocks.iter().map(|block| block.per_token).collect::<Vec<_>>()
        };
        assert_eq!(of("x", &[1, 3], &[]), [4 + 3 * 2, 3 * (4 + 2)]);
        assert_eq!(of("deci", &[0, 3], &[]), [3 * 2, 3 * (4 + 2)]);
        assert_eq!(of("jamba", &[0, 3], &[("shortconv.l_cache", 3)]), [0, 3 * (4 + 2)]);
        let attention = ["grok", "t5", "x"].map(|name| of_heads(name, &[1], &[]).attention);
        assert_eq!(attention, [Attention::Scored, Attention::Biased, Attention::Any]);
    }

    #[test]
    fn squares_of_heads_are_states() {
        let state = |key: &str, architecture: &str, head: u32, weights: u64| {
            let bytes = GgufWriter::new()
                .tensor_bytes("blk.0.x", &[weights], 24, vec![0; weights as usize])
                .metadata("general.architecture", architecture)
                .metadata(format!("{architecture}.embedding_length"), 8_u32)
                .metadata(format!("{architecture}.attention.head_count"), 4_u32)
                .metadata(format!("{architecture}.{key}"), head)
                .to_bytes();
            let size = bytes.len() as u64;
            let header = ModelHeader::read(Cursor::new(bytes), size).unwrap();
            (header.state_elements(8), header.check_size_of_states().err())
        };
        assert_eq!(state("kda.head_dim", "x", 16, 0).0, 4 * 16 * 16);
        assert_eq!(state("attention.key_length", "minimax-01", 16, 0).0, 4 * 16 * 16);
        assert_eq!(state("attention.key_length", "x", 16, 0).0, 0);
        assert!(state("kda.head_dim", "x", 128, 0).1.is_none());
        assert!(state("kda.head_dim", "x", 2048, 1 << 24).1.is_none());
        let refused = |head, weights, most: &str| {
            let (numbers, error) = state("kda.head_dim", "x", head, weights);
            let error = error.unwrap();
            let message = format!(
                "the state of a layer has {numbers} numbers for each sequence, more than {most}"
            );
            assert_eq!((error.code(), error.message()), (Code::ModelInvalid, &*message));
        };
        refused(130, 65_536, "65536, the bytes of its weights");
        refused(130, 1, "65536");
        refused(2050, 1 << 25, "16777216");
    }

    #[test]
    fn unknown_sizes_give_none() {
        assert_eq!(read(base().tensor_bytes("blk.0.x", &[4], 99, vec![0; 16]).to_bytes()), None);
        assert_eq!(read(GgufWriter::new().metadata("general.architecture", "x").to_bytes()), None);
    }
}
