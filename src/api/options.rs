//! The options of `llb_chat_create_with`.

use std::time::Duration;

use serde_json::{Value, json};

use super::defaults::RequestDefaults;
use super::devices::DeviceChoice;
use super::engine::RemoteOptions;
use super::fields::{Fields, JsonPath};
use super::limits::TemplateLimits;
use super::lora::Lora;
use super::polyfills::Polyfills;
use super::reply_shape::ReplyShape;
use super::speculative::Speculative;
use crate::error::Result;

named_enum! {
    /// Which models the tool-capability check accepts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ToolPolicy {
        /// Models whose chat template renders tools and tool calls.
        Native = "native",
        /// Also models for which polyfills can write tools and calls as text in the prompt, and
        /// parse calls from the reply.
        Polyfill = "polyfill",
        /// All models. Tools work only if the template supports them.
        Any = "any",
    }
}

named_enum! {
    /// The lowest severity of log messages that go to the event callback.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum LogLevel {
        /// All messages.
        Debug = "debug",
        /// Info messages and above.
        Info = "info",
        /// Warnings and errors.
        Warn = "warn",
        /// Errors only.
        Error = "error",
        /// No messages.
        Off = "off",
    }
}

named_enum! {
    /// What to do with a conversation that does not fit the context.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ContextOverflow {
        /// Refuse the request.
        Error = "error",
        /// Leave out turns, starting with the oldest.
        TruncateOldest = "truncate_oldest",
        /// Like `TruncateOldest`, but keep the turn of the first user message.
        TruncateMiddle = "truncate_middle",
        /// Leave out the oldest turns if the prompt alone does not fit. When a reply reaches the
        /// end of the context, drop half of the tokens and continue.
        Shift = "shift",
    }
}

named_enum! {
    /// Where the model runs.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Isolation {
        /// The model runs in this process.
        #[default]
        None = "none",
        /// The model runs in a helper process. If that process ends, this one continues.
        Process = "process",
    }
}

named_enum! {
    /// The option `flash_attn`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum FlashAttention {
        /// llama.cpp decides.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

named_enum! {
    /// Element type of the KV cache.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[allow(missing_docs, reason = "the names are ggml's")]
    pub enum CacheType {
        F32 = "f32",
        F16 = "f16",
        Bf16 = "bf16",
        Q8_0 = "q8_0",
        Q5_1 = "q5_1",
        Q5_0 = "q5_0",
        Q4_1 = "q4_1",
        Q4_0 = "q4_0",
    }
}

impl CacheType {
    /// Bytes per element, including block scales.
    pub fn bytes(self) -> f64 {
        match self {
            CacheType::F32 => 4.0,
            CacheType::F16 | CacheType::Bf16 => 2.0,
            CacheType::Q8_0 => 34.0 / 32.0,
            CacheType::Q5_1 => 24.0 / 32.0,
            CacheType::Q5_0 => 22.0 / 32.0,
            CacheType::Q4_1 => 20.0 / 32.0,
            CacheType::Q4_0 => 18.0 / 32.0,
        }
    }
}

/// The checked options of a chat. None leaves the choice to the model or the machine.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The function that opens the chat.
    pub reply_shape: ReplyShape,
    /// The path of the GGUF file.
    pub model: Option<String>,
    /// The servers that generate replies. None is llama.cpp in this process.
    pub engine: Option<RemoteOptions>,
    /// Where the model runs.
    pub isolation: Isolation,
    /// The size of the context in tokens. None is the model's own, but at most 8192.
    pub n_ctx: Option<u32>,
    /// Whether to choose the largest context that fits into memory, in place of `n_ctx`.
    pub fits_ctx: bool,
    /// The maximum number of chats that are decoded together.
    pub n_parallel: u32,
    /// Whether all chats share the `n_ctx` cells of the KV cache. If not, each of the `n_parallel`
    /// chats has `n_ctx` cells of its own.
    pub kv_unified: bool,
    /// The maximum number of tokens per decode call. None chooses it for the processor or the
    /// devices.
    pub n_batch: Option<u32>,
    /// The maximum number of threads, at most one per core. None is up to one per physical core,
    /// depending on the load of the machine.
    pub n_threads: Option<u32>,
    /// The variant of the kernels. None is the fastest variant that the processor supports.
    pub backend: Option<String>,
    /// The devices that may hold layers.
    pub devices: DeviceChoice,
    /// The number of layers on a GPU. None is as many as fit.
    pub n_gpu_layers: Option<u32>,
    /// Flash attention.
    pub flash_attn: FlashAttention,
    /// Element type of the keys in the KV cache.
    pub cache_type_k: CacheType,
    /// Element type of the values in the KV cache.
    pub cache_type_v: CacheType,
    /// Whether to map the file into memory instead of reading it.
    pub use_mmap: bool,
    /// Whether to lock the weights in memory.
    pub use_mlock: bool,
    /// How long the model stays in memory after a request. None keeps it as long as the chat is
    /// open.
    pub keep_alive: Option<Duration>,
    /// The adapters of the model's weights.
    pub lora: Vec<Lora>,
    /// Speculative decoding.
    pub speculative: Speculative,
    /// The file in which the KV cache of the chat is saved, for a later chat to restore.
    pub state_file: Option<String>,
    /// The folder with stored prefixes of prompts. Chats and processes share it.
    pub cache_dir: Option<String>,
    /// The maximum size of that folder in bytes.
    pub cache_bytes: u64,
    /// Jinja text that replaces the template of the file.
    pub chat_template: Option<String>,
    /// Which models are accepted.
    pub tool_policy: ToolPolicy,
    /// The components of a chat template, or the name of a registered template. Excludes
    /// `chat_template`.
    pub components: Option<Value>,
    /// Default values for members of a request. The model file may set those that are absent here.
    pub defaults: RequestDefaults,
    /// The polyfills for requests without a member `polyfills`.
    pub polyfills: Polyfills,
    /// The limits of one template render.
    pub template_limits: TemplateLimits,
    /// What to do with a conversation that does not fit the context.
    pub context_overflow: ContextOverflow,
    /// The lowest severity of log messages that go to the event callback.
    pub log: LogLevel,
}

