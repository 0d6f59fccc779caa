//! Named rules, as data (docs/vision.md, Rules).

use serde_json::Value;

use super::size::refused;
use crate::error::{Code, Error, Result};
use crate::json;

/// Names and their rules. The limits are from transformers 5.23.0, except those of `qwen2.5-vl` and
/// `qwen3-vl`: they were recalled from the hub's configurations and not checked. A model's own
/// configuration overrides both.
pub(super) const PRESETS: [(&str, &str); 12] = [
    ("qwen2-vl", r#"{"family": "qwen", "patch": 14, "merge": 2, "min": 3136, "max": 1003520}"#),
    ("qwen2.5-vl", r#"{"family": "qwen", "patch": 14, "merge": 2, "min": 3136, "max": 12845056}"#),
    (
        "qwen3-vl",
        r#"{"family": "qwen", "patch": 16, "merge": 2, "min": 65536, "max": 16777216, "video": "volume"}"#,
    ),
    ("llava-1.5", r#"{"family": "llava", "size": 336, "patch": 14}"#),
    ("llava-next", r#"{"family": "llava_next"}"#),
    ("pixtral-1024", r#"{"family": "pixtral", "patch": 16, "longest": 1024}"#),
    ("pixtral-1540", r#"{"family": "pixtral", "patch": 14, "longest": 1540}"#),
    ("internvl", r#"{"family": "internvl"}"#),
    ("gemma3", r#"{"family": "gemma3"}"#),
    ("paligemma-224", r#"{"family": "paligemma", "length": 256}"#),
    ("paligemma-448", r#"{"family": "paligemma", "length": 1024}"#),
    ("paligemma-896", r#"{"family": "paligemma", "length": 4096}"#),
];

/// The JSON of the rule with this name. Errors name `path`.
pub(super) fn find(path: &str, name: &str) -> Result<Value> {
    let Some((_, rule)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        let problem = format!(
            "unknown preset {name:?}; it is one of {}, or an object with `family`",
            names.join(", ")
        );
        return Err(refused("bad_value", path, problem));
    };
    json::value(rule).map_err(|error| Error::new(Code::InternalBridgeError, error.to_string()))
}
