//! A model file with the options to open it, and what its header says.

use std::path::Path;

use serde_json::Value;

use super::chat::Chat;
use super::embedder::Embedder;
use super::events::Events;
use super::members::Members;
use super::template::Template;
use crate::api::{ContextOverflow, CreateOptions, EmbedOptions, LogLevel, ToolPolicy};
use crate::error::Result;
use crate::ffi;
use crate::profile;

/// A model file, and the options to open it.
///
/// The methods set options, and [`Model::set`] sets any option by its name (docs/abi.md). Nothing is
/// read before one of [`info`](Model::info), [`chat`](Model::chat) and
/// [`embedder`](Model::embedder).
///
/// ```
#[doc = include_str!("scripted.txt")]
/// # let path = scripted("text.gguf");
/// use llb::{Code, Model};
///
/// let model = Model::new(path).n_ctx(512).set("cache_type_k", "q8_0").set("cache_type_v", "q8_0");
/// let chat = model.chat()?;
/// # drop(chat);
///
/// let error = model.set("n_treads", 2).chat().unwrap_err();
/// assert_eq!(error.code(), Code::InvalidRequest);
/// assert_eq!(error.message(), "n_treads: unknown option; did you mean `n_threads`?");
/// # Ok::<(), llb::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Model {
    options: Members,
    events: Events,
}

impl Model {
    /// The model in a GGUF file, or in the file and those that follow it. The default value of this
    /// type has no file, for the option `engine`.
    pub fn new(path: impl AsRef<Path>) -> Model {
        Model::default().set("model", path.as_ref().to_string_lossy())
    }

    /// The size of the context in tokens. Without it, that of the model, at most 8192.
    #[must_use]
    pub fn n_ctx(self, tokens: u32) -> Model {
        self.set("n_ctx", tokens)
    }

    /// How many chats of one model are decoded together. Without it, 4.
    #[must_use]
    pub fn n_parallel(self, chats: u32) -> Model {
        self.set("n_parallel", chats)
    }

    /// The maximum number of threads. Without it, one per physical core, depending on the load of
    /// the machine.
    #[must_use]
    pub fn n_threads(self, threads: u32) -> Model {
        self.set("n_threads", threads)
    }

    /// The number of layers on a GPU. Without it, as many as fit.
    #[must_use]
    pub fn n_gpu_layers(self, layers: u32) -> Model {
        self.set("n_gpu_layers", layers)
    }

    /// A chat template in place of the file's.
    #[must_use]
    pub fn chat_template(self, jinja: impl Into<String>) -> Model {
        self.set("chat_template", jinja.into())
    }

    /// Which models are accepted. Without it, those whose template carries tools.
    #[must_use]
    pub fn tool_policy(self, policy: ToolPolicy) -> Model {
        self.set("tool_policy", policy.as_str())
    }

    /// What to do with a conversation that does not fit the context. Without it, an error.
    #[must_use]
    pub fn context_overflow(self, overflow: ContextOverflow) -> Model {
        self.set("context_overflow", overflow.as_str())
    }

    /// The least severe messages of llama.cpp that are events. Without it, none.
    #[must_use]
    pub fn log(self, level: LogLevel) -> Model {
        self.set("log", level.as_str())
    }

    /// Receives the events of the chats of this model, such as `load_progress:0.25` and
    /// `log:warn:…` (docs/abi.md), on the thread of the call that emits them. The closure must not
    /// call the chat, except for [`Chat::cancel`].
    #[must_use]
    pub fn on_event(self, on_event: impl Fn(&str) + Send + Sync + 'static) -> Model {
        Model { events: Events::new(on_event), ..self }
    }

    /// Sets an option by its name, or replaces it. An unknown name is an error of
    /// [`chat`](Model::chat) and [`embedder`](Model::embedder).
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Model {
        self.options.set(name, value);
        self
    }