impl CreateOptions {
    /// The options of `llb_chat_create`. They equal those of `llb_chat_create_with({"model":
    /// path})`, except for the shape of replies.
    pub fn for_model(path: Option<&str>) -> CreateOptions {
        let options = CreateOptions::read(&json!({ "model": path }));
        CreateOptions {
            reply_shape: ReplyShape::Classic,
            ..options.expect("the defaults are valid")
        }
    }

    /// Reads the options. An unknown name is an error, so that a misspelled option is not ignored.
    pub fn read(options: &Value) -> Result<CreateOptions> {
        let fields = &mut Fields::new(JsonPath::OPTIONS, options)?;
        let model = fields.string("model")?.map(str::to_owned);
        let engine = RemoteOptions::read(fields, options)?;
        let fits_ctx = fields.get("n_ctx").is_some_and(|n_ctx| n_ctx == "fit");
        let n_ctx = match fits_ctx {
            true => None,
            false => fields.integer("n_ctx", 16..=i64::from(i32::MAX))?.map(|n| n as u32),
        };
        let read = CreateOptions {
            reply_shape: ReplyShape::Current,
            isolation: fields.one_of("isolation", Isolation::NAMES)?.unwrap_or_default(),
            fits_ctx,
            n_ctx,
            n_parallel: fields.integer("n_parallel", 1..=64)?.map_or(4, |n| n as u32),
            kv_unified: fields.boolean("kv_unified")?.unwrap_or(true),
            n_batch: fields.integer_or_auto("n_batch", 64..=16_384)?.map(|n| n as u32),
            n_threads: fields.integer_or_auto("n_threads", 1..=512)?.map(|n| n as u32),
            backend: fields.string("backend")?.filter(|name| *name != "auto").map(str::to_owned),
            devices: DeviceChoice::read(fields)?,
            n_gpu_layers: fields
                .integer_or_auto("n_gpu_layers", 0..=i64::from(i32::MAX))?
                .map(|n| n as u32),
            flash_attn: fields
                .one_of("flash_attn", FlashAttention::NAMES)?
                .unwrap_or(FlashAttention::Auto),
            cache_type_k: fields
                .one_of("cache_type_k", CacheType::NAMES)?
                .unwrap_or(CacheType::F16),
            cache_type_v: fields
                .one_of("cache_type_v", CacheType::NAMES)?
                .unwrap_or(CacheType::F16),
            use_mmap: fields.boolean("use_mmap")?.unwrap_or(true),
            use_mlock: fields.boolean("use_mlock")?.unwrap_or(false),
            keep_alive: read_keep_alive(fields)?,
            lora: Lora::read_all(fields)?,
            speculative: Speculative::read(fields)?,
            state_file: fields.string("state_file")?.map(str::to_owned),
            cache_dir: fields.string("cache_dir")?.map(str::to_owned),
            cache_bytes: fields
                .integer("cache_bytes", 1..=i64::MAX)?
                .map_or(CACHE_BYTES, |bytes| bytes as u64),
            chat_template: fields.string("chat_template")?.map(str::to_owned),
            components: fields.get("components").cloned(),
            tool_policy: fields
                .one_of("tool_policy", ToolPolicy::NAMES)?
                .unwrap_or(ToolPolicy::Native),
            defaults: RequestDefaults::read(fields)?,
            polyfills: Polyfills::read(fields)?.unwrap_or_default(),
            template_limits: TemplateLimits::read(fields)?,
            context_overflow: fields
                .one_of("context_overflow", ContextOverflow::NAMES)?
                .unwrap_or(ContextOverflow::Error),
            log: fields.one_of("log", LogLevel::NAMES)?.unwrap_or(LogLevel::Off),
            model,
            engine,
        };
        fields.refuse_ignored("unknown option")?;
        read.check_together(fields)?;
        Ok(read)
    }

