//! The options of `llb_chat_create_with`.

use serde_json::Value;

use super::defaults::RequestDefaults;
use super::door::Door;
use super::engine::RemoteOptions;
use super::fields::Fields;
use super::limits::TemplateLimits;
use super::lora::Lora;
use super::polyfills::Polyfills;
use super::speculative::Speculative;
use crate::error::Result;

/// Which models the tool-capability check accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolPolicy {
    /// Those whose chat template carries tools and tool calls.
    Native,
    /// Also those for which polyfills can carry tools: in the prompt as text, and back.
    Polyfill,
    /// All. Tools then work only if the template supports them.
    Any,
}

/// The least severe log message that goes to the event callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Info and above.
    Info,
    /// Warnings and errors.
    Warn,
    /// Only errors.
    Error,
    /// Nothing.
    Off,
}

impl LogLevel {
    /// The spelling in options and in `log:<level>:` events.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
            LogLevel::Off => "off",
        }
    }
}

/// What to do with a conversation that does not fit the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextOverflow {
    /// Refuse the request.
    Error,
    /// Leave out turns, the oldest first.
    TruncateOldest,
    /// The same, but keep the turn of the first user message.
    TruncateMiddle,
}

impl ContextOverflow {
    /// The spelling in options and replies.
    pub fn as_str(self) -> &'static str {
        match self {
            ContextOverflow::Error => "error",
            ContextOverflow::TruncateOldest => "truncate_oldest",
            ContextOverflow::TruncateMiddle => "truncate_middle",
        }
    }
}

/// Where the model runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In this process.
    #[default]
    None,
    /// In a helper process, whose end does not end this one.
    Process,
}

/// `flash_attn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlashAttention {
    /// llama.cpp decides.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are ggml's")]
pub enum CacheType {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q5_1,
    Q5_0,
    Q4_1,
    Q4_0,
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

/// Checked options. None leaves the decision to the model or the machine.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The function that opens the chat.
    pub door: Door,
    /// Path of the GGUF file.
    pub model: Option<String>,
    /// The servers that generate. None is llama.cpp in this process.
    pub engine: Option<RemoteOptions>,
    /// Where the model runs.
    pub isolation: Isolation,
    /// Tokens of context. None is the model's, at most 8192.
    pub n_ctx: Option<u32>,
    /// Chats that are decoded together.
    pub n_parallel: u32,
    /// Maximum tokens per decode call.
    pub n_batch: u32,
    /// Threads, at most one per core. None is up to one per physical core, as the load of the
    /// machine allows.
    pub n_threads: Option<u32>,
    /// The variant of the kernels. None is the fastest that the processor can run.
    pub backend: Option<String>,
    /// Layers on a GPU. None is as many as fit.
    pub n_gpu_layers: Option<u32>,
    /// Flash attention.
    pub flash_attn: FlashAttention,
    /// Element type of the keys in the KV cache.
    pub cache_type_k: CacheType,
    /// Element type of the values in the KV cache.
    pub cache_type_v: CacheType,
    /// Map the file instead of reading it.
    pub use_mmap: bool,
    /// Lock the weights in memory.
    pub use_mlock: bool,
    /// Adapters of the weights.
    pub lora: Vec<Lora>,
    /// Speculative decoding.
    pub speculative: Speculative,
    /// The file that carries the KV cache of this chat over to the next one.
    pub state_file: Option<String>,
    /// Jinja text that replaces the template of the file.
    pub chat_template: Option<String>,
    /// Which models are accepted.
    pub tool_policy: ToolPolicy,
    /// Components of a chat template, or the name of registered ones. Excludes `chat_template`.
    pub components: Option<Value>,
    /// What a request need not say. The model file may set what is silent here.
    pub defaults: RequestDefaults,
    /// The polyfills of requests without a member `polyfills`.
    pub polyfills: Polyfills,
    /// Bounds of one template render.
    pub template_limits: TemplateLimits,
    /// What to do with a conversation that does not fit the context.
    pub context_overflow: ContextOverflow,
    /// The least severe log message that goes to the event callback.
    pub log: LogLevel,
}

impl CreateOptions {
    /// The options of `llb_chat_create`: those of `llb_chat_create_with({"model": path})`, with the
    /// classic door.
    pub fn for_model(path: Option<&str>) -> CreateOptions {
        CreateOptions {
            door: Door::Classic,
            model: path.map(str::to_owned),
            engine: None,
            isolation: Isolation::None,
            n_ctx: None,
            n_parallel: 4,
            n_batch: 512,
            n_threads: None,
            backend: None,
            n_gpu_layers: None,
            flash_attn: FlashAttention::Auto,
            cache_type_k: CacheType::F16,
            cache_type_v: CacheType::F16,
            use_mmap: true,
            use_mlock: false,
            lora: Vec::new(),
            speculative: Speculative::Off,
            state_file: None,
            chat_template: None,
            components: None,
            tool_policy: ToolPolicy::Native,
            defaults: RequestDefaults::default(),
            polyfills: Polyfills::default(),
            template_limits: TemplateLimits::default(),
            context_overflow: ContextOverflow::Error,
            log: LogLevel::Off,
        }
    }

