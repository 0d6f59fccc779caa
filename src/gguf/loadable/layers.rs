//! Checks tensors and keys of layers, their experts and their indexers, which llama.cpp loads as
//! optional, or without a check, and then uses.
//!
//! The rules about tensors were found by leaving out each tensor and key of every architecture
//! (`tests/corpus`).

use std::collections::{BTreeMap, HashSet};

use super::facts::{Facts, refused};
use crate::error::Result;
use crate::gguf::value::{GgufValue, ValueType};

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

/// Tensors that every layer uses, with the architectures that load them as optional. Only the first
/// layer must have them.
const OF_FIRST_LAYERS: [(&str, &[&str]); 2] = [
    ("enc.blk.0.attn_rel_b.weight", &["t5", "t5encoder"]),
    ("dec.blk.0.attn_rel_b.weight", &["t5"]),
];

/// Architectures that take a file for nothing but layers that predict further tokens, if it lacks the
/// first norm: then all other tensors are optional (`mtp_only` in `load_arch_tensors`).
const WITH_PREDICTING_LAYERS: [&str; 18] = [
    "bailingmoe3",
    "clef",
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "deepseek4",
    "glm-dsa",
    "glm4moe",
    "hy_v3",
    "mimo2",
    "mistral4",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen4exp",
    "step35",
];
const FIRST_NORMS: [&str; 2] = ["blk.0.attn_norm.weight", "blk.0.hc_attn_norm.weight"];

/// Architectures whose layers have the matrices of keys and values together or apart. Which ones they
/// have must match whether the KV cache holds latent vectors, which two lengths decide.
const LATENT: [&str; 2] = ["kimi-linear", "kimi-k3"];
const LATENT_LENGTHS: [&str; 2] = ["attention.key_length_mla", "attention.value_length_mla"];

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    window(facts)?;
    first_layers(facts)?;
    latent_vectors(facts)?;
    layers(facts)?;
    groups_of_experts(facts)?;
    used_experts(facts)?;
    indexers(facts)
}

