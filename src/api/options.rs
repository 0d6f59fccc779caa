//! The options of `llb_chat_create_with`.

use std::time::Duration;

use serde_json::{Value, json};

use super::defaults::RequestDefaults;
use super::devices::DeviceChoice;
use super::engine::RemoteOptions;
use super::fields::{Fields, JsonPath};
use super::limits::TemplateLimits;
use super::lora::Lora;
use super::media_limits::MediaLimits;
use super::member::members;
use super::placement::PlacementChoice;
use super::polyfills::Polyfills;
use super::projector::ProjectorChoice;
use super::reply_shape::ReplyShape;
use super::speculative::Speculative;
use crate::error::Result;

/// The default context in tokens, sized for a laptop. A model that was trained with a shorter
/// context has that one.
pub const DEFAULT_N_CTX: u32 = 8192;

named_enum! {
    /// Which models the tool-capability check accepts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
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
    #[non_exhaustive]
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
    #[non_exhaustive]
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

members! {
    /// The checked options of a chat. None leaves the choice to the model or the machine.
    #[derive(Debug, Clone)]
    pub struct CreateOptions {
        /// The path of the GGUF file.
        model: Option<String> = None => text(),
        /// Where the model runs.
        isolation: Isolation = Isolation::None => one_of(Isolation::NAMES),
        /// Default values for members of a request. The model file may set those that are absent
        /// here.
        defaults: RequestDefaults = RequestDefaults::default()
            => custom(|fields| RequestDefaults::read(fields).map(Some)) writes |_| Value::Null,
        /// What to do with a conversation that does not fit the context.
        context_overflow: ContextOverflow = ContextOverflow::Error
            => one_of(ContextOverflow::NAMES),
        /// The lowest severity of log messages that go to the event callback.
        log: LogLevel = LogLevel::Off => one_of(LogLevel::NAMES),
    }
    extra {
        /// The function that opens the chat.
        reply_shape: ReplyShape,
        /// The servers that generate replies. None is llama.cpp in this process.
        engine: Option<RemoteOptions>,
        /// The size and the form of the context.
        context: ContextChoice,
        /// How the model is loaded, and which devices compute.
        loading: LoadingChoice,
        /// Where the weights live.
        placement: PlacementChoice,
        /// The files with computed state.
        storage: StorageChoice,
        /// The chat template.
        template: TemplateChoice,
        /// The media files of requests.
        media: MediaChoice,
    }
}

members! {
    /// The size and the form of a context.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ContextChoice {
        /// The size of the context in tokens. None is the model's own, but at most
        /// [`DEFAULT_N_CTX`].
        n_ctx: Option<u32> = None => optional(read_n_ctx),
        /// Whether to choose the largest context that fits into memory, in place of `n_ctx`.
        fits("n_ctx"): bool = false
            => custom(|fields| Ok(Some(is_fit(fields)))) writes |_| Value::Null,
        /// The maximum number of chats that are decoded together.
        n_parallel: u32 = 4 => whole(1..=64),
        /// Whether all chats share the `n_ctx` cells of the KV cache. If not, each of the
        /// `n_parallel` chats has `n_ctx` cells of its own. None decides by the devices and their
        /// memory.
        kv_unified: Option<bool> = None => boolean_or_auto(),
        /// The maximum number of tokens per decode call. None chooses it for the processor or the
        /// devices.
        n_batch: Option<u32> = None => integer_or_auto(64..=16_384),
        /// Flash attention.
        flash_attn: FlashAttention = FlashAttention::Auto => one_of(FlashAttention::NAMES),
        /// Element type of the keys in the KV cache.
        cache_type_k: CacheType = CacheType::F16 => one_of(CacheType::NAMES),
        /// Element type of the values in the KV cache.
        cache_type_v: CacheType = CacheType::F16 => one_of(CacheType::NAMES),
    }
}

members! {
    /// How a model is loaded, and what computes it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LoadingChoice {
        /// The maximum number of threads, at most one per core. None is up to one per physical
        /// core, depending on the load of the machine.
        n_threads: Option<u32> = None => integer_or_auto(1..=512),
        /// The variant of the kernels. None is the fastest variant that the processor supports.
        backend: Option<String> = None => custom(read_backend) writes |_| "auto".into(),
        /// The devices that may hold layers.
        devices: DeviceChoice = DeviceChoice::Auto
            => custom(|fields| DeviceChoice::read(fields).map(Some)) writes |_| "auto".into(),
        /// The number of layers on a GPU. None is as many as fit.
        n_gpu_layers: Option<u32> = None => integer_or_auto(0..=i32::MAX as i64),
        /// Whether to map the file into memory instead of reading it.
        use_mmap: bool = true => boolean(),
        /// Whether to lock the weights in memory.
        use_mlock: bool = false => boolean(),
        /// How long the model stays in memory after a request. None keeps it as long as the chat
        /// is open.
        keep_alive: Option<Duration> = None => custom(read_keep_alive) writes |_| (-1).into(),
        /// The adapters of the model's weights.
        lora: Vec<Lora> = Vec::new()
            => custom(|fields| Lora::read_all(fields).map(Some)) writes |_| json!([]),
        /// The file with the encoder of pictures. None takes text only.
        projector: Option<ProjectorChoice> = None
            => optional(ProjectorChoice::read) writes |_| Value::Null,
        /// Speculative decoding.
        speculative("speculative", "draft_model"): Speculative = Speculative::Auto
            => custom(|fields| Speculative::read(fields).map(Some)) writes |_| "auto".into(),
    }
}