    /// The path of the file; empty without one.
    pub fn path(&self) -> &str {
        self.options.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// What the model can do, from the header of its file. Reads no weights; takes milliseconds.
    ///
    /// # Errors
    /// [`ModelNotFound`](super::Code::ModelNotFound), [`ModelInvalid`](super::Code::ModelInvalid),
    /// or the errors of the chat template.
    ///
    /// ```
    #[doc = include_str!("scripted.txt")]
    /// # let path = scripted("text.gguf");
    /// let info = llb::Model::new(path).info()?;
    /// assert!(info.supports_tools());
    /// assert_eq!(info.architecture(), "llama");
    /// assert_eq!(info.get("tool_support").unwrap(), "native");
    /// # Ok::<(), llb::Error>(())
    /// ```
    pub fn info(&self) -> Result<ModelInfo> {
        let info = ffi::catch(|| profile::model_info(self.path()).map_err(|(_, error)| error))?;
        Ok(ModelInfo(info))
    }

    /// The chat template of the file.
    pub fn template(&self) -> Template {
        Template::of_file(self.path())
    }

    /// Checks that the model can carry tools, loads it, and opens a chat.
    ///
    /// # Errors
    /// [`ModelNotToolCapable`](super::Code::ModelNotToolCapable) if the check fails; see
    /// [`Model::tool_policy`].
    pub fn chat(&self) -> Result<Chat> {
        let options = || CreateOptions::read(&self.options.to_value("options")?);
        Chat::open(options, self.events.sink())
    }

    /// Loads a model that computes embeddings or scores.
    ///
    /// # Errors
    /// [`InvalidRequest`](super::Code::InvalidRequest), also for an option that only chats have.
    pub fn embedder(&self) -> Result<Embedder> {
        Embedder::open(|| EmbedOptions::read(&self.options.to_value("options")?))
    }
}

/// What the header of a model file says, and what its chat template can do.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo(Value);

impl ModelInfo {
    /// Whether the model's own template carries tools and calls.
    pub fn supports_tools(&self) -> bool {
        self.0["supports_tools"] == true
    }

    /// The architecture, such as `qwen2`.
    pub fn architecture(&self) -> &str {
        self.text("architecture").unwrap_or_default()
    }

    /// The name in the metadata.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// The quantization, such as `Q4_K_M`.
    pub fn quantization(&self) -> Option<&str> {
        self.text("quantization")
    }

    /// The number of parameters.
    pub fn n_params(&self) -> Option<u64> {
        self.get("n_params")?.as_u64()
    }

    /// The context length that the model was trained with.
    pub fn context_length(&self) -> Option<u64> {
        self.get("context_length")?.as_u64()
    }

    /// The size of the file in bytes.
    pub fn file_size(&self) -> Option<u64> {
        self.get("file_size")?.as_u64()
    }

    /// A member by its name in JSON (`llb_model_info` in docs/abi.md), such as `evidence`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_sets_an_option() {
        let model = Model::new("m.gguf")
            .n_ctx(512)
            .n_parallel(2)
            .n_threads(3)
            .n_gpu_layers(5)
            .chat_template("t")
            .tool_policy(ToolPolicy::Any)
            .context_overflow(ContextOverflow::TruncateOldest)
            .log(LogLevel::Warn);
        let read = CreateOptions::read(&model.options.to_value("options").expect("small"));
        let read = read.expect("valid");
        assert_eq!((read.model.as_deref(), model.path()), (Some("m.gguf"), "m.gguf"));
        assert_eq!((read.context.n_ctx, read.context.n_parallel), (Some(512), 2));
        assert_eq!((read.loading.n_threads, read.loading.n_gpu_layers), (Some(3), Some(5)));
        assert_eq!(read.template.chat_template.as_deref(), Some("t"));
        assert_eq!(read.template.tool_policy, ToolPolicy::Any);
        assert_eq!(read.context_overflow, ContextOverflow::TruncateOldest);
        assert_eq!(read.log, LogLevel::Warn);
    }
}
