//! Checks tensors of a layer, and keys, that llama.cpp loads as optional and then uses without a
//! check.
//!
//! The rules were found by leaving out each tensor and key of every architecture (`tests/corpus`).

use std::collections::{BTreeMap, HashSet};

use super::{Facts, refused};
use crate::error::Result;
use crate::gguf::value::GgufValue;

/// A rule for some architectures: a layer with any tensor of `with` must have all tensors of one
/// group in `one_of`.
struct Need {
    architectures: &'static [&'static str],
    with: &'static [&'static str],
    one_of: &'static [&'static [&'static str]],
}

const NEEDS: [Need; 8] = [
    Need {
        architectures: &["falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe"],
        with: &["ssm_conv1d.weight"],
        one_of: &[&["ssm_conv1d.bias"]],
    },
    Need {
        architectures: &["phi3", "pockettts"],
        with: &["attn_output.weight"],
        one_of: &[&["attn_qkv.weight"], &["attn_q.weight", "attn_k.weight", "attn_v.weight"]],
    },
    Need {
        architectures: &["qwen35", "qwen35moe", "clef"],
        with: &["ssm_conv1d.weight"],
        one_of: &[&["attn_qkv.weight", "attn_gate.weight"]],
    },
    Need {
        architectures: &["qwen3next"],
        with: &["ssm_conv1d.weight"],
        one_of: &[&["ssm_in.weight"], &["attn_qkv.weight", "attn_gate.weight"]],
    },
    Need {
        architectures: &["kimi-k3"],
        with: &["ffn_gate_shexp.weight"],
        one_of: &[&["ffn_up_shexp.weight", "ffn_down_shexp.weight"]],
    },
    Need {
        architectures: &["glm-dsa"],
        with: &["indexer.attn_k.weight", "indexer.attn_q_b.weight", "indexer.proj.weight"],
        one_of: &[&["indexer.attn_k.weight", "indexer.attn_q_b.weight", "indexer.proj.weight"]],
    },
    Need {
        architectures: &["rwkv6"],
        with: &["time_mix_lerp_x.weight"],
        one_of: &[
            &["time_mix_lerp_fused.weight"],
            &[
                "time_mix_lerp_w.weight",
                "time_mix_lerp_k.weight",
                "time_mix_lerp_v.weight",
                "time_mix_lerp_r.weight",
                "time_mix_lerp_g.weight",
            ],
        ],
    },
    Need {
        architectures: &["hy_v3"],
        with: &["ffn_gate_inp.weight"],
        one_of: &[
            &["ffn_down_exps.weight", "ffn_gate_up_exps.weight"],
            &["ffn_down_exps.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight"],
        ],
    },
];

/// Architectures that always build their attention with a window, so they need this key.
const WINDOWED: [&str; 1] = ["afmoe"];
const WINDOW: &str = "attention.sliding_window";

/// Architectures in which llama.cpp rotates the keys of indexers (llama-kv-cache.cpp), and the key
/// that says which layers have one.
const WITH_INDEXERS: [(&str, &str); 3] = [
    ("deepseek4", "attention.compress_ratios"),
    ("dots3note", "attention.indexer.types"),
    ("glm-dsa", "attention.indexer.types"),
];
/// `LLAMA_MAX_LAYERS`.
const MOST_LAYERS: u32 = 512;
/// The ratio of layers with an indexer, in `attention.compress_ratios`.
const INDEXED_RATIO: u64 = 4;
const PATTERN: &str = "attention.sliding_window_pattern";

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    window(facts)?;
    indexers(facts)?;
    let needs = NEEDS.iter().filter(|need| need.architectures.contains(&facts.architecture));
    let needs: Vec<&Need> = needs.collect();
    if needs.is_empty() {
        return Ok(());
    }
    let mut layers: BTreeMap<u32, HashSet<&str>> = BTreeMap::new();
    for tensor in facts.tensors {
        let block = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        if let Some((Ok(number), rest)) = block.map(|(number, rest)| (number.parse(), rest)) {
            layers.entry(number).or_default().insert(rest);
        }
    }
    for (number, tensors) in &layers {
        for need in &needs {
            let Some(with) = need.with.iter().find(|name| tensors.contains(**name)) else {
                continue;
            };
            let has = |group: &&[&str]| group.iter().all(|name| tensors.contains(name));
            if !need.one_of.iter().any(has) {
                let groups = need.one_of.iter().map(|group| group.join(" and "));
                return Err(refused(format!(
                    "layer blk.{number} has {with}, so it must have {}",
                    groups.collect::<Vec<_>>().join(", or ")
                )));
            }
        }
    }
    Ok(())
}

fn window(facts: &Facts<'_>) -> Result<()> {
    let absent = facts.value(WINDOW).and_then(GgufValue::as_u64).is_none_or(|window| window == 0);
    if absent && WINDOWED.contains(&facts.architecture) {
        let (key, architecture) = (facts.key(WINDOW), facts.architecture);
        let message = format!("{key} is missing or 0, but {architecture} needs a window");
        return Err(refused(message));
    }
    Ok(())
}

/// Checks that no KV cache whose heads are as long as those of indexers is without layers. For such
/// a cache, llama.cpp looks for a divisor of 0 until it divides by zero, or, on AArch64, for ever.
fn indexers(facts: &Facts<'_>) -> Result<()> {
    let Some((_, key)) = WITH_INDEXERS.iter().find(|(name, _)| *name == facts.architecture) else {
        return Ok(());
    };
    let by_ratio = facts.architecture == "deepseek4";
    let indexed = |value: &u64| if by_ratio { *value == INDEXED_RATIO } else { *value != 0 };
    // Where it is optional, every layer has an indexer without it.
    if facts.value(key).is_some() && !of_layers(facts, key).iter().any(indexed) {
        return Err(refused(format!("{} has no layer with an indexer", facts.key(key))));
    }
    let length = facts.count("attention.indexer.key_length");
    // All layers of deepseek4 have a window.
    let pattern = of_layers(facts, PATTERN);
    let is_mixed = pattern.contains(&0) && pattern.iter().any(|window| *window != 0);
    let is_safe = !by_ratio && (is_mixed || facts.architecture == "glm-dsa");
    match length.filter(|length| !is_safe && facts.head_length() == Some(*length)) {
        None => Ok(()),
        Some(length) => Err(refused(format!(
            "{} is {length}, but must differ from the length of a head, because no layer or every \
             layer has a window",
            facts.key("attention.indexer.key_length")
        ))),
    }
}

/// Reads a list of numbers or marks, one for each layer but those that predict further tokens, or
/// one value for all. Elements that are missing are 0.
fn of_layers(facts: &Facts<'_>, key: &str) -> Vec<u64> {
    let number = |item: &GgufValue| item.as_u64().or(item.as_bool().map(u64::from)).unwrap_or(0);
    let value = facts.value(key);
    let of_layer = |layer: u32| match value {
        Some(GgufValue::Array(_, items)) => items.get(layer as usize).map_or(0, number),
        scalar => scalar.map_or(0, number),
    };
    let count = |key: &str| facts.count(key).unwrap_or(0);
    let layers = count("block_count").saturating_sub(count("nextn_predict_layers"));
    (0..layers.min(MOST_LAYERS)).map(of_layer).collect()
}