    /// Reads options. An unknown name is an error, so that no misspelled option is ignored.
    pub fn read(options: &Value) -> Result<CreateOptions> {
        let fields = &mut Fields::new("", options)?;
        let base = CreateOptions::for_model(fields.string("model")?);
        let engine = RemoteOptions::read(fields, options)?;
        let overflows = [
            ContextOverflow::Error,
            ContextOverflow::TruncateOldest,
            ContextOverflow::TruncateMiddle,
        ];
        let overflows = overflows.map(|overflow| (overflow.as_str(), overflow));
        let cache_types = [
            ("f32", CacheType::F32),
            ("f16", CacheType::F16),
            ("bf16", CacheType::Bf16),
            ("q8_0", CacheType::Q8_0),
            ("q5_1", CacheType::Q5_1),
            ("q5_0", CacheType::Q5_0),
            ("q4_1", CacheType::Q4_1),
            ("q4_0", CacheType::Q4_0),
        ];
        let flash = [
            ("auto", FlashAttention::Auto),
            ("on", FlashAttention::On),
            ("off", FlashAttention::Off),
        ];
        let policies = [
            ("native", ToolPolicy::Native),
            ("polyfill", ToolPolicy::Polyfill),
            ("any", ToolPolicy::Any),
        ];
        let isolations = [("none", Isolation::None), ("process", Isolation::Process)];
        let levels =
            [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error, LogLevel::Off];
        let levels = levels.map(|level| (level.as_str(), level));
        let read = CreateOptions {
            door: Door::Options,
            isolation: fields.one_of("isolation", &isolations)?.unwrap_or(base.isolation),
            n_ctx: fields.integer("n_ctx", 16..=i64::from(i32::MAX))?.map(|n| n as u32),
            n_parallel: fields.integer("n_parallel", 1..=64)?.map_or(base.n_parallel, |n| n as u32),
            n_batch: fields.integer("n_batch", 64..=16_384)?.map_or(base.n_batch, |n| n as u32),
            n_threads: fields.integer_or_auto("n_threads", 1..=512)?.map(|n| n as u32),
            backend: fields.string("backend")?.filter(|name| *name != "auto").map(str::to_owned),
            n_gpu_layers: fields
                .integer_or_auto("n_gpu_layers", 0..=i64::from(i32::MAX))?
                .map(|n| n as u32),
            flash_attn: fields.one_of("flash_attn", &flash)?.unwrap_or(base.flash_attn),
            cache_type_k: fields.one_of("cache_type_k", &cache_types)?.unwrap_or(base.cache_type_k),
            cache_type_v: fields.one_of("cache_type_v", &cache_types)?.unwrap_or(base.cache_type_v),
            use_mmap: fields.boolean("use_mmap")?.unwrap_or(base.use_mmap),
            use_mlock: fields.boolean("use_mlock")?.unwrap_or(base.use_mlock),
            lora: Lora::read_all(fields)?,
            speculative: Speculative::read(fields)?,
            state_file: fields.string("state_file")?.map(str::to_owned),
            chat_template: fields.string("chat_template")?.map(str::to_owned),
            components: fields.get("components").cloned(),
            tool_policy: fields.one_of("tool_policy", &policies)?.unwrap_or(base.tool_policy),
            defaults: RequestDefaults::read(fields)?,
            polyfills: Polyfills::read(fields)?.unwrap_or(base.polyfills),
            template_limits: TemplateLimits::read(fields)?,
            context_overflow: fields
                .one_of("context_overflow", &overflows)?
                .unwrap_or(base.context_overflow),
            log: fields.one_of("log", &levels)?.unwrap_or(base.log),
            model: base.model,
            engine,
        };
        if read.components.is_some() && read.chat_template.is_some() {
            return Err(
                fields.invalid("components", "cannot be used together with `chat_template`")
            );
        }
        fields.refuse_ignored("unknown option")?;
        if read.isolation == Isolation::Process && read.n_gpu_layers.is_some_and(|n| n > 0) {
            let problem =
                "an isolated model runs on the CPU; leave n_gpu_layers out or set it to 0";
            return Err(fields.invalid("n_gpu_layers", problem));
        }
        Ok(read)
    }
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
        refused(json!({"n_ctx": -1}), "n_ctx: must be from 16 to 2147483647, got -1");
        refused(
            json!({"components": {}, "chat_template": ""}),
            "components: cannot be used together with `chat_template`",
        );
        refused(
            json!({"tool_policy": "maybe"}),
            r#"tool_policy: unknown value "maybe"; expected one of "native", "polyfill", "any""#,
        );
        refused(json!([]), "request: expected an object, got []");
        refused(
            json!({"n_threads": "many"}),
            r#"n_threads: expected "auto" or a whole number, got "many""#,
        );
        refused(
            json!({"isolation": "thread"}),
            r#"isolation: unknown value "thread"; expected one of "none", "process""#,
        );
        refused(
            json!({"isolation": "process", "n_gpu_layers": 4}),
            "n_gpu_layers: an isolated model runs on the CPU; leave n_gpu_layers out or set it to 0",
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
        assert_eq!(options.n_threads, None);
    }
}
