//! Checks numbers in the metadata that llama.cpp's operations assert on. These keys exist for any
//! architecture.
//!
//! Source: the assertions of `ggml_compute_forward_rms_norm`, `ggml_compute_forward_rope_flt` and
//! `ggml_mul_mat`, and `llama_model_base::load_hparams`. Values of a type that llama.cpp does not
//! read are not checked, because llama.cpp refuses them itself.

use super::facts::{Facts, MAX_LAYERS, refused};
use crate::error::Result;
use crate::gguf::tensors::TensorInfo;
use crate::gguf::value::GgufValue;

/// The keys for the epsilon of a norm.
const EPSILONS: [&str; 4] = [
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.group_norm_epsilon",
    "hyper_connection.epsilon",
];

const HEADS: &str = "attention.head_count";
const KV_HEADS: &str = "attention.head_count_kv";
/// The keys for the length of a head.
const LENGTHS: [&str; 4] = [
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
];

/// The kinds of vocabulary without tokens, for which llama.cpp makes as many as the file says.
const WITHOUT_TOKENS: [&str; 2] = ["none", "no_vocab"];

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    epsilons(facts)?;
    heads(facts)?;
    lengths(facts)
}

fn epsilons(facts: &Facts<'_>) -> Result<()> {
    for key in EPSILONS {
        if let Some(epsilon) = facts.float(key).filter(|it| !(it.is_finite() && *it > 0.0)) {
            let key = facts.key(key);
            return Err(refused(format!("{key} is {epsilon}, but must be above 0 and finite")));
        }
    }
    Ok(())
}

/// Checks that query heads can be divided evenly among key heads.
fn heads(facts: &Facts<'_>) -> Result<()> {
    let (heads, shared) = (facts.counts(HEADS), facts.counts(KV_HEADS));
    if heads.iter().all(|n| *n == 0) && facts.tensors.iter().any(is_of_attention) {
        return Err(refused(format!(
            "{} is missing or 0, but there are layers with attention",
            facts.key(HEADS)
        )));
    }
    let none = !shared.is_empty() && shared.iter().all(|n| *n == 0);
    if none && facts.tensors.iter().any(is_of_attention) {
        return Err(refused(format!(
            "{} is 0, but there are layers with attention",
            facts.key(KV_HEADS)
        )));
    }
    let layers = heads.len().max(shared.len());
    let of = |counts: &[u64], layer: usize| match counts {
        [count] => Some(*count),
        _ => counts.get(layer).copied(),
    };
    for layer in 0..layers {
        let (Some(n), Some(n_kv)) = (of(&heads, layer), of(&shared, layer)) else { continue };
        // A layer without attention has neither query heads nor key heads.
        if n != 0 && n_kv != 0 && !n.is_multiple_of(n_kv) {
            return Err(refused(format!(
                "{} is {n_kv}, but must divide {}, {n}",
                facts.key(KV_HEADS),
                facts.key(HEADS)
            )));
        }
    }
    Ok(())
}

fn is_of_attention(tensor: &TensorInfo) -> bool {
    let of_queries = [".attn_q.weight", ".attn_qkv.weight"];
    tensor.name.starts_with("blk.") && of_queries.iter().any(|end| tensor.name.ends_with(end))
}

/// Checks lengths that decide how much memory the KV cache and the vectors of a context take. Not
/// every architecture has a tensor with a shape of which they are a part.
fn lengths(facts: &Facts<'_>) -> Result<()> {
    let is_of_attention = |tensor: &TensorInfo| {
        let name = &tensor.name;
        let is_of_layer = ["blk.", "enc.blk.", "dec.blk."].iter().any(|it| name.starts_with(it));
        is_of_layer && name.contains(".attn_") && name.ends_with(".weight")
    };
    let attention =
        facts.tensors.iter().filter(|it| is_of_attention(it)).map(TensorInfo::rows).max();
    // A vector has one row. Layers without attention may have `attn_norm.weight`.
    if let Some(rows) = attention.filter(|rows| *rows > 1) {
        for key in LENGTHS {
            length(facts, key, rows, "widest matrix of attention")?;
        }
        widths_of_cache(facts, rows)?;
    }
    let rows = facts.tensors.iter().map(TensorInfo::rows).max().unwrap_or(u64::MAX);
    length(facts, "embedding_length_out", rows, "widest matrix")?;
    // The convolution of a layer with a state has a row for each element of its inner vector.
    length(facts, "ssm.inner_size", rows, "widest matrix")?;
    if facts.metadata.str("tokenizer.ggml.model").is_none_or(|kind| WITHOUT_TOKENS.contains(&kind))
    {
        length(facts, "vocab_size", rows, "widest matrix")?;
    }
    deepstack_layers(facts)?;
    deepstack_mapping(facts)
}

/// Checks that the heads of keys and values of each layer fit into the widest matrix of attention.
/// llama.cpp allocates the KV cache for the number of each layer, but loads the matrices of all
/// layers with the number of the first one, and fails later.
fn widths_of_cache(facts: &Facts<'_>, rows: u64) -> Result<()> {
    let key = if facts.value(KV_HEADS).is_some() { KV_HEADS } else { HEADS };
    // Layers with windows may have another length.
    let given = LENGTHS.iter().filter_map(|key| facts.count(key));
    let longest = given.chain(facts.head_length()).max().unwrap_or(0);
    let width = |heads: &u64| heads.saturating_mul(longest.into());
    match facts.counts(key).into_iter().find(|heads| width(heads) > rows) {
        None => Ok(()),
        Some(heads) => Err(refused(format!(
            "{} is {heads}, but the widest matrix of attention has {rows} rows, too few for heads \
             of length {longest}",
            facts.key(key)
        ))),
    }
}

/// Checks how many layers add a part of an image's vector. Each makes the model's input longer. The
/// graph cannot do it in the last layer, which has only the rows of outputs (qwen3vl.cpp).
fn deepstack_layers(facts: &Facts<'_>) -> Result<()> {
    let (key, layers) = ("n_deepstack_layers", facts.count("block_count").unwrap_or(u32::MAX));
    match facts.count(key).filter(|count| *count > 0 && *count >= layers) {
        None => Ok(()),
        Some(count) => Err(refused(format!(
            "{} is {count}, but must be below {}, {layers}",
            facts.key(key),
            facts.key("block_count")
        ))),
    }
}

/// Checks how many parts of an image's vector the layers add, by the list that says which one each
/// layer adds. Each makes the model's input longer (granite.cpp).
fn deepstack_mapping(facts: &Facts<'_>) -> Result<()> {
    const KEY: &str = "deepstack_mapping";
    let layers = facts.count("block_count").unwrap_or(MAX_LAYERS);
    let is_short = match facts.value(KEY) {
        Some(GgufValue::Array(_, items)) => items.len() as u64 <= u64::from(layers),
        // A list that is too long to be kept has no value.
        value => value.is_some() || !facts.metadata.contains(&facts.key(KEY)),
    };
    if is_short {
        return Ok(());
    }
    Err(refused(format!(
        "{} must have at most {} numbers, as many as {}",
        facts.key(KEY),
        layers,
        facts.key("block_count")
    )))
}

fn length(facts: &Facts<'_>, key: &str, rows: u64, matrix: &str) -> Result<()> {
    match facts.count(key).filter(|length| u64::from(*length) > rows) {
        None => Ok(()),
        Some(length) => Err(refused(format!(
            "{} is {length}, but the {matrix} has {rows} rows",
            facts.key(key)
        ))),
    }
}
