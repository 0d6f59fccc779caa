//! The adapters of `--lora`, and their scales for requests that set none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{items, join, wrong};

/// The largest scale, and the negative of the smallest one, as in the library.
const MAX_SCALE: f64 = 100.0;

/// The adapters of all chat models.
pub(crate) struct LoraAdapters {
    paths: Vec<Value>,
    scales: Mutex<Vec<Value>>,
}

impl LoraAdapters {
    /// `option` is the library's option `lora`.
    pub(super) fn new(option: &Value) -> LoraAdapters {
        let given = option.as_array().map(Vec::as_slice).unwrap_or_default();
        let path = |adapter: &Value| adapter.get("path").unwrap_or(adapter).clone();
        let scale = |adapter: &Value| adapter.get("scale").cloned().unwrap_or(json!(1.0));
        LoraAdapters {
            paths: given.iter().map(path).collect(),
            scales: Mutex::new(given.iter().map(scale).collect()),
        }
    }

    fn scales(&self) -> MutexGuard<'_, Vec<Value>> {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `/lora-adapters` shows them.
    pub(super) fn list(&self) -> Value {
        let scales = self.scales();
        let all = self.paths.iter().zip(scales.iter()).enumerate();
        all.map(|(id, (path, scale))| json!({ "id": id, "path": path, "scale": scale })).collect()
    }

    /// Sets the scales. Adapters that are not named are off.
    pub(super) fn set(&self, given: &Value) -> Result<(), ApiError> {
        let all = given.as_array().ok_or_else(|| wrong("the body", "an array", given))?;
        let mut scales = vec![json!(0.0); self.paths.len()];
        for (path, adapter) in items("", all) {
            let id = adapter["id"].as_u64().and_then(|id| usize::try_from(id).ok());
            let Some(place) = id.and_then(|id| scales.get_mut(id)) else {
                let count = self.paths.len();
                let message = format!("is none of the {count} adapters of --lora");
                return Err(ApiError::invalid(&join(&path, "id"), message));
            };
            let scale = &adapter["scale"];
            if scale.as_f64().is_none_or(|number| number.abs() > MAX_SCALE) {
                return Err(wrong(&join(&path, "scale"), "a number from -100 to 100", scale));
            }
            *place = scale.clone();
        }
        *self.scales() = scales;
        Ok(())
    }

    /// The member `lora` of a request that has none. `None` without adapters.
    pub(super) fn of_request(&self) -> Option<Value> {
        let scale = |(id, scale): (usize, &Value)| json!({ "id": id, "scale": scale });
        let all: Vec<Value> = self.scales().iter().enumerate().map(scale).collect();
        (!all.is_empty()).then(|| all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_set_by_id() {
        let adapters = LoraAdapters::new(&json!(["a.gguf", { "path": "b.gguf", "scale": 0.5 }]));
        let listed = |scales: [f64; 2]| {
            json!([
                { "id": 0, "path": "a.gguf", "scale": scales[0] },
                { "id": 1, "path": "b.gguf", "scale": scales[1] },
            ])
        };
        assert_eq!(adapters.list(), listed([1.0, 0.5]));
        adapters.set(&json!([{ "id": 1, "scale": -2.0 }])).unwrap();
        assert_eq!(adapters.list(), listed([0.0, -2.0]));
        let expected = json!([{ "id": 0, "scale": 0.0 }, { "id": 1, "scale": -2.0 }]);
        assert_eq!(adapters.of_request(), Some(expected));
        assert_eq!(LoraAdapters::new(&Value::Null).of_request(), None);
        for (given, message) in [
            (json!({}), "the body: expected an array, not an object"),
            (json!([{ "id": 2, "scale": 1 }]), "[0].id: is none of the 2 adapters of --lora"),
            (json!([1]), "[0].id: is none of the 2 adapters of --lora"),
            (json!([{ "id": 0 }]), "[0].scale: expected a number from -100 to 100, not null"),
            (
                json!([{ "id": 0, "scale": 101 }]),
                "[0].scale: expected a number from -100 to 100, not 101",
            ),
        ] {
            assert_eq!(adapters.set(&given).unwrap_err().message, message);
        }
        assert_eq!(adapters.list(), listed([0.0, -2.0]), "what is refused changes nothing");
    }
}
