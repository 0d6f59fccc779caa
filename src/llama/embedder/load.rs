//! Loads a model and a context that computes vectors.

use std::sync::Arc;

use super::super::context::LlamaContext;
use super::super::context_checks::check_memory;
use super::super::context_options::ContextOptions;
use super::super::device_selection::DeviceSelection;
use super::super::file_identity::{ModelFiles, SINCE_CHECKED};
use super::super::fit::{self, MemoryNeeds};
use super::super::log::{self, LogQueue};
use super::super::lora::{self, Adapter};
use super::super::model::{Model, ModelOptions};
use super::super::model_cache::{MAX_TRAILING_BYTES, context_options};
use super::super::vocab::LlamaVocab;
use super::super::{device, exit, kernels};
use super::{Embedder, needs_whole_texts};
use crate::api::{EmbedOptions, Pooling};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;

/// The most texts in one decode. For models with recurrent states, llama.cpp keeps a state for
/// each.
const SEQUENCES: u32 = 64;
const SEQUENCES_WITH_STATE: u32 = 4;

/// Checks the options of a load. Returns a closure that loads on the thread that will compute.
pub(crate) fn load(
    options: &EmbedOptions,
    pooling: Pooling,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
) -> Result<impl FnOnce() -> Result<Embedder> + Send + 'static + use<>> {
    kernels::choose(options.load.loading.backend.as_deref())?;
    let devices = DeviceSelection::of(&options.load)?;
    let mut context = context_options(&options.load, header, &devices)?;
    context.pooling = Some(pooling);
    if header.is_bidirectional() {
        context.n_batch = context.n_batch.max(context.n_ctx);
    }
    let use_mmap = options.load.loading.use_mmap && header.trailing_bytes() <= MAX_TRAILING_BYTES;
    check_memory(&options.load, &devices, use_mmap, &context, &[header])?;
    for (index, lora) in options.load.loading.lora.iter().enumerate() {
        lora::check(&lora.path, header).map_err(|error| lora::option_error(index, error))?;
    }
    files.check_unchanged(SINCE_CHECKED)?;
    let files = Arc::clone(files);
    let model = ModelOptions {
        path: options.model.clone(),
        n_gpu_layers: options.load.loading.n_gpu_layers,
        devices,
        use_mmap,
        use_mlock: options.load.loading.use_mlock,
        repacks: !header.repeats_experts(),
    };
    let needs = MemoryNeeds::of(header, &context);
    let on_devices = options.load.loading.n_gpu_layers != Some(0) && model.devices.has_any();
    let layers = fit::layers_of(header, &context).filter(|_| !on_devices);
    let score_bytes = layers.map_or(0, |it| fit::score_bytes(&it, context.flash_attn));
    let n_threads = context.n_threads;
    let adapters: Vec<(String, f32)> =
        options.load.loading.lora.iter().map(|lora| (lora.path.clone(), lora.scale)).collect();
    Ok(move || {
        let log = Arc::new(LogQueue::default());
        log::collect_on_this_thread(Arc::clone(&log));
        // llama.cpp returns NULL and logs the reason.
        let with_reason = |error: Error| log.add_reason(error);
        let tried = |context: LlamaContext| {
            // llama.cpp has opened the files, and nothing was computed yet.
            files.check_unchanged(SINCE_CHECKED)?;
            context.tried()
        };
        let (model, context) =
            device::load_fitting(&model, needs.as_ref(), &log, &mut |options| {
                load_as(options, &context, &tried).map_err(with_reason)
            })?;
        let mut context = context;
        if !adapters.is_empty() {
            let adapters = adapters.iter().enumerate().map(|(index, (path, scale))| {
                let adapter = Adapter::load(&model, path).map_err(with_reason);
                Ok((adapter.map_err(|error| lora::option_error(index, error))?, *scale))
            });
            let adapters = adapters.collect::<Result<Vec<_>>>()?;
            context = context
                .with_adapters(adapters)
                .and_then(tried)
                .map_err(|error| Error::invalid("lora", error.message()))?;
        }
        let context = context.with_threads(n_threads)?;
        exit::register();
        Ok(Embedder::new(context, Arc::new(LlamaVocab::new(model)), pooling, score_bytes))
    })
}

fn load_as(
    options: &ModelOptions,
    context: &ContextOptions,
    tried: &dyn Fn(LlamaContext) -> Result<LlamaContext>,
) -> Result<(Arc<Model>, LlamaContext)> {
    let model = Arc::new(Model::load(options, &mut |_| true)?);
    if !model.has_vocabulary() {
        return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
    }
    if model.has_encoder() && model.has_decoder() {
        let message =
            "llama.cpp cannot compute vectors with a model that has an encoder and a decoder";
        return Err(Error::new(Code::ModelInvalid, message));
    }
    let n_parallel = if model.has_state() { SEQUENCES_WITH_STATE } else { SEQUENCES };
    let options = ContextOptions { n_parallel, ..context.clone() };
    let mut created = LlamaContext::new(Arc::clone(&model), &options)?;
    if options.n_batch < options.n_ctx && needs_whole_texts(&created) {
        let options = ContextOptions { n_batch: options.n_ctx, ..options };
        drop(created);
        created = LlamaContext::new(Arc::clone(&model), &options)?;
    }
    Ok((model, tried(created)?))
}
