//! Models with a layer that predicts a further token, for each architecture whose layers llb uses.

use llb::gguf::GgufValue;

use super::model_file::{Content, ModelFile, TensorSpec};
use super::numbers::Numbers;

/// The architectures of `ModelHeader::predicting_blocks`.
pub const ARCHITECTURES: [&str; 10] = [
    "bailingmoe3",
    "cohere2moe",
    "deepseek2",
    "glm4moe",
    "hy_v3",
    "mimo2",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "step35",
];

/// The models among these, each with a third layer that predicts.
pub fn all(models: &[ModelFile]) -> Vec<ModelFile> {
    let named = |model: &&ModelFile| ARCHITECTURES.contains(&model.name.as_str());
    models.iter().filter(named).map(predicting).collect()
}

/// How much larger than the output of a layer the embeddings of [`right`] are, so that they decide.
const EMBEDDING: f32 = 4.0;

/// Makes the layer of such a model right most of the time. The model writes "abcdabcd…", because its
/// logits mostly depend on the last token alone: the row of each letter in the output is the embedding
/// of the letter before it. The projection of the layer passes on the embedding of its token. All
/// other weights stay as they are, and sometimes choose another letter.
pub fn right(model: &mut ModelFile) {
    let letters = usize::from(b'a')..usize::from(b'e');
    let mut numbers = Numbers(7);
    let (mut projection, mut embedding, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for tensor in &model.tensors {
        let width = tensor.shape[0] as usize;
        if tensor.name == "token_embd.weight" {
            let number = |_| (numbers.below(2001) as f32 / 1000.0 - 1.0) * EMBEDDING;
            embedding = (0..width * model.n_tokens).map(number).collect();
            output = vec![0.0; embedding.len()];
            for letter in letters.clone() {
                let before = if letter == letters.start { letters.end - 1 } else { letter - 1 };
                let row = embedding[before * width..][..width].iter().map(|x| x * 0.1);
                output.splice(letter * width..(letter + 1) * width, row);
            }
        } else if tensor.name.ends_with("nextn.eh_proj.weight") {
            // The first half of its input is the embedding, the second one the hidden state.
            let element = |at: usize| if at / width == at % width { EMBEDDING } else { 0.0 };
            projection = (0..width * width / 2).map(element).collect();
        }
    }
    for tensor in &mut model.tensors {
        let numbers = match tensor.name.as_str() {
            "token_embd.weight" => &embedding,
            "output.weight" => &output,
            name if name.ends_with("nextn.eh_proj.weight") => &projection,
            _ => continue,
        };
        tensor.content = Content::Numbers(numbers.as_slice().into());
    }
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
    // States decay slowly.
    let decays = model.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("ssm_a"));
    decays.for_each(|tensor| tensor.content = Content::Repeated(-0.02, -0.3));
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
    if model.architecture == "bailingmoe3" {
        layer.push(TensorSpec::new("blk.2.layer_output_norm.weight", vec![n_embd]));
    }
    if model.architecture == "nemotron_h_moe" {
        // The layer also has what is a layer of its own in the rest of the model.
        let experts: [(&str, &[u64]); 7] = [
            ("post_attention_norm.weight", &[n_embd]),
            ("ffn_gate_inp.weight", &[n_embd, 4]),
            ("exp_probs_b.bias", &[4]),
            ("ffn_down_exps.weight", &[32, n_embd, 4]),
            ("ffn_up_exps.weight", &[n_embd, 32, 4]),
            ("ffn_down_shexp.weight", &[32, n_embd]),
            ("ffn_up_shexp.weight", &[n_embd, 32]),
        ];
        let tensor = |(name, shape): (&str, &[u64])| {
            TensorSpec::new(&format!("blk.2.{name}"), shape.to_vec())
        };
        layer.extend(experts.map(tensor));
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
    if model.architecture == "bailingmoe3" {
        layer.retain(|tensor| !tensor.name.ends_with("shared_head_norm.weight"));
    }
    model.tensors.extend(layer);
    model
}
