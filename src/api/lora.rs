//! The option `lora` names adapters that change a model's weights. The member `lora` of a request
//! switches them on and off.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::{Value, json};

use super::fields::{Fields, expected};
use crate::error::{Error, Result};

/// The maximum number of adapters of one model.
const MAX_ADAPTERS: usize = 16;
/// The range of an adapter's scale.
const SCALES: RangeInclusive<f64> = -100.0..=100.0;

/// One adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// The path of its GGUF file.
    pub path: String,
    /// The factor of the adapter's change to the weights; 0 turns the adapter off.
    pub scale: f32,
}

impl Lora {
    /// Reads an array of paths and of `{"path", "scale"}` objects.
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
                    let path = inner.required_string("path")?.to_owned();
                    let scale = inner.number("scale", SCALES)?.unwrap_or(1.0) as f32;
                    inner.refuse_ignored("unknown option")?;
                    Ok(Lora { path, scale })
                }
                other => Err(fields.invalid(&at, expected("an object or a path", other))),
            }
        };
        items.iter().enumerate().map(read).collect()
    }
}

/// The member `lora` of a request: the scale of each adapter that it lists. All other adapters are
/// off.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraSwitch(Vec<LoraScale>);

/// The scale of one adapter in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LoraScale {
    /// The index of the adapter in the option `lora`.
    id: usize,
    scale: f32,
}

impl LoraSwitch {
    /// Reads an array of `{"id", "scale"}` objects, the same format as in llama-server.
    pub(crate) fn read(fields: &mut Fields) -> Result<Option<LoraSwitch>> {
        let Some(items) = fields.array("lora")? else { return Ok(None) };
        if items.len() > MAX_ADAPTERS {
            return Err(fields.invalid(
                "lora",
                format!(
                    "at most {MAX_ADAPTERS} adapters, got {}; leave out those with scale 0",
                    items.len()
                ),
            ));
        }
        let mut switch: Vec<LoraScale> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mut inner = Fields::new(format!("lora[{index}]"), item)?;
            let last = i64::try_from(MAX_ADAPTERS - 1).unwrap_or(i64::MAX);
            let id = inner.integer("id", 0..=last)?.ok_or_else(|| {
                inner.invalid("id", "missing; set it to the adapter's place in the option `lora`")
            })? as usize;
            let scale = inner.number("scale", SCALES)?.ok_or_else(|| {
                inner.invalid("scale", "missing; 1 is the adapter as it was made, and 0 is off")
            })? as f32;
            if let Some(first) = switch.iter().position(|other| other.id == id) {
                let problem = format!("lora[{first}] has the adapter {id} too; keep one of them");
                return Err(inner.invalid("id", problem));
            }
            fields.ignore(inner.ignored());
            switch.push(LoraScale { id, scale });
        }
        Ok(Some(LoraSwitch(switch)))
    }

    /// The scales of all adapters of a chat. `INVALID_REQUEST` if an id does not exist in the chat.
    pub fn scales(&self, n_adapters: usize) -> Result<AdapterScales> {
        let mut scales = vec![0.0; n_adapters];
        for (index, LoraScale { id, scale }) in self.0.iter().enumerate() {
            let Some(adapter) = scales.get_mut(*id) else {
                let has = match n_adapters {
                    0 => "none; name adapters in its option `lora`".to_owned(),
                    1 => "one, with the id 0".to_owned(),
                    n => format!("{n}, with ids from 0 to {}", n - 1),
                };
                let problem = format!("there is no adapter {id}; the chat was created with {has}");
                return Err(Error::invalid(format!("lora[{index}].id"), problem));
            };
            *adapter = *scale;
        }
        Ok(AdapterScales(scales.into()))
    }

    /// The format that llama-server accepts.
    pub fn to_json(&self) -> Value {
        let scales = self.0.iter();
        let scales = scales
            .map(|LoraScale { id, scale }| json!({ "id": id, "scale": super::shortest(*scale) }));
        scales.collect()
    }
}

/// The scales of a model's adapters, in the order of the option `lora`; 0 is off. Two computations
/// with equal scales give equal results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdapterScales(pub Arc<[f32]>);

