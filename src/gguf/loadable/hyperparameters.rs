//! Checks numbers in the metadata that llama.cpp's operations assert on. These keys exist for any
//! architecture.
//!
//! Source: the assertions of `ggml_compute_forward_rms_norm`, `ggml_compute_forward_rope_flt` and
//! `ggml_mul_mat`, and `llama_model_base::load_hparams`. Values of a type that llama.cpp does not
//! read are not checked, because llama.cpp refuses them itself.

use super::{Facts, refused};
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

/// `LLAMA_MAX_LAYERS`.
const MOST_LAYERS: u32 = 512;

/// Architectures without rotation (`LLAMA_ROPE_TYPE_NONE`). Their keys about rotation are not used.
const WITHOUT_ROTATION: [&str; 20] = [
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

/// The most that a count may be. The graphs of RWKV use one or two states of shifted tokens in a
/// layer. Sinkhorn iterations are a loop in one operation, which nothing can interrupt; the paper of
/// the method has 20 (arXiv:2512.24880).
const LIMITS: [(&str, u32); 2] =
    [("token_shift_count", 2), ("hyper_connection.sinkhorn_iterations", 1000)];

pub(super) fn check(facts: &Facts<'_>) -> Result<()> {
    epsilons(facts)?;
    heads(facts)?;
    lengths(facts)?;
    limits(facts)?;
    let rotates = !WITHOUT_ROTATION.contains(&facts.architecture)
        && !matches!(facts.architecture, "kimi-linear" | "kimi-k3");
    if rotates { rotations(facts) } else { Ok(()) }
}

impl Facts<'_> {
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn value(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(&self.key(key))
    }

    /// Reads a 32-bit number, the only type that llama.cpp accepts for lengths and counts.
    pub(super) fn count(&self, key: &str) -> Option<u32> {
        match self.value(key) {
            Some(GgufValue::U32(count)) => Some(*count),
            _ => None,
        }
    }

    /// The length of a head.
    pub(super) fn head_length(&self) -> Option<u32> {
        self.count("attention.key_length").or_else(|| {
            let heads = self.count("attention.head_count").filter(|heads| *heads > 0)?;
            Some(self.count("embedding_length")? / heads)
        })
    }

    fn float(&self, key: &str) -> Option<f32> {
        match self.value(key) {
            Some(GgufValue::F32(value)) => Some(*value),
            _ => None,
        }
    }

    /// Reads a count for all layers, or one for each layer.
    fn counts(&self, key: &str) -> Vec<u64> {
        match self.value(key) {
            Some(GgufValue::Array(_, items)) => {
                items.iter().map(|item| element(item).unwrap_or(0)).collect()
            }
            Some(scalar) => scalar.as_u64().into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Reads a list of numbers or marks, one for each layer but those that predict further tokens,
    /// or one value for all. Elements that are missing are 0.
    pub(super) fn of_layers(&self, key: &str) -> Vec<u64> {
        let value = self.value(key);
        let of_layer = |layer: u32| match value {
            Some(GgufValue::Array(_, items)) => items.get(layer as usize).and_then(element),
            scalar => scalar.and_then(element),
        };
        let count = |key: &str| self.count(key).unwrap_or(0);
        let layers = count("block_count").saturating_sub(count("nextn_predict_layers"));
        (0..layers.min(MOST_LAYERS)).map(|layer| of_layer(layer).unwrap_or(0)).collect()
    }
}

/// An element of a list as llama.cpp reads it: a mark is 0 or 1, a signed number an unsigned one.
fn element(item: &GgufValue) -> Option<u64> {
    match item {
        GgufValue::Bool(mark) => Some((*mark).into()),
        GgufValue::I32(number) => Some(number.cast_unsigned().into()),
        _ => item.as_u64(),
    }
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
    let (heads, shared) =
        (facts.counts("attention.head_count"), facts.counts("attention.head_count_kv"));
    if heads.iter().all(|n| *n == 0) && facts.tensors.iter().any(is_of_attention) {
        return Err(refused(format!(
            "{} is missing or 0, but there are layers with attention",
            facts.key("attention.head_count")
        )));
    }
    let none = !shared.is_empty() && shared.iter().all(|n| *n == 0);
    if none && facts.tensors.iter().any(is_of_attention) {
        return Err(refused(format!(
            "{} is 0, but there are layers with attention",
            facts.key("attention.head_count_kv")
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
                facts.key("attention.head_count_kv"),
                facts.key("attention.head_count")
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
        name.starts_with("blk.") && name.contains(".attn_") && name.ends_with(".weight")
    };
    let attention =
        facts.tensors.iter().filter(|it| is_of_attention(it)).map(TensorInfo::rows).max();
    // A vector has one row. Layers without attention may have `attn_norm.weight`.
    if let Some(rows) = attention.filter(|rows| *rows > 1) {
        for key in ["key_length", "value_length", "key_length_swa", "value_length_swa"] {
            length(facts, &format!("attention.{key}"), rows, "widest matrix of attention")?;
        }
    }
    let rows = facts.tensors.iter().map(TensorInfo::rows).max().unwrap_or(u64::MAX);
    length(facts, "embedding_length_out", rows, "widest matrix")?;
    // The convolution of a layer with a state has a row for each element of its inner vector.
    length(facts, "ssm.inner_size", rows, "widest matrix")?;
    deepstack_layers(facts)
}

fn limits(facts: &Facts<'_>) -> Result<()> {
    for (key, most) in LIMITS {
        if let Some(count) = facts.count(key).filter(|count| *count > most) {
            let key = facts.key(key);
            return Err(refused(format!("{key} is {count}, but must be at most {most}")));
        }
    }
    Ok(())
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

fn length(facts: &Facts<'_>, key: &str, rows: u64, matrix: &str) -> Result<()> {
    match facts.count(key).filter(|length| u64::from(*length) > rows) {
        None => Ok(()),
        Some(length) => Err(refused(format!(
            "{} is {length}, but the {matrix} has {rows} rows",
            facts.key(key)
        ))),
    }
}

fn rotations(facts: &Facts<'_>) -> Result<()> {
    let head = facts.head_length();
    let head_of_window = facts.count("attention.key_length_swa").or(head);
    let dimensions = [("rope.dimension_count", head), ("rope.dimension_count_swa", head_of_window)];
    for (key, head) in dimensions {
        let Some(n) = facts.count(key) else { continue };
        let rule = match head {
            _ if n == 0 || n % 2 != 0 => "even and above 0".to_owned(),
            Some(head) if n > head => format!("at most the length of a head, {head}"),
            _ => continue,
        };
        return Err(refused(format!("{} is {n}, but must be {rule}", facts.key(key))));
    }
    for key in ["rope.freq_base", "rope.freq_base_swa"] {
        if let Some(base) = facts.float(key).filter(|it| !(it.is_finite() && *it > 0.0)) {
            let key = facts.key(key);
            return Err(refused(format!("{key} is {base}, but must be above 0 and finite")));
        }
    }
    sections(facts, head)
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
