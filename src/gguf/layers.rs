//! Computes the memory that the layers of a model need, from its header: weights, and state per
//! token or per sequence.

use super::header::ModelHeader;
use super::value::GgufValue;
use crate::error::{Code, Error, Result};

/// Architectures whose layers with states have linear attention, with a square for each head.
const LINEAR_ATTENTION: [&str; 1] = ["minimax-01"];
/// The most numbers that the state of a layer may have for each sequence. Known models have up to 4
/// million. The file says little about it: a state can be as large as the square of a matrix.
const MOST_OF_A_STATE: u64 = 1 << 24;

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
}

/// The memory that one block needs, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layer {
    /// The size of the weights.
    pub weights: u64,
    /// The KV cache for each token of context.
    pub per_token: u64,
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
        let length = |key| number(key).or_else(|| embedding.checked_div(heads)).unwrap_or(0) as f64;
        let per_head = length("attention.key_length") * key_element
            + length("attention.value_length") * value_element;
        let kv_heads = self
            .architecture_value("attention.head_count_kv")
            .or_else(|| self.architecture_value("attention.head_count"));
        let state = self.state_elements(embedding).saturating_mul(4);
        let block = |index: u64| {
            let kv_heads = match kv_heads {
                Some(GgufValue::Array(_, items)) => {
                    items.get(index as usize).and_then(GgufValue::as_u64)
                }
                Some(scalar) => scalar.as_u64(),
                None => None,
            };
            let per_token = kv_heads.unwrap_or(0) as f64 * per_head;
            // If the header gives heads to all blocks, only the engine knows which blocks have
            // state instead.
            let may_have_state = kv_heads.unwrap_or(0) == 0
                || !matches!(
                    self.architecture_value("attention.head_count_kv"),
                    Some(GgufValue::Array(..))
                );
            Layer {
                weights: tensors.blocks.get(&(index as u32)).copied().unwrap_or(0),
                per_token: per_token.ceil() as u64,
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
        })
    }

    /// Fails with `MODEL_INVALID` if a layer has a huge state for each sequence.
    pub(super) fn check_size_of_states(&self) -> Result<()> {
        match self.state_elements(self.embedding_length().unwrap_or(0)) {
            ..=MOST_OF_A_STATE => Ok(()),
            state => Err(Error::new(
                Code::ModelInvalid,
                format!(
                    "the state of a layer has {state} numbers for each sequence, more than \
                     {MOST_OF_A_STATE}"
                ),
            )),
        }
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

/// A number, or the largest of an array.
fn largest_u64(value: &GgufValue) -> Option<u64> {
    match value {
        GgufValue::Array(_, items) => items.iter().filter_map(GgufValue::as_u64).max(),
        scalar => scalar.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Cursor;

    use super::super::GgufWriter;
    use super::*;

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
        let layer = |weights| Layer { weights, per_token: 4 * (2 * 2 + 2), per_sequence: 0 };
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

    #[test]
    fn layers_with_state_need_it_per_sequence() {
        let writer = base()
            .metadata("x.attention.head_count_kv", vec![0_u32, 2])
            .metadata("x.ssm.conv_kernel", 4_u32)
            .metadata("x.ssm.inner_size", 16_u32)
            .metadata("x.ssm.state_size", 5_u32);
        let layers = read(writer.to_bytes()).unwrap();
        assert_eq!(
            layers.blocks[0],
            Layer { weights: 0, per_token: 0, per_sequence: 4 * (3 * 16 + 16 * 5) }
        );
        assert_eq!(layers.blocks[1], Layer { weights: 32, per_token: 12, per_sequence: 0 });
    }

    #[test]
    fn squares_of_heads_are_states() {
        let state = |key: &str, architecture: &str, head: u32| {
            let bytes = GgufWriter::new()
                .metadata("general.architecture", architecture)
                .metadata(format!("{architecture}.embedding_length"), 8_u32)
                .metadata(format!("{architecture}.attention.head_count"), 4_u32)
                .metadata(format!("{architecture}.{key}"), head)
                .to_bytes();
            let size = bytes.len() as u64;
            let header = ModelHeader::read(Cursor::new(bytes), size).unwrap();
            (header.state_elements(8), header.check_size_of_states().err())
        };
        assert_eq!(state("kda.head_dim", "x", 16).0, 4 * 16 * 16);
        assert_eq!(state("attention.key_length", "minimax-01", 16).0, 4 * 16 * 16);
        assert_eq!(state("attention.key_length", "x", 16).0, 0);
        assert!(state("kda.head_dim", "x", 2048).1.is_none());
        let error = state("kda.head_dim", "x", 2050).1.unwrap();
        let message =
            "the state of a layer has 16810000 numbers for each sequence, more than 16777216";
        assert_eq!((error.code(), error.message()), (Code::ModelInvalid, message));
    }

    #[test]
    fn unknown_sizes_give_none() {
        assert_eq!(read(base().tensor_bytes("blk.0.x", &[4], 99, vec![0; 16]).to_bytes()), None);
        assert_eq!(read(GgufWriter::new().metadata("general.architecture", "x").to_bytes()), None);
    }
}
