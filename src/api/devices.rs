//! The option `devices`: which devices may hold layers of a model.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// The devices that the options select.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Those that llama.cpp uses by default.
    #[default]
    Auto,
    /// None: only the processor computes.
    Processor,
    /// Those with these names, in this order.
    Named(Vec<String>),
}

impl DeviceChoice {
    /// Reads "auto", "none" or an array of names. Whether they exist is checked later.
    pub(crate) fn read(fields: &mut Fields) -> Result<DeviceChoice> {
        const SHAPE: &str = "\"auto\", \"none\" or an array of names";
        let names = match fields.get("devices") {
            None => return Ok(DeviceChoice::Auto),
            Some(Value::Array(names)) => names,
            Some(Value::String(text)) if text == "auto" => return Ok(DeviceChoice::Auto),
            Some(Value::String(text)) if text == "none" => return Ok(DeviceChoice::Processor),
            Some(other) => return Err(fields.invalid("devices", expected(SHAPE, other))),
        };
        if names.is_empty() {
            return Ok(DeviceChoice::Processor);
        }
        fields.strings("devices", names).map(DeviceChoice::Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(devices: Value) -> Result<DeviceChoice> {
        let options = json!({ "devices": devices });
        DeviceChoice::read(&mut Fields::new("", &options).expect("an object"))
    }

    #[test]
    fn devices_are_read() {
        for (devices, expected) in [
            (json!(null), DeviceChoice::Auto),
            (json!("auto"), DeviceChoice::Auto),
            (json!("none"), DeviceChoice::Processor),
            (json!([]), DeviceChoice::Processor),
            (json!(["Vulkan0"]), DeviceChoice::Named(vec!["Vulkan0".to_owned()])),
        ] {
            assert_eq!(read(devices).expect("valid"), expected);
        }
    }

    #[test]
    fn errors_name_the_option() {
        for (devices, message) in [
            (json!("gpu"), r#"devices: expected "auto", "none" or an array of names, got "gpu""#),
            (json!(0), r#"devices: expected "auto", "none" or an array of names, got 0"#),
            (json!(["Vulkan0", 1]), "devices[1]: expected a string, got 1"),
        ] {
            assert_eq!(read(devices).expect_err("refused").message(), message);
        }
    }
}