members! {
    /// The files that keep the KV cache of a chat.
    #[derive(Debug, Clone)]
    pub struct StorageChoice {
        /// The file in which the KV cache of the chat is saved, for a later chat to restore.
        state_file: Option<String> = None => text(),
        /// The folder with stored prefixes of prompts. Chats and processes share it.
        cache_dir: Option<String> = None => text(),
        /// The maximum size of that folder in bytes: by default a few long prompts of a model with
        /// 8 billion parameters.
        cache_bytes: u64 = 4 << 30 => whole(1..=i64::MAX),
    }
}

members! {
    /// The chat template, and what is adapted to it.
    #[derive(Debug, Clone)]
    pub struct TemplateChoice {
        /// Jinja text that replaces the template of the file.
        chat_template: Option<String> = None => text(),
        /// The components of a chat template, or the name of a registered template. Excludes
        /// `chat_template`.
        components: Option<Value> = None
            => optional(|fields| Ok(fields.get("components").cloned())),
        /// Which models are accepted.
        tool_policy: ToolPolicy = ToolPolicy::Native => one_of(ToolPolicy::NAMES),
        /// The polyfills for requests without a member `polyfills`.
        polyfills: Polyfills = Polyfills::default()
            => custom(Polyfills::read) writes |_| Value::Null,
        /// The limits of one template render.
        template_limits: TemplateLimits = TemplateLimits::default()
            => custom(|fields| TemplateLimits::read(fields).map(Some)) writes |_| Value::Null,
    }
}

named_enum! {
    /// The servers from which media files are fetched.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum MediaUrls {
        /// None.
        None = "none",
        /// Servers with addresses of the public internet.
        Public = "public",
        /// All, also those of this machine and its networks.
        All = "all",
    }
}

members! {
    /// Which media files a request may have.
    #[derive(Debug, Clone)]
    pub struct MediaChoice {
        /// The limits of the media files of a request.
        limits("media_limits"): MediaLimits = MediaLimits::default()
            => custom(|fields| MediaLimits::read(fields).map(Some)) writes |_| Value::Null,
        /// The folders whose files a request may name.
        folders("media_folders"): Vec<String> = Vec::new() => custom(read_media_folders),
        /// The servers whose files a request may name by http and https URLs.
        urls("media_urls"): MediaUrls = MediaUrls::None => one_of(MediaUrls::NAMES),
    }
}

impl CreateOptions {
    /// The options of `llb_chat_create`. They equal those of `llb_chat_create_with({"model":
    /// path})`, except for the shape of replies.
    pub fn for_model(path: Option<&str>) -> CreateOptions {
        CreateOptions {
            reply_shape: ReplyShape::Classic,
            model: path.map(str::to_owned),
            ..CreateOptions::default()
        }
    }

    /// Reads the options. An unknown name is an error, so that a misspelled option is not ignored.
    pub fn read(options: &Value) -> Result<CreateOptions> {
        let fields = &mut Fields::new(JsonPath::OPTIONS, options)?;
        let engine = RemoteOptions::read(fields, options)?;
        let mut read = CreateOptions { engine, ..CreateOptions::default() };
        read.set(fields)?;
        read.context.set(fields)?;
        read.loading.set(fields)?;
        read.placement.set(fields)?;
        read.storage.set(fields)?;
        read.template.set(fields)?;
        read.media.set(fields)?;
        fields.refuse_ignored("unknown option")?;
        read.check_together(fields)?;
        Ok(read)
    }

