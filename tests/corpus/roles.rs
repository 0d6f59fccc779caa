//! What a file with a fault is for: a chat or vectors by itself, or a part of a chat with a valid
//! model.

use std::path::{Path, PathBuf};

use llb::gguf::GgufValue;
use serde_json::{Value, json};

use crate::model_file::{ModelFile, TensorSpec};
use crate::mutants::{KINDS, Kind};
use crate::predicting;
use crate::projectors;

/// The rank of the adapters.
const RANK: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Model,
    /// The option `lora`.
    Adapter,
    /// The option `draft_model`.
    Draft,
    /// The option `projector`.
    Projector,
    /// A model with a layer that predicts a further token (`speculative` "mtp").
    Predicting,
}

impl Role {
    /// The valid files of the role. For a model and a draft, they are the models themselves.
    pub fn files(self, models: &[ModelFile]) -> Vec<ModelFile> {
        match self {
            Role::Adapter => models.iter().map(adapter).collect(),
            Role::Model | Role::Draft => models.to_vec(),
            Role::Predicting => predicting::all(models),
            Role::Projector => projectors::all(),
        }
    }

    /// The parts of a file that a fault changes. An adapter and a projector have no vocabulary.
    pub fn kinds(self) -> Vec<Kind> {
        let has_vocabulary = !matches!(self, Role::Adapter | Role::Projector);
        let has_part = |kind: &Kind| has_vocabulary || *kind != Kind::Vocabulary;
        KINDS.into_iter().filter(has_part).collect()
    }

    /// The options of a create that uses the file at `path`. `models` are the valid models, and
    /// `index` is the one that the file is made from or for; a model that the file is for is
    /// written into `folder`.
    pub fn options(self, path: &Path, models: &[ModelFile], index: usize, folder: &Path) -> Value {
        let partner = |model: &ModelFile| -> PathBuf {
            let target = folder.join(format!("{}.gguf", model.name));
            if !target.exists() {
                std::fs::write(&target, model.to_bytes()).unwrap();
            }
            target
        };
        match self {
            Role::Model => json!({ "model": path }),
            Role::Projector => projectors::options(path, index, folder),
            Role::Predicting => json!({ "model": path, "speculative": "mtp" }),
            Role::Adapter => json!({ "model": partner(&models[index]), "lora": [path] }),
            Role::Draft => {
                let llama = models.iter().find(|model| model.name == "llama").unwrap();
                json!({ "model": partner(llama), "draft_model": path })
            }
        }
    }
}

/// An adapter for the matrices of a model. llama.cpp expects the factors for the embeddings of
/// tokens the other way round.
fn adapter(model: &ModelFile) -> ModelFile {
    let mut adapter = ModelFile::new(&model.architecture);
    let keys: [(&str, GgufValue); 3] = [
        ("general.type", "adapter".into()),
        ("adapter.type", "lora".into()),
        ("adapter.lora.alpha", 2.0_f32.into()),
    ];
    adapter.keys = keys.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let is_matrix = |tensor: &&TensorSpec| {
        (2..=3).contains(&tensor.shape.len()) && tensor.tensor_type.0 == 0 && !is_table(tensor)
    };
    for tensor in model.tensors.iter().filter(is_matrix) {
        let (input, output) = (tensor.shape[0], tensor.shape[1]);
        let factors = match tensor.name.as_str() {
            "token_embd.weight" => [("lora_a", [RANK, output]), ("lora_b", [RANK, input])],
            _ => [("lora_a", [input, RANK]), ("lora_b", [RANK, output])],
        };
        for (factor, extents) in factors {
            let shape = [&extents, &tensor.shape[2..]].concat();
            adapter.tensors.push(TensorSpec::new(&format!("{}.{factor}", tensor.name), shape));
        }
    }
    adapter
}

fn is_table(tensor: &TensorSpec) -> bool {
    ["per_layer_token_embd", "position_embd"].iter().any(|name| tensor.name.contains(name))
}