impl AdapterScales {
    /// The scales that apply if a request does not set them.
    pub fn of(adapters: &[Lora]) -> AdapterScales {
        AdapterScales(adapters.iter().map(|adapter| adapter.scale).collect())
    }

    /// The scales as a JSON array of numbers.
    pub fn to_json(&self) -> Value {
        json!(*self.0)
    }

    /// Reads the result of [`AdapterScales::to_json`]. None if it is not valid for this number of
    /// adapters.
    pub fn of_json(scales: &Value, n_adapters: usize) -> Option<AdapterScales> {
        let scales = scales.as_array().map(Vec::as_slice).unwrap_or_default();
        let read = |scale: &Value| scale.as_f64().filter(|scale| SCALES.contains(scale));
        let scales: Option<Vec<f32>> =
            scales.iter().map(|scale| read(scale).map(|scale| scale as f32)).collect();
        scales
            .filter(|scales| scales.len() == n_adapters)
            .map(|scales| AdapterScales(scales.into()))
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
    #[test]
    fn a_request_switches_the_adapters_of_its_chat() {
        let read = |value: Value| {
            let request = json!({ "lora": value });
            let read = LoraSwitch::read(&mut Fields::new("", &request).expect("an object"));
            read.map_err(|error| error.message().to_owned())
        };
        let scales = |value: Value, n_adapters| {
            let switch = read(value)?.expect("a list");
            let scales = switch.scales(n_adapters).map_err(|error| error.message().to_owned())?;
            Ok::<_, String>(scales.0.to_vec())
        };
        assert_eq!(read(Value::Null), Ok(None));
        assert_eq!(scales(json!([]), 2), Ok(vec![0.0, 0.0]));
        assert_eq!(scales(json!([{ "id": 1, "scale": 0.5 }]), 3), Ok(vec![0.0, 0.5, 0.0]));
        let both = json!([{ "id": 1, "scale": -1 }, { "id": 0, "scale": 2.0 }]);
        assert_eq!(scales(both.clone(), 2), Ok(vec![2.0, -1.0]));
        assert_eq!(
            read(both).expect("valid").expect("a list").to_json(),
            json!([{ "id": 1, "scale": -1.0 }, { "id": 0, "scale": 2.0 }])
        );
        for (value, message) in [
            (json!({}), "lora: expected an array, got {}"),
            (json!(["a.gguf"]), "lora[0]: expected an object, got \"a.gguf\""),
            (
                json!([{ "scale": 1 }]),
                "lora[0].id: missing; set it to the adapter's place in the option `lora`",
            ),
            (
                json!([{ "id": 0 }]),
                "lora[0].scale: missing; 1 is the adapter as it was made, and 0 is off",
            ),
            (json!([{ "id": -1, "scale": 1 }]), "lora[0].id: must be from 0 to 15, got -1"),
            (json!([{ "id": "0", "scale": 1 }]), "lora[0].id: expected a whole number, got \"0\""),
            (json!([{ "id": 0, "scale": "NaN" }]), "lora[0].scale: expected a number, got \"NaN\""),
            (
                json!([{ "id": 0, "scale": 1e9 }]),
                "lora[0].scale: must be from -100 to 100, got 1000000000",
            ),
            (
                json!([{ "id": 0, "scale": 1 }, { "id": 0, "scale": 0 }]),
                "lora[1].id: lora[0] has the adapter 0 too; keep one of them",
            ),
            (
                json!(vec![json!({ "id": 0, "scale": 1 }); 17]),
                "lora: at most 16 adapters, got 17; leave out those with scale 0",
            ),
            (
                json!([{ "id": 2, "scale": 1 }]),
                "lora[0].id: there is no adapter 2; the chat was created with 2, with ids from 0 to 1",
            ),
        ] {
            assert_eq!(scales(value, 2), Err(message.to_owned()));
        }
        for (n_adapters, has) in
            [(0, "none; name adapters in its option `lora`"), (1, "one, with the id 0")]
        {
            let message =
                format!("lora[0].id: there is no adapter 1; the chat was created with {has}");
            assert_eq!(scales(json!([{ "id": 1, "scale": 1 }]), n_adapters), Err(message));
        }
    }
}
