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
    layers(facts)
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
