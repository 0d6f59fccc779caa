//! The options of `llb_embed_create`.

use serde_json::Value;

use super::fields::{Fields, JsonPath};
use super::options::CreateOptions;
use crate::error::{Error, Result};

/// The options that embedding models share with chats.
const SHARED: &[&str] = &[
    "model",
    "n_ctx",
    "n_batch",
    "n_threads",
    "backend",
    "devices",
    "n_gpu_layers",
    "n_cpu_moe",
    "override_tensor",
    "split_mode",
    "main_gpu",
    "tensor_split",
    "flash_attn",
    "use_mmap",
    "use_mlock",
    "lora",
    "keep_alive",
];

named_enum! {
    /// How the vectors of a text's tokens become one vector.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Pooling {
        /// No pooling: every token has a vector.
        None = "none",
        /// The mean of all token vectors.
        Mean = "mean",
        /// The vector of the first token.
        Cls = "cls",
        /// The vector of the last token.
        Last = "last",
        /// A score instead of a vector, for ranking.
        Rank = "rank",
    }
}

impl Pooling {
    /// The pooling that a model file gives as this number (`LLAMA_POOLING_TYPE_*`).
    pub fn of_file(number: u64) -> Option<Pooling> {
        Pooling::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The checked options of an embedding model.
#[derive(Debug, Clone)]
pub struct EmbedOptions {
    /// The options that apply to loading the model.
    pub load: CreateOptions,
    /// The path of the GGUF file.
    pub model: String,
    /// The pooling. `None` uses the pooling of the file.
    pub pooling: Option<Pooling>,
}

impl EmbedOptions {
    /// Reads the options. An unknown name is an error, so that a misspelled option is not ignored.
    pub fn read(options: &Value) -> Result<EmbedOptions> {
        let mut fields = Fields::new(JsonPath::OPTIONS, options)?;
        let pooling = fields.one_of("pooling", Pooling::NAMES)?;
        let mut shared = options.as_object().cloned().unwrap_or_default();
        shared.shift_remove("pooling");
        if let Some(key) = shared.keys().find(|key| !SHARED.contains(&key.as_str())) {
            return Err(Error::invalid(key, "unknown option"));
        }
        let load = CreateOptions::read(&Value::Object(shared))?;
        let model = load.model.clone().ok_or_else(|| Error::invalid("model", "missing"))?;
        Ok(EmbedOptions { load, model, pooling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn refused(options: Value, message: &str) {
        assert_eq!(EmbedOptions::read(&options).expect_err("refused").message(), message);
    }

    #[test]
    fn errors_name_the_option() {
        refused(json!({}), "model: missing");
        refused(json!({"model": 7}), "model: expected a string, got 7");
        refused(json!({"model": "m", "poling": "mean"}), "poling: unknown option");
        refused(json!({"model": "m", "tool_policy": "any"}), "tool_policy: unknown option");
        refused(json!({"model": "m", "n_ctx": 0}), "n_ctx: must be from 16 to 2147483647, got 0");
        refused(
            json!({"model": "m", "pooling": "sum"}),
            r#"pooling: unknown value "sum"; expected one of "none", "mean", "cls", "last", "rank""#,
        );
        refused(json!(["m"]), r#"options_json: expected an object, got ["m"]"#);
    }

    #[test]
    fn numbers_are_llama_cpp_s() {
        assert_eq!(Pooling::of_file(3), Some(Pooling::Last));
        assert_eq!(Pooling::of_file(5), None);
    }
}
