//! The arguments that several commands share: how a model is loaded, and how it samples.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::input;

/// The values of `context_overflow`.
const OVERFLOWS: [&str; 4] = ["error", "truncate_oldest", "truncate_middle", "shift"];

/// How a model is loaded.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Loading")]
pub(crate) struct Loading {
    /// Context size in tokens [default: the smaller of the model's and 8192]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) n_ctx: Option<u32>,
    /// Number of threads [default: physical cores, fewer while the machine is busy]
    #[arg(long, value_name = "N")]
    pub(crate) n_threads: Option<u32>,
    /// Number of layers on GPUs, in a build with GPU support [default: as many as fit]
    #[arg(long, value_name = "N")]
    pub(crate) n_gpu_layers: Option<u32>,
    /// Element type of the KV cache: f16, q8_0, ...
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type: Option<String>,
    /// What to do if a conversation does not fit into the context [default: error]
    #[arg(long, value_name = "HOW", value_parser = OVERFLOWS)]
    pub(crate) context_overflow: Option<String>,
    /// First tokens to keep when the context is shifted; -1 keeps the whole prompt [default: 0]
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) n_keep: Option<i64>,
    /// LoRA adapter (a GGUF file) and its scale [default: 1]; may be given more than once
    #[arg(long, value_name = "FILE[=SCALE]")]
    pub(crate) lora: Vec<String>,
    /// A Jinja file to use instead of the model's chat template
    #[arg(long, value_name = "FILE")]
    pub(crate) chat_template: Option<PathBuf>,
    /// A folder that keeps beginnings of prompts for later runs. It holds what the prompts say
    #[arg(long, value_name = "FOLDER")]
    pub(crate) prefix_cache: Option<PathBuf>,
}

impl Loading {
    /// The options for creating a chat. Models without tools are accepted.
    pub(crate) fn options(&self, path: &str) -> Result<Value> {
        let mut options = self.embedding_options(path);
        options["tool_policy"] = "any".into();
        set(&mut options, "cache_type_k", self.cache_type.clone());
        set(&mut options, "cache_type_v", self.cache_type.clone());
        set(&mut options, "context_overflow", self.context_overflow.clone());
        if let Some(tokens) = self.n_keep {
            options["defaults"] = json!({ "n_keep": tokens });
        }
        if !self.lora.is_empty() {
            options["lora"] = self.lora.iter().map(|adapter| lora(adapter)).collect();
        }
        let prefixes = self.prefix_cache.as_ref();
        set(&mut options, "cache_dir", prefixes.map(|path| path.to_string_lossy().into_owned()));
        if let Some(path) = &self.chat_template {
            options["chat_template"] = input::text(path)?.into();
        }
        Ok(options)
    }

    /// The options for an embedding model, which has no cache and no template.
    pub(crate) fn embedding_options(&self, path: &str) -> Value {
        let mut options = json!({ "model": path });
        set(&mut options, "n_ctx", self.n_ctx);
        set(&mut options, "n_threads", self.n_threads);
        set(&mut options, "n_gpu_layers", self.n_gpu_layers);
        options
    }
}

/// How a reply is generated.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// Maximum number of tokens in a reply
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    pub(crate) max_tokens: u32,
    /// Sampling temperature [default: what the model recommends, else 0.7]
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Sample from the most likely tokens that together reach this probability
    #[arg(long)]
    pub(crate) top_p: Option<f64>,
    /// Sample from this number of the most likely tokens
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) top_k: Option<i64>,
    /// Ignore tokens below this fraction of the highest probability
    #[arg(long)]
    pub(crate) min_p: Option<f64>,
    /// Seed of the random numbers; with a fixed --n-threads, replies are repeatable
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) seed: Option<i64>,
    /// Text that ends a reply; may be given more than once
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Whether the model reasons, if its template has a switch for that
    #[arg(long, value_name = "BOOL")]
    pub(crate) enable_thinking: Option<bool>,
    /// Maximum number of tokens in each block of reasoning
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) reasoning_budget: Option<i64>,
    /// Text to append to reasoning that reaches its budget
    #[arg(long, value_name = "TEXT")]
    pub(crate) reasoning_budget_message: Option<String>,
    /// A file with a JSON schema that the reply must match
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema: Option<PathBuf>,
}

impl Sampling {
    /// The members of a request, without messages.
    pub(crate) fn request(&self) -> Result<Value> {
        let mut request = json!({ "max_tokens": self.max_tokens, "stream_format": "chunks" });
        set(&mut request, "temperature", self.temperature);
        set(&mut request, "top_p", self.top_p);
        set(&mut request, "top_k", self.top_k);
        set(&mut request, "min_p", self.min_p);
        set(&mut request, "seed", self.seed);
        set(&mut request, "enable_thinking", self.enable_thinking);
        set(&mut request, "reasoning_budget", self.reasoning_budget);
        set(&mut request, "reasoning_budget_message", self.reasoning_budget_message.clone());
        if !self.stop.is_empty() {
            request["stop"] = json!(self.stop);
        }
        if let Some(path) = &self.json_schema {
            let schema = json!({ "name": "reply", "schema": input::json(path)?, "strict": true });
            request["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
        }
        Ok(request)
    }
}

/// `FILE`, or `FILE=SCALE`.
fn lora(adapter: &str) -> Value {
    let scaled = adapter.rsplit_once('=');
    match scaled.and_then(|(path, scale)| Some((path, scale.parse::<f64>().ok()?))) {
        Some((path, scale)) => json!({ "path": path, "scale": scale }),
        None => adapter.into(),
    }
}

/// Sets a member, if there is a value.
pub(crate) fn set(object: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        object[name] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_may_have_a_scale() {
        assert_eq!(lora("a.gguf"), json!("a.gguf"));
        assert_eq!(lora("a=b.gguf=-0.5"), json!({ "path": "a=b.gguf", "scale": -0.5 }));
        assert_eq!(lora("a=b.gguf"), json!("a=b.gguf"));
    }
}