    /// Refuses options that exclude each other.
    fn check_together(&self, fields: &Fields) -> Result<()> {
        if self.template.components.is_some() && self.template.chat_template.is_some() {
            return Err(
                fields.invalid("components", "cannot be used together with `chat_template`")
            );
        }
        if self.isolation == Isolation::Process && self.loading.n_gpu_layers.is_some_and(|n| n > 0)
        {
            let problem =
                "an isolated model runs on the CPU; leave n_gpu_layers out or set it to 0";
            return Err(fields.invalid("n_gpu_layers", problem));
        }
        if self.isolation == Isolation::Process
            && matches!(self.loading.devices, DeviceChoice::Named(_))
        {
            let problem =
                "an isolated model runs on the CPU; leave devices out or set it to \"none\"";
            return Err(fields.invalid("devices", problem));
        }
        if self.isolation == Isolation::Process
            && let Some(name) = self.placement.names_device()
        {
            let problem = "an isolated model runs on the CPU; leave it out";
            return Err(fields.invalid(name, problem));
        }
        if self.loading.projector.is_some() {
            let problem = match () {
                () if self.engine.is_some() => {
                    "needs a model in this process; leave one of `engine` and `projector` out"
                }
                () if matches!(self.loading.speculative, Speculative::Draft { .. }) => {
                    "cannot be used with `draft_model`, which takes text only; leave one of them out"
                }
                () => "",
            };
            if !problem.is_empty() {
                return Err(fields.invalid("projector", problem));
            }
        }
        if let Some(path) = &self.storage.cache_dir {
            let problem = match () {
                () if path.is_empty() => "the path is empty; name a folder",
                () if self.engine.is_some() => "needs a model in this process",
                () if self.isolation == Isolation::Process => {
                    "cannot be used with `isolation` \"process\", whose helper may not read or \
                     write files; leave one of them out"
                }
                () => "",
            };
            if !problem.is_empty() {
                return Err(fields.invalid("cache_dir", problem));
            }
        }
        if self.isolation == Isolation::Process
            && self.loading.keep_alive.is_some()
            && self.storage.state_file.is_some()
        {
            let problem = "cannot be used with `state_file` in an isolated chat, whose state is \
                           written when it is closed; leave one of them out";
            return Err(fields.invalid("keep_alive", problem));
        }
        if self.context.fits && self.engine.is_some() {
            return Err(fields.invalid("n_ctx", "\"fit\" needs a model in this process"));
        }
        if self.context.fits && matches!(self.loading.speculative, Speculative::Draft { .. }) {
            return Err(fields.invalid("n_ctx", "\"fit\" cannot be used with `draft_model`"));
        }
        Ok(())
    }
}

impl MediaChoice {
    /// Reads the options from the members of another request.
    #[cfg(all(llb_isolation, feature = "engine"))]
    pub(crate) fn read(fields: &mut Fields) -> Result<MediaChoice> {
        let mut read = MediaChoice::default();
        read.set(fields)?;
        Ok(read)
    }
}

/// Whether `n_ctx` is "fit".
fn is_fit(fields: &mut Fields) -> bool {
    fields.get("n_ctx").is_some_and(|n_ctx| n_ctx == "fit")
}

/// Reads `n_ctx`; "fit" is None.
fn read_n_ctx(fields: &mut Fields) -> Result<Option<u32>> {
    if is_fit(fields) {
        return Ok(None);
    }
    Ok(fields.integer("n_ctx", 16..=i64::from(i32::MAX))?.map(|n| n as u32))
}

/// Reads `media_folders`.
fn read_media_folders(fields: &mut Fields) -> Result<Option<Vec<String>>> {
    const NAME: &str = "media_folders";
    let Some(folders) = fields.array(NAME)? else { return Ok(None) };
    let folders = fields.strings(NAME, folders)?;
    match folders.iter().position(String::is_empty) {
        Some(index) => {
            let path = format!("{NAME}[{index}]");
            Err(fields.invalid(&path, "the path is empty; name a folder"))
        }
        None => Ok(Some(folders)),
    }
}

/// Reads `backend`; "auto" is None.
fn read_backend(fields: &mut Fields) -> Result<Option<Option<String>>> {
    let name = fields.string("backend")?;
    Ok(name.map(|name| (name != "auto").then(|| name.to_owned())))
}

/// Reads a number of seconds. As in Ollama, a negative number means forever.
fn read_keep_alive(fields: &mut Fields) -> Result<Option<Option<Duration>>> {
    const MAX: f64 = 1e9;
    let seconds = fields.number("keep_alive", -MAX..=MAX)?;
    Ok(seconds.map(|seconds| (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds))))
}

/// The member of requests that names a model file.
#[cfg(feature = "engine")]
pub(crate) const MODEL_PATH: &str = "model_path";

/// Reads `model_path`, which is required.
#[cfg(feature = "engine")]
pub(crate) fn model_path<'a>(fields: &mut Fields<'a>) -> Result<&'a str> {
    match fields.string(MODEL_PATH)? {
        Some("") => Err(fields.invalid(MODEL_PATH, "is empty; pass the path of a GGUF file")),
        Some(path) => Ok(path),
        None => Err(fields.invalid(MODEL_PATH, "missing; pass the path of a GGUF file")),
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
            (
                options.model.as_deref(),
                options.context.n_ctx,
                options.loading.n_gpu_layers,
                options.log
            ),
            (Some("m.gguf"), Some(512), None, LogLevel::Warn)
        );
        assert_eq!((options.loading.n_threads, options.loading.keep_alive), (None, None));
        for (seconds, read) in [(json!(1.5), Some(1500)), (json!(0), Some(0)), (json!(-1), None)] {
            let options = CreateOptions::read(&json!({ "keep_alive": seconds })).expect("valid");
            assert_eq!(options.loading.keep_alive, read.map(Duration::from_millis));
        }
    }
}