fn layers(facts: &Facts<'_>) -> Result<()> {
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

fn first_layers(facts: &Facts<'_>) -> Result<()> {
    let has = |name: &str| facts.tensors.iter().any(|tensor| tensor.name == name);
    for (name, architectures) in OF_FIRST_LAYERS {
        if architectures.contains(&facts.architecture) && !has(name) {
            return Err(refused(format!("tensor {name:?} is missing")));
        }
    }
    let predicts = facts.count("nextn_predict_layers").is_some_and(|count| count > 0);
    if predicts
        && WITH_PREDICTING_LAYERS.contains(&facts.architecture)
        && !FIRST_NORMS.iter().any(|name| has(name))
    {
        return Err(refused(format!(
            "tensor {:?} is missing, and layers that predict further tokens are no model",
            FIRST_NORMS[0]
        )));
    }
    Ok(())
}

fn latent_vectors(facts: &Facts<'_>) -> Result<()> {
    if !LATENT.contains(&facts.architecture) {
        return Ok(());
    }
    let is_latent =
        LATENT_LENGTHS.iter().all(|key| facts.count(key).is_some_and(|length| length > 0));
    let wrong = if is_latent { ".attn_kv_b.weight" } else { ".attn_k_b.weight" };
    match facts.tensors.iter().find(|tensor| tensor.name.ends_with(wrong)) {
        None => Ok(()),
        Some(tensor) => Err(refused(format!(
            "tensor {:?} must not be there if {} and {} are {}",
            tensor.name,
            facts.key(LATENT_LENGTHS[0]),
            facts.key(LATENT_LENGTHS[1]),
            if is_latent { "above 0" } else { "0 or missing" }
        ))),
    }
}

const USED: &str = "expert_used_count";
const COUNT: &str = "expert_count";
const PER_GROUP: &str = "experts_per_group";

/// Checks that groups of experts are whole. llama.cpp divides the number of an expert by the size of a
/// group, and takes the result as the number of another expert without a check.
fn groups_of_experts(facts: &Facts<'_>) -> Result<()> {
    let (Some(count), Some(of_group)) = (facts.count(COUNT), facts.count(PER_GROUP)) else {
        return Ok(());
    };
    if of_group > 0 && count.is_multiple_of(of_group) {
        return Ok(());
    }
    Err(refused(format!(
        "{} is {of_group}, but must divide {}, {count}",
        facts.key(PER_GROUP),
        facts.key(COUNT)
    )))
}

/// Checks that each layer with experts uses at least one of them. llama.cpp checks only the largest
/// number of all layers (`n_expert_used_max`). The sum of a layer begins with the output of its first
/// expert (`build_moe_ffn` in llama-graph.cpp), which is a null pointer if the layer uses none.
fn used_experts(facts: &Facts<'_>) -> Result<()> {
    // llama.cpp itself refuses one number for all layers if it is 0, and other lists.
    let Some(GgufValue::Array(ValueType::U32 | ValueType::I32 | ValueType::Bool, items)) =
        facts.value(USED)
    else {
        return Ok(());
    };
    // deepseek4 runs layers that predict further tokens as others, if they lack a tensor.
    for (layer, used) in items.iter().map(|item| item.as_element().unwrap_or(0)).enumerate() {
        let of_layer = format!("blk.{layer}.");
        let is_of_experts = |name: &str| {
            name.strip_prefix(&of_layer).is_some_and(|rest| rest.ends_with("_exps.weight"))
        };
        if used == 0 && facts.tensors.iter().any(|tensor| is_of_experts(&tensor.name)) {
            return Err(refused(format!(
                "{} is 0 for layer {layer}, but the layer has experts",
                facts.key(USED)
            )));
        }
    }
    Ok(())
}

/// How llama.cpp distributes the layers over the caches of attention.
#[derive(PartialEq)]
enum Caches {
    /// One cache has all layers.
    One,
    /// One cache has the layers with a window, the other one the rest, by
    /// `attention.sliding_window_pattern`.
    ByPattern,
    /// All layers are in the cache of windows, and the other one has none.
    AllWindowed,
}

/// An architecture with rotated keys of indexers.
struct Indexers {
    architecture: &'static str,
    /// The key with one number for each layer. Where it is optional, every layer has an indexer
    /// without it.
    of_layers: &'static str,
    /// The number of a layer with an indexer. `None` if every number but 0 means one.
    number: Option<u64>,
    caches: Caches,
}

const INDEXERS: [Indexers; 3] = [
    Indexers {
        architecture: "deepseek4",
        of_layers: "attention.compress_ratios",
        number: Some(4),
        caches: Caches::AllWindowed,
    },
    Indexers {
        architecture: "dots3note",
        of_layers: "attention.indexer.types",
        number: None,
        caches: Caches::ByPattern,
    },
    Indexers {
        architecture: "glm-dsa",
        of_layers: "attention.indexer.types",
        number: None,
        caches: Caches::One,
    },
];

const INDEXER_LENGTH: &str = "attention.indexer.key_length";
const PATTERN: &str = "attention.sliding_window_pattern";

/// Checks that no KV cache for the keys of indexers is without layers.
///
/// llama.cpp rotates the keys in the cache of indexers and in each cache of attention whose heads
/// have the same length (llama-kv-cache.cpp). It searches for the length of the rotation (`n_rot_k`)
/// by the length of the heads in the cache, which is 0 without layers: the search ends with a
/// division by zero, or never, on AArch64.
fn indexers(facts: &Facts<'_>) -> Result<()> {
    let Some(indexers) = INDEXERS.iter().find(|known| known.architecture == facts.architecture)
    else {
        return Ok(());
    };
    let is_indexed =
        |number: &u64| indexers.number.map_or(*number != 0, |indexed| *number == indexed);
    let key = indexers.of_layers;
    if facts.value(key).is_some() && !facts.of_layers(key).iter().any(is_indexed) {
        return Err(refused(format!("{} has no layer with an indexer", facts.key(key))));
    }
    let one_is_empty = match indexers.caches {
        Caches::One => false,
        Caches::AllWindowed => true,
        Caches::ByPattern => {
            let pattern = facts.of_layers(PATTERN);
            !pattern.contains(&0) || pattern.iter().all(|window| *window == 0)
        }
    };
    match facts.count(INDEXER_LENGTH).filter(|length| facts.head_length() == Some(*length)) {
        Some(length) if one_is_empty => Err(refused(format!(
            "{} is {length}, but must differ from the length of a head, because no layer or every \
             layer has a window",
            facts.key(INDEXER_LENGTH)
        ))),
        _ => Ok(()),
    }
}
