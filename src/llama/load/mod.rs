//! Loads models: checks before any weight is read, sharing of loaded models, and unloading. Here:
//! what loads of chats, of draft models and of embedding models have in common.
//!
//! A [`Loader`] belongs to the thread that loads, which is the one that will compute. It collects
//! what llama.cpp logs there, and runs the trials.

pub(super) mod context_checks;
mod context_fit;
pub(super) mod device_memory;
pub(super) mod draft;
pub(super) mod file_identity;
pub(super) mod file_vocabulary;
pub(super) mod fit;
pub(super) mod keep_alive;
pub(super) mod kept_model;
pub(super) mod loaded_model;
pub(super) mod memory_use;
pub(super) mod model_cache;
pub(super) mod part_memory;
pub(super) mod placement;
mod predicting;
pub(super) mod projector_file;
mod projector_memory;
mod rollback;
mod sized_context;
pub(super) mod tensor_places;
pub(super) mod weight_places;

use std::sync::Arc;

use self::file_identity::{ModelFiles, SINCE_CHECKED};
use self::weight_places::WeightPlaces;
use crate::api::CreateOptions;
use crate::error::{Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::{Adapter, LlamaContext, ModelOptions, lora};
use crate::llama::raw::{LogQueue, log};

/// llama.cpp maps whole files and reads every mapped page in advance. A file with more than this
/// many bytes after its tensors is read instead of mapped, which reads only the tensors.
const MAX_TRAILING_BYTES: u64 = 64 << 20;

/// The options of the model at this path. `headers` are those of all models that are loaded with
/// these options.
pub(crate) fn model_options(
    options: &CreateOptions,
    path: &str,
    places: &WeightPlaces,
    headers: &[&ModelHeader],
) -> ModelOptions {
    let is_short = |header: &&ModelHeader| header.trailing_bytes() <= MAX_TRAILING_BYTES;
    ModelOptions {
        path: path.to_owned(),
        n_gpu_layers: options.loading.n_gpu_layers,
        devices: places.devices.clone(),
        split: places.split.clone(),
        n_cpu_moe: options.placement.n_cpu_moe,
        rules: places.tensors.rules.clone(),
        use_mmap: options.loading.use_mmap && headers.iter().all(is_short),
        use_mlock: options.loading.use_mlock,
        repacks: !headers.iter().any(|header| header.repeats_experts()),
        predicts: false,
    }
}

/// What is known while a model is loaded: where its log goes, its files, and whether to trust it.
pub(crate) struct Loader {
    pub(crate) log: Arc<LogQueue>,
    files: Arc<ModelFiles>,
    /// Whether a load of the same files has passed its trials.
    is_trusted: bool,
}

impl Loader {
    /// From now on, what llama.cpp logs on this thread goes to `log`.
    pub(crate) fn new(log: Arc<LogQueue>, files: Arc<ModelFiles>, is_trusted: bool) -> Loader {
        log::collect_on_this_thread(Arc::clone(&log));
        Loader { log, files, is_trusted }
    }

    /// Adds the reason that llama.cpp logged to the error of a call that returned NULL.
    pub(crate) fn with_reason(&self, error: Error) -> Error {
        self.log.add_reason(error)
    }

    /// Runs the trial of a context, with which nothing was computed yet. llama.cpp has opened the
    /// files.
    pub(crate) fn tried(&self, context: LlamaContext) -> Result<LlamaContext> {
        self.files.check_unchanged(SINCE_CHECKED)?;
        if self.is_trusted { Ok(context) } else { context.tried() }
    }

    /// Loads the adapters at these paths, with these scales, and tries the context again.
    pub(crate) fn with_adapters<'a>(
        &self,
        context: LlamaContext,
        adapters: impl Iterator<Item = (&'a str, f32)>,
    ) -> Result<LlamaContext> {
        let adapters = adapters.enumerate().map(|(index, (path, scale))| {
            let adapter = Adapter::load(context.model(), path);
            let adapter = adapter.map_err(|error| self.with_reason(error));
            Ok((adapter.map_err(|error| lora::option_error(index, error))?, scale))
        });
        let adapters = adapters.collect::<Result<Vec<_>>>()?;
        if adapters.is_empty() {
            return Ok(context);
        }
        let tried = context.with_adapters(adapters).and_then(|context| self.tried(context));
        tried.map_err(|error| Error::invalid("lora", error.message()))
    }
}
