//! The facts about a file that the checks read, with the types that llama.cpp accepts.

use crate::error::{Code, Error};
use crate::gguf::metadata::Metadata;
use crate::gguf::tensors::TensorInfo;
use crate::gguf::value::GgufValue;

/// `LLAMA_MAX_LAYERS`.
pub(super) const MAX_LAYERS: u32 = 512;

/// The facts about a file that the checks read.
pub(super) struct Facts<'a> {
    pub(super) architecture: &'a str,
    pub(super) metadata: &'a Metadata,
    pub(super) tensors: &'a [TensorInfo],
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
            // With a list, that of the first layer decides.
            let heads = *self.counts("attention.head_count").first()?;
            u64::from(self.count("embedding_length")?).checked_div(heads)?.try_into().ok()
        })
    }

    pub(super) fn float(&self, key: &str) -> Option<f32> {
        match self.value(key) {
            Some(GgufValue::F32(value)) => Some(*value),
            _ => None,
        }
    }

    /// Reads a count for all layers, or one for each layer.
    pub(super) fn counts(&self, key: &str) -> Vec<u64> {
        match self.value(key) {
            Some(GgufValue::Array(_, items)) => {
                items.iter().map(|item| item.as_element().unwrap_or(0)).collect()
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
            Some(GgufValue::Array(_, items)) => {
                items.get(layer as usize).and_then(GgufValue::as_element)
            }
            scalar => scalar.and_then(GgufValue::as_element),
        };
        let count = |key: &str| self.count(key).unwrap_or(0);
        let layers = count("block_count").saturating_sub(count("nextn_predict_layers"));
        (0..layers.min(MAX_LAYERS)).map(|layer| of_layer(layer).unwrap_or(0)).collect()
    }

    /// Reads a 32-bit number, or a list with one for each layer.
    pub(super) fn numbers(&self, key: &str) -> Vec<u64> {
        match self.value(key) {
            Some(GgufValue::Array(..)) => self.counts(key),
            _ => self.count(key).into_iter().map(u64::from).collect(),
        }
    }
}

/// The error for a rule that the file breaks.
pub(super) fn refused(message: String) -> Error {
    Error::new(Code::ModelInvalid, message)
}
