//! The option `lora`: adapters that change a model's weights.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// The maximum number of adapters of one model.
const MAX_ADAPTERS: usize = 16;

/// One adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// Path of its GGUF file.
    pub path: String,
    /// The factor of its weights; 0 changes nothing.
    pub scale: f32,
}

impl Lora {
    /// Reads an array of paths and `{"path", "scale"}` objects.
    pub(crate) fn read_all(fields: &mut Fields) -> Result<Vec<Lora>> {
        let items = fields.array("lora")?.map(Vec::as_slice).unwrap_or_default();
        if items.len() > MAX_ADAPTERS {
            return Err(fields
                .invalid("lora", format!("at most {MAX_ADAPTERS} adapters, got {}", items.len())));
        }
        let read = |(index, item): (usize, &Value)| {
            let at = format!("lora[{index}]");
            match item {
                Value::String(path) => Ok(Lora { path: path.clone(), scale: 1.0 }),
                Value::Object(_) => {
                    let mut inner = Fields::new(at, item)?;
                    let path = inner
                        .string("path")?
                        .ok_or_else(|| inner.invalid("path", "missing"))?
                        .to_owned();
                    let scale = inner.number("scale", -100.0..=100.0)?.unwrap_or(1.0) as f32;
                    inner.refuse_ignored("unknown option")?;
                    Ok(Lora { path, scale })
                }
                other => Err(fields.invalid(&at, expected("an object or a path", other))),
            }
        };
        items.iter().enumerate().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn adapters_are_read() {
        let read = |value: Value| {
            let options = json!({ "lora": value });
            let read = Lora::read_all(&mut Fields::new("", &options).expect("an object"));
            read.map_err(|error| error.message().to_owned())
        };
        let lora = |path: &str, scale| Lora { path: path.to_owned(), scale };
        assert_eq!(read(Value::Null), Ok(Vec::new()));
        let both = json!(["a.gguf", { "path": "b.gguf" }, { "path": "c.gguf", "scale": -0.5 }]);
        assert_eq!(
            read(both),
            Ok(vec![lora("a.gguf", 1.0), lora("b.gguf", 1.0), lora("c.gguf", -0.5)])
        );
        let refused =
            |value: Value, message: &str| assert_eq!(read(value), Err(message.to_owned()));
        refused(json!([{}]), "lora[0].path: missing");
        refused(
            json!(["a", { "path": "b", "scale": 1e9 }]),
            "lora[1].scale: must be from -100 to 100, got 1000000000",
        );
        refused(json!([1]), "lora[0]: expected an object or a path, got 1");
        refused(json!([{ "path": "a", "weight": 1 }]), "lora[0].weight: unknown option");
        refused(json!("a"), "lora: expected an array, got \"a\"");
        refused(json!(vec!["a"; 17]), "lora: at most 16 adapters, got 17");
    }
}
