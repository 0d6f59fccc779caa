//! Models with a layer that predicts a further token, for each architecture whose layers llb uses.

use llb::gguf::GgufValue;

use super::model_file::{ModelFile, TensorSpec};

/// The architectures of `ModelHeader::predicting_blocks`.
pub const ARCHITECTURES: [&str; 6] =
    ["cohere2moe", "deepseek2", "glm4moe", "hy_v3", "mimo2", "step35"];

/// The models among these, each with a third layer that predicts.
pub fn all(models: &[ModelFile]) -> Vec<ModelFile> {
    let named = |model: &&ModelFile| ARCHITECTURES.contains(&model.name.as_str());
    models.iter().filter(named).map(predicting).collect()
}

/// The third layer is a copy of the second one, with a projection of a token's embedding and a hidden
/// state.
fn predicting(model: &ModelFile) -> ModelFile {
    let mut model = model.clone();
    let of = |key: &str| format!("{}.{key}", model.architecture);
    let (blocks, embedding) = (of("block_count"), of("embedding_length"));
    let predicted = of("nextn_predict_layers");
    let mut n_embd = 0;
    for (key, value) in &mut model.keys {
        match value {
            value if *key == blocks => *value = 3_u32.into(),
            GgufValue::U32(length) if *key == embedding => n_embd = u64::from(*length),
            // A number for each layer.
            GgufValue::Array(_, items) if items.len() == 2 => items.extend(items.last().cloned()),
            _ => {}
        }
    }
    model.keys.push((predicted, 1_u32.into()));
    let copied = |tensor: &TensorSpec| {
        let rest = tensor.name.strip_prefix("blk.1.")?;
        // A file with scales in such a layer cannot be loaded without that layer (docs/upstream.md).
        (!rest.ends_with("scale")).then_some(())?;
        Some(TensorSpec { name: format!("blk.2.{rest}"), ..tensor.clone() })
    };
    let mut layer: Vec<TensorSpec> = model.tensors.iter().filter_map(copied).collect();
    if model.architecture == "mimo2" {
        // Its graph wants queries, keys and values in one matrix.
        let is_apart = |name: &str| ["attn_q.", "attn_k.", "attn_v."].map(|it| name.contains(it));
        layer.retain(|tensor| !is_apart(&tensor.name).contains(&true));
        layer.push(TensorSpec::new("blk.2.attn_qkv.weight", vec![n_embd, 3 * n_embd]));
    }
    let further = [
        ("eh_proj", vec![2 * n_embd, n_embd]),
        ("enorm", vec![n_embd]),
        ("hnorm", vec![n_embd]),
        ("shared_head_norm", vec![n_embd]),
    ];
    layer.extend(
        further.map(|(name, shape)| TensorSpec::new(&format!("blk.2.nextn.{name}.weight"), shape)),
    );
    model.tensors.extend(layer);
    model
}
