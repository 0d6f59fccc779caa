//! Creates a tiny model for each architecture, which llama.cpp can load and run.

use llb::gguf::{GgufValue, ValueType};

use super::model_file::{I32, ModelFile, TensorSpec};

/// Made by scripts/architectures.py from the sources of llama.cpp. For each architecture it lists
/// keys with types and values, further keys that llama.cpp reads, and the tensors for the first ones.
const TABLE: &str = include_str!("../data/architectures.txt");

/// A model of each architecture, and its variants, in alphabetical order, without a vocabulary.
pub fn all() -> Vec<ModelFile> {
    let mut models: Vec<ModelFile> = Vec::new();
    let mut of_every: Vec<String> = Vec::new();
    for line in TABLE.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} is too short"));
        match (word(), word()) {
            ("architecture", name) => models.push(ModelFile::new(name)),
            ("variant", architecture) => {
                let mut model = ModelFile::new(architecture);
                model.name = format!("{architecture} {}", word());
                models.push(model);
            }
            ("key", key) => {
                let value = value(word(), word());
                let model = models.last_mut().unwrap();
                if key.ends_with(".vocab_size")
                    && let GgufValue::U32(count) = value
                {
                    model.n_tokens = count as usize;
                }
                model.keys.push((key.to_owned(), value));
            }
            ("every", key) => of_every.push(key.to_owned()),
            ("optional", key) => models.last_mut().unwrap().optional_keys.push(key.to_owned()),
            ("tensor", name) => {
                let shape = word().split(',').map(|extent| extent.parse().unwrap()).collect();
                let mut tensor = TensorSpec::new(name, shape);
                if words.next() == Some("i32") {
                    tensor.tensor_type = I32;
                }
                models.last_mut().unwrap().tensors.push(tensor);
            }
            other => panic!("unknown line {other:?}"),
        }
    }
    for model in &mut models {
        let keys = of_every.iter().map(|key| format!("{}.{key}", model.architecture));
        let is_absent = |key: &String| model.keys.iter().all(|(name, _)| name != key);
        model.optional_keys.extend(keys.filter(is_absent));
    }
    models
}

fn value(kind: &str, text: &str) -> GgufValue {
    match kind {
        "u32" => text.parse::<u32>().unwrap().into(),
        "i32" => text.parse::<i32>().unwrap().into(),
        "u64" => text.parse::<u64>().unwrap().into(),
        "f32" => text.parse::<f32>().unwrap().into(),
        "bool" => (text == "1").into(),
        "str" => text.into(),
        _ => {
            let element = kind.strip_suffix("[]").unwrap();
            let items: Vec<GgufValue> = text.split(',').map(|item| value(element, item)).collect();
            let value_type = items.first().map_or(ValueType::U32, GgufValue::value_type);
            GgufValue::Array(value_type, items)
        }
    }
}
