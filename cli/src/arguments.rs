//! The arguments that several commands share: how a model is loaded, and how it samples.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::input;

/// The values of `context_overflow`.
const OVERFLOWS: [&str; 4] = ["error", "truncate_oldest", "truncate_middle", "shift"];
/// The values of `split_mode`.
const SPLIT_MODES: [&str; 4] = ["none", "layer", "row", "tensor"];

/// How a model is loaded.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Loading")]
pub(crate) struct Loading {
    /// Context size in tokens [default: the smaller of the model's and 8192]
    #[arg(long, short = 'c', visible_alias = "ctx-size", value_name = "TOKENS")]
    pub(crate) n_ctx: Option<u32>,
    /// Number of threads [default: physical cores, fewer while the machine is busy]
    #[arg(long, short = 't', visible_alias = "threads", value_name = "N")]
    pub(crate) n_threads: Option<u32>,
    /// Number of layers on GPUs, in a build with GPU support, or "all", or "auto" for as many as
    /// fit; also -ngl [default: auto]
    #[arg(long, visible_alias = "gpu-layers", value_name = "N", value_parser = gpu_layers,
        allow_negative_numbers = true)]
    pub(crate) n_gpu_layers: Option<Value>,
    /// Devices that may hold layers, by their names in `llb doctor`, or "none" [default: all GPUs]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,
    /// Number of layers, from the first one, whose experts stay in main memory [default: as many as
    /// let all other weights be on GPUs]
    #[arg(long, value_name = "N")]
    pub(crate) n_cpu_moe: Option<u32>,
    /// Put tensors whose names match on a device, such as ffn_.*_exps=CPU; may be given more than
    /// once
    #[arg(long, value_name = "PATTERN=DEVICE", value_parser = tensor_override)]
    pub(crate) override_tensor: Vec<TensorOverride>,
    /// How several GPUs divide the model [default: layer]
    #[arg(long, value_name = "HOW", value_parser = SPLIT_MODES)]
    pub(crate) split_mode: Option<String>,
    /// Index of the GPU that has all layers with --split-mode none [default: 0]
    #[arg(long, value_name = "INDEX")]
    pub(crate) main_gpu: Option<u32>,
    /// Share of the layers that each GPU gets [default: by free memory]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    pub(crate) tensor_split: Vec<f64>,
    /// Whether chats share one context; if not, each has its own [default: its own on a GPU with
    /// enough memory]
    #[arg(long, value_name = "BOOL")]
    pub(crate) kv_unified: Option<bool>,
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
    /// Encoder of pictures or sound (an mmproj GGUF file), or "auto" for the one beside the model
    #[arg(long, visible_alias = "mmproj", value_name = "FILE")]
    pub(crate) projector: Option<String>,
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
        set(&mut options, "kv_unified", self.kv_unified);
        if let Some(tokens) = self.n_keep {
            options["defaults"] = json!({ "n_keep": tokens });
        }
        if !self.lora.is_empty() {
            options["lora"] = self.lora.iter().map(|adapter| lora(adapter)).collect();
        }
        set(&mut options, "projector", self.projector.clone());
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
        set(&mut options, "n_gpu_layers", self.n_gpu_layers.clone());
        set(&mut options, "devices", devices(&self.devices));
        set(&mut options, "n_cpu_moe", self.n_cpu_moe);
        let pairs = self.override_tensor.iter().map(|it| json!([it.pattern, it.device]));
        let pairs = pairs.collect::<Vec<Value>>();
        set(&mut options, "override_tensor", (!pairs.is_empty()).then_some(pairs));
        set(&mut options, "split_mode", self.split_mode.clone());
        set(&mut options, "main_gpu", self.main_gpu);
        let shares = (!self.tensor_split.is_empty()).then(|| json!(self.tensor_split));
        set(&mut options, "tensor_split", shares);
        options
    }
}

/// How a reply is generated.
#[derive(Debug, Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct Sampling {
    /// Maximum number of tokens in a reply [default: what fits the context]
    #[arg(long, short = 'n', visible_alias = "n-predict", value_name = "TOKENS")]
    pub(crate) max_tokens: Option<u32>,
    /// Sampling temperature [default: what the model recommends, else 0.7]
    #[arg(long, visible_alias = "temp", allow_negative_numbers = true)]
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
    /// Whether several tokens may be guessed and verified at once: auto or off [default: auto]
    #[arg(long, value_name = "CHOICE")]
    pub(crate) speculative: Option<String>,
    /// A file with a JSON schema that the reply must match
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema: Option<PathBuf>,
}

impl Sampling {
    /// The members of a request, without messages.
    pub(crate) fn request(&self) -> Result<Value> {
        let mut request = json!({ "stream_format": "chunks" });
        set(&mut request, "max_tokens", self.max_tokens);
        set(&mut request, "temperature", self.temperature);
        set(&mut request, "top_p", self.top_p);
        set(&mut request, "top_k", self.top_k);
        set(&mut request, "min_p", self.min_p);
        set(&mut request, "seed", self.seed);
        set(&mut request, "enable_thinking", self.enable_thinking);
        set(&mut request, "reasoning_budget", self.reasoning_budget);
        set(&mut request, "reasoning_budget_message", self.reasoning_budget_message.clone());
        set(&mut request, "speculative", self.speculative.clone());
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

/// The value of `--override-tensor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorOverride {
    pattern: String,
    device: String,
}

/// `PATTERN=DEVICE`. A pattern may have `=` too.
fn tensor_override(text: &str) -> std::result::Result<TensorOverride, String> {
    let (pattern, device) = text.rsplit_once('=').ok_or("expected PATTERN=DEVICE")?;
    Ok(TensorOverride { pattern: pattern.to_owned(), device: device.to_owned() })
}

/// A number of layers, "all" or "auto", as in llama.cpp.
fn gpu_layers(text: &str) -> std::result::Result<Value, String> {
    match text {
        "all" => Ok(i32::MAX.into()),
        "auto" => Ok(text.into()),
        number => match number.parse::<u32>() {
            Ok(number) => Ok(number.into()),
            Err(_) => Err("expected a number, \"all\" or \"auto\"".to_owned()),
        },
    }
}

/// The option `devices`. `none` alone selects none.
fn devices(names: &[String]) -> Option<Value> {
    match names {
        [] => None,
        [only] if only == "none" || only == "auto" => Some(only.as_str().into()),
        names => Some(json!(names)),
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
    fn a_pattern_may_have_equals_signs() {
        let pair = |pattern: &str, device: &str| TensorOverride {
            pattern: pattern.to_owned(),
            device: device.to_owned(),
        };
        assert_eq!(tensor_override("ffn_(?=up)=CPU"), Ok(pair("ffn_(?=up)", "CPU")));
        assert!(tensor_override("ffn").is_err());
    }

    #[test]
    fn devices_are_a_word_or_names() {
        let of =
            |names: &[&str]| devices(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["none"]), Some(json!("none")));
        assert_eq!(of(&["CUDA0"]), Some(json!(["CUDA0"])));
        assert_eq!(of(&["CUDA0", "CUDA1"]), Some(json!(["CUDA0", "CUDA1"])));
    }

    #[test]
    fn an_adapter_may_have_a_scale() {
        assert_eq!(lora("a.gguf"), json!("a.gguf"));
        assert_eq!(lora("a=b.gguf=-0.5"), json!({ "path": "a=b.gguf", "scale": -0.5 }));
        assert_eq!(lora("a=b.gguf"), json!("a=b.gguf"));
    }
}