    /// Refuses options that exclude each other.
    fn check_together(&self, fields: &Fields) -> Result<()> {
        if self.components.is_some() && self.chat_template.is_some() {
            return Err(
                fields.invalid("components", "cannot be used together with `chat_template`")
            );
        }
        if self.isolation == Isolation::Process && self.n_gpu_layers.is_some_and(|n| n > 0) {
            let problem =
                "an isolated model runs on the CPU; leave n_gpu_layers out or set it to 0";
            return Err(fields.invalid("n_gpu_layers", problem));
        }
        if self.isolation == Isolation::Process && matches!(self.devices, DeviceChoice::Named(_)) {
            let problem =
                "an isolated model runs on the CPU; leave devices out or set it to \"none\"";
            return Err(fields.invalid("devices", problem));
        }
        if let Some(path) = &self.cache_dir {
            let problem = match () {
                () if path.is_empty() => "the path is empty; name a folder",
                () if self.engine.is_some() => "needs a model in this process",
                () if self.isolation == Isolation::Process => {
                    "cannot be used with `isolation` \"process\", whose helper may not read or write files; leave one of them out"
                }
                () => "",
            };
            if !problem.is_empty() {
                return Err(fields.invalid("cache_dir", problem));
            }
        }
        if self.isolation == Isolation::Process
            && self.keep_alive.is_some()
            && self.state_file.is_some()
        {
            let problem = "cannot be used with `state_file` in an isolated chat, whose state is written when it is closed; leave one of them out";
            return Err(fields.invalid("keep_alive", problem));
        }
        if self.fits_ctx && self.engine.is_some() {
            return Err(fields.invalid("n_ctx", "\"fit\" needs a model in this process"));
        }
        if self.fits_ctx && matches!(self.speculative, Speculative::Draft { .. }) {
            return Err(fields.invalid("n_ctx", "\"fit\" cannot be used with `draft_model`"));
        }
        Ok(())
    }
}

/// The default of `cache_bytes`: a few long prompts of a model with 8 billion parameters.
const CACHE_BYTES: u64 = 4 << 30;

/// Reads a number of seconds. As in Ollama, a negative number means forever.
fn read_keep_alive(fields: &mut Fields) -> Result<Option<Duration>> {
    const MOST: f64 = 1e9;
    let seconds = fields.number("keep_alive", -MOST..=MOST)?;
    Ok(seconds.filter(|seconds| *seconds >= 0.0).map(Duration::from_secs_f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn refused(options: Value, message: &str) {
        assert_eq!(CreateOptions::read(&options).expect_err("refused").message(), message);
    }

    #[test]
    fn errors_name_the_option() {
        refused(json!({"modle": "x"}), "modle: unknown option");
        refused(json!({"keep_alive": "5m"}), r#"keep_alive: expected a number, got "5m""#);
        refused(
            json!({"keep_alive": 1e10}),
            "keep_alive: must be from -1000000000 to 1000000000, got 10000000000",
        );
        refused(
            json!({"keep_alive": 0, "isolation": "process", "state_file": "s"}),
            "keep_alive: cannot be used with `state_file` in an isolated chat, whose state is written when it is closed; leave one of them out",
        );
        refused(json!({"n_ctx": -1}), "n_ctx: must be from 16 to 2147483647, got -1");
        refused(
            json!({"components": {}, "chat_template": ""}),
            "components: cannot be used together with `chat_template`",
        );
        refused(
            json!({"tool_policy": "maybe"}),
            r#"tool_policy: unknown value "maybe"; expected one of "native", "polyfill", "any""#,
        );
        refused(json!([]), "options_json: expected an object, got []");
        refused(
            json!({"n_threads": "many"}),
            r#"n_threads: expected "auto" or a whole number, got "many""#,
        );
        refused(
            json!({"context_overflow": "truncate"}),
            r#"context_overflow: unknown value "truncate"; expected one of "error", "truncate_oldest", "truncate_middle", "shift""#,
        );
        refused(
            json!({"isolation": "thread"}),
            r#"isolation: unknown value "thread"; expected one of "none", "process""#,
        );
        refused(
            json!({"isolation": "process", "n_gpu_layers": 4}),
            "n_gpu_layers: an isolated model runs on the CPU; leave n_gpu_layers out or set it to 0",
        );
        refused(
            json!({"isolation": "process", "devices": ["Vulkan0"]}),
            "devices: an isolated model runs on the CPU; leave devices out or set it to \"none\"",
        );
    }

    #[test]
    fn options_are_read() {
        let options = CreateOptions::read(
            &json!({"model": "m.gguf", "n_ctx": 512, "n_gpu_layers": "auto", "n_threads": "auto", "log": "warn"}),
        )
        .expect("valid");
        assert_eq!(
            (options.model.as_deref(), options.n_ctx, options.n_gpu_layers, options.log),
            (Some("m.gguf"), Some(512), None, LogLevel::Warn)
        );
        assert_eq!((options.n_threads, options.keep_alive), (None, None));
        for (seconds, read) in [(json!(1.5), Some(1500)), (json!(0), Some(0)), (json!(-1), None)] {
            let options = CreateOptions::read(&json!({ "keep_alive": seconds })).expect("valid");
            assert_eq!(options.keep_alive, read.map(Duration::from_millis));
        }
    }
}
