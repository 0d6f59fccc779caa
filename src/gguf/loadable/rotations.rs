//! Checks the lengths that rotate (RoPE), their bases and their sections.
//!
//! Source: `ggml_compute_forward_rope_flt`, which never ends if nothing rotates and writes beyond the
//! row of a head with an odd length, its assertions, and `llama_model_base::load_hparams`. A context
//! shift rotates the keys of all layers, even those that do not rotate in the graph.

use super::facts::{Facts, refused};
use crate::error::Result;
use crate::gguf::tensors::TensorInfo;
use crate::gguf::value::GgufValue;

/// Architectures without rotation (`LLAMA_ROPE_TYPE_NONE`). Their keys about rotation are not used.
const WITHOUT_ROTATION: [&str; 22] = [
    "gpt2",
    "gptj",
    "mpt",
    "refact",
    "bloom",
    "mamba",
    "mamba2",
    "jamba",
    "jina-bert-v2",
    "t5",
    "t5encoder",
    "jais",
    "rwkv6",
    "rwkv6qwen2",
    "rwkv7",
    "arwkv7",
    "wavtokenizer-dec",
    "nemotron_h",
    "nemotron_h_moe",
    "glm5-next",
    "kimi-linear",
    "kimi-k3",
];

/// Architectures that always rotate by sections (`LLAMA_ROPE_TYPE_MROPE`, `IMROPE`).
const WITH_SECTIONS: [&str; 9] = [
    "qwen2vl",
    "paddleocr",
    "qwen3vl",
    "qwen3vlmoe",
    "qwen35",
    "qwen35moe",
    "clef",
    "qwen4exp",
    "qwen3tts",
];

/// The endings of the names of tensors with a factor for each pair that rotates.
const FACTORS: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
/// The lengths of heads with parts that rotate, which must be even.
const LENGTHS: [&str; 3] =
    ["attention.key_length", "attention.key_length_swa", "attention.indexer.key_length"];

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    if WITHOUT_ROTATION.contains(&facts.architecture) {
        return Ok(());
    }
    let head = facts.head_length();
    lengths(facts, head)?;
    dimensions(facts, head)?;
    for key in ["rope.freq_base", "rope.freq_base_swa"] {
        if let Some(base) = facts.float(key).filter(|it| !(it.is_finite() && *it > 0.0)) {
            let key = facts.key(key);
            return Err(refused(format!("{key} is {base}, but must be above 0 and finite")));
        }
    }
    factors(facts, head)?;
    sections(facts, head)
}

fn lengths(facts: &Facts<'_>, head: Option<u32>) -> Result<()> {
    const HEADS: &str = "attention.head_count";
    const RULE: &str = "even and above 0";
    let heads = facts.counts(HEADS);
    // The first layer decides for all, even if the lengths of layers with windows are given.
    if heads.first() == Some(&0) && heads.iter().any(|n| *n > 0) {
        let problem = "0 for the first layer, but its heads decide how long the others are";
        return Err(refused(format!("{} is {problem}", facts.key(HEADS))));
    }
    for key in LENGTHS {
        if let Some(length) = facts.count(key).filter(|length| !is_even(*length)) {
            return Err(refused(format!("{} is {length}, but must be {RULE}", facts.key(key))));
        }
    }
    match head.filter(|head| !is_even(*head)) {
        None => Ok(()),
        Some(head) => Err(refused(format!(
            "the length of a head is {head}, {} divided by {}, but must be {RULE}",
            facts.key("embedding_length"),
            facts.key(HEADS)
        ))),
    }
}

fn dimensions(facts: &Facts<'_>, head: Option<u32>) -> Result<()> {
    let head_of_window = facts.count("attention.key_length_swa").or(head);
    for (key, head) in
        [("rope.dimension_count", head), ("rope.dimension_count_swa", head_of_window)]
    {
        let Some(n) = facts.count(key) else { continue };
        let rule = match head {
            _ if !is_even(n) => "even and above 0".to_owned(),
            Some(head) if n > head => format!("at most the length of a head, {head}"),
            _ => continue,
        };
        return Err(refused(format!("{} is {n}, but must be {rule}", facts.key(key))));
    }
    Ok(())
}

/// Checks that factors are not at the end of a file. llama.cpp reads one for each pair of a head, even
/// if fewer rotate and the tensor has fewer (`ggml_rope_cache_init`).
fn factors(facts: &Facts<'_>, head: Option<u32>) -> Result<()> {
    let longest = facts.count("attention.key_length_swa").max(head).unwrap_or(0);
    let needed = u64::from(longest / 2) * 4;
    let is_of_factors = |tensor: &&TensorInfo| FACTORS.iter().any(|end| tensor.name.ends_with(end));
    match facts.tensors.iter().filter(is_of_factors).find(|it| it.bytes_to_end < needed) {
        None => Ok(()),
        Some(tensor) => Err(refused(format!(
            "tensor {:?} is at the end of the file and has fewer than {} numbers, half the length \
             of a head",
            tensor.name,
            longest / 2
        ))),
    }
}

fn is_even(length: u32) -> bool {
    length > 0 && length.is_multiple_of(2)
}

/// Checks the sections: how many pairs of a head rotate by each of up to four positions.
fn sections(facts: &Facts<'_>, head: Option<u32>) -> Result<()> {
    const KEY: &str = "rope.dimension_sections";
    let sections: Vec<i64> = match facts.value(KEY) {
        Some(GgufValue::Array(_, items)) => items.iter().filter_map(as_i64).collect(),
        Some(scalar) => as_i64(scalar).map(|it| vec![it; 4]).unwrap_or_default(),
        None => Vec::new(),
    };
    let by_sections = WITH_SECTIONS.contains(&facts.architecture);
    let refuse =
        |rule: &str| Err(refused(format!("{} is {sections:?}, but {rule}", facts.key(KEY))));
    if by_sections && sections.iter().take(3).all(|length| *length == 0) {
        return refuse("one of the first three must be above 0");
    }
    if sections.iter().any(|length| *length < 0) {
        return refuse("none may be below 0");
    }
    let total: i64 = sections.iter().fold(0, |sum, length| sum.saturating_add(*length));
    match head {
        Some(head) if total > i64::from(head) => {
            refuse(&format!("their sum must be at most the length of a head, {head}"))
        }
        _ => Ok(()),
    }
}

fn as_i64(value: &GgufValue) -> Option<i64> {
    match *value {
        GgufValue::I32(v) => Some(v.into()),
        GgufValue::I64(v) => Some(v),
        GgufValue::I16(v) => Some(v.into()),
        GgufValue::I8(v) => Some(v.into()),
        // llama.cpp reads the elements of an array as signed numbers.
        GgufValue::U32(v) => Some(v.cast_signed().into()),
        _ => value.as_u64().and_then(|v| v.try_into().ok()),
    }
}
