//! Checks single numbers that llama.cpp takes as they are: for products and loop counters that would
//! overflow, and for loops inside one operation, which nothing can interrupt.

use super::facts::{Facts, MAX_LAYERS, refused};
use crate::error::Result;

enum Rule {
    AtMost(u32),
    Between(u32, u32),
    MultipleOf(u32),
    OneOrMultipleOf(u32),
    PowerOfTwo,
}

struct Limit {
    key: &'static str,
    /// Empty if the key exists for any architecture.
    architectures: &'static [&'static str],
    rule: Rule,
}

impl Limit {
    const fn at_most(key: &'static str, most: u32) -> Limit {
        Limit { key, architectures: &[], rule: Rule::AtMost(most) }
    }
}

/// The most for a length of keys or values. With a cache of quantized numbers, llama.cpp makes
/// matrices of rotation for every power of two up to it (llama-kv-cache.cpp). Known models have up to
/// 576.
const MAX_OF_A_HEAD: u32 = 2048;

const LIMITS: [Limit; 32] = [
    // The numbers of `llama_pooling_type`. Others are undefined behaviour.
    Limit::at_most("pooling_type", 4),
    Limit::at_most("attention.key_length", MAX_OF_A_HEAD),
    Limit::at_most("attention.key_length_swa", MAX_OF_A_HEAD),
    Limit::at_most("attention.value_length", MAX_OF_A_HEAD),
    Limit::at_most("attention.value_length_swa", MAX_OF_A_HEAD),
    Limit::at_most("attention.indexer.key_length", MAX_OF_A_HEAD),
    // The numbers of heads decide how much memory the KV cache takes, and the scores of attention
    // without flash attention. llama.cpp reads negative numbers as large ones. Falcon-180B has 232.
    Limit::at_most("attention.head_count", 1024),
    Limit::at_most("attention.head_count_kv", 1024),
    // Each pair of tokens has a score for each head, because these are never computed with flash
    // attention. T5-11B has 128 heads.
    Limit {
        key: "attention.head_count",
        architectures: &["t5", "t5encoder", "grok"],
        rule: Rule::AtMost(256),
    },
    // Each token of a batch has a row of embeddings for each expert that it uses
    // (`build_moe_ffn`). Known models use up to 22.
    Limit::at_most("expert_used_count", 64),
    // Each token of a batch has several vectors of this length. Known models have up to 73,728.
    Limit::at_most("feed_forward_length", 1 << 18),
    // llama.cpp reserves a number for each position of a window (`set_input_kq_mask`).
    Limit::at_most("attention.sliding_window", 1 << 24),
    // The logarithm of 128 divided by half of the buckets for one direction must be above 0
    // (`llama_relative_position_bucket`). The encoder has half of them for each direction.
    Limit {
        key: "attention.relative_buckets_count",
        architectures: &["t5encoder"],
        rule: Rule::Between(4, 508),
    },
    Limit {
        key: "attention.relative_buckets_count",
        architectures: &["t5"],
        rule: Rule::Between(4, 252),
    },
    // With SVE, the operation of Mamba-1 writes a whole vector of up to 16 numbers at once
    // (`ggml_compute_forward_ssm_scan_f32`).
    Limit {
        key: "ssm.state_size",
        architectures: &["mamba", "jamba"],
        rule: Rule::OneOrMultipleOf(16),
    },
    // A token takes one operation over all numbers of a state. Known models have up to 256.
    Limit::at_most("ssm.state_size", 1024),
    // Positions of a convolution. Known models have 3 or 4.
    Limit::at_most("ssm.conv_kernel", 64),
    Limit::at_most("ple.conv_kernel", 64),
    Limit::at_most("shortconv.l_cache", 64),
    // Each token of a batch has so many numbers for the indexer (glm5-next.cpp).
    Limit::at_most("attention.indexer.kpool", 4096),
    // The graphs of RWKV use one or two states of shifted tokens in a layer.
    Limit::at_most("token_shift_count", 2),
    // A loop inside one operation. The paper of the method has 20 iterations (arXiv:2512.24880).
    Limit::at_most("hyper_connection.sinkhorn_iterations", 1000),
    // The loop over the groups never ends if its counter overflows
    // (`ggml_compute_forward_group_norm_f32`).
    Limit::at_most("attention.group_norm_groups", 65_536),
    // The number of layers is a product of these in 32 bits (hrm-text.cpp).
    Limit::at_most("hrm.layers_per_stack", MAX_LAYERS),
    Limit::at_most("hrm.h_cycles", MAX_LAYERS),
    Limit::at_most("hrm.l_cycles", MAX_LAYERS),
    // `LLAMA_MAX_PLE_HEADS`, which llama.cpp compares with a product in 32 bits (qwen4exp.cpp).
    Limit::at_most("ple.heads_per_ngram", 64),
    // llama.cpp reads these as signed numbers while it loads, and as unsigned ones in the graph.
    Limit::at_most("leading_dense_block_count", i32::MAX as u32),
    Limit::at_most("decoder_block_count", MAX_LAYERS),
    // Positions are padded to a multiple by `GGML_PAD`, which needs a power of two
    // (minimax-m3.cpp).
    Limit { key: "attention.indexer.block_size", architectures: &[], rule: Rule::PowerOfTwo },
    // Each token of a batch has a number for each padded position.
    Limit::at_most("attention.indexer.block_size", 4096),
    // The operation reads and writes 64 numbers at once with AVX-512, fewer with other processors
    // (`ggml_compute_forward_rwkv_wkv7_f32`).
    Limit { key: "wkv.head_size", architectures: &["rwkv7", "arwkv7"], rule: Rule::MultipleOf(64) },
];

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    for limit in &LIMITS {
        let is_known = |known: &[&str]| known.is_empty() || known.contains(&facts.architecture);
        if !is_known(limit.architectures) {
            continue;
        }
        let broken = |number: u64| limit.rule.broken_by(number).map(|rule| (number, rule));
        if let Some((number, rule)) = facts.numbers(limit.key).into_iter().find_map(broken) {
            let key = facts.key(limit.key);
            return Err(refused(format!("{key} is {number}, but must be {rule}")));
        }
    }
    Ok(())
}

impl Rule {
    /// The rule in words, if the number breaks it.
    fn broken_by(&self, number: u64) -> Option<String> {
        match *self {
            Rule::AtMost(most) if number > most.into() => Some(format!("at most {most}")),
            Rule::Between(least, most) if !(least.into()..=most.into()).contains(&number) => {
                Some(format!("from {least} to {most}"))
            }
            Rule::MultipleOf(factor) if !number.is_multiple_of(factor.into()) => {
                Some(format!("a multiple of {factor}"))
            }
            Rule::OneOrMultipleOf(factor)
                if number != 1 && !number.is_multiple_of(factor.into()) =>
            {
                Some(format!("1 or a multiple of {factor}"))
            }
            Rule::PowerOfTwo if !number.is_power_of_two() => Some("a power of two".to_owned()),
            _ => None,
        }
    }
}
