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

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    window(facts)?;
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
