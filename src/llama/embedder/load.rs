//! Loads a model and a context that computes vectors.

use std::sync::Arc;

use super::{Embedder, needs_whole_texts};
use crate::api::{EmbedOptions, Pooling};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::{ContextOptions, LlamaContext, Model, ModelOptions, lora};
use crate::llama::devices::DeviceSelection;
use crate::llama::kernels;
use crate::llama::load::context_checks::{check_memory, context_options};
use crate::llama::load::file_identity::{ModelFiles, SINCE_CHECKED};
use crate::llama::load::fit::{self, MemoryNeeds};
use crate::llama::load::loader::{Loader, model_options};
use crate::llama::load::placement;
use crate::llama::raw::{LogQueue, exit};
use crate::llama::vocab::LlamaVocab;

/// The most texts in one decode. For models with recurrent states, llama.cpp keeps a state for
/// each.
const SEQUENCES: u32 = 64;
const SEQUENCES_WITH_STATE: u32 = 4;

/// Checks the options of a load. Returns a closure that loads on the thread that will compute.
pub(crate) fn load_embedder(
    options: &EmbedOptions,
    pooling: Pooling,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
) -> Result<impl FnOnce() -> Result<Embedder> + Send + 'static + use<>> {
    kernels::choose(options.load.backend.as_deref())?;
    let devices = DeviceSelection::of(&options.load)?;
    let mut context = context_options(&options.load, header, &devices)?;
    context.pooling = Some(pooling);
    if header.is_bidirectional() {
        context.n_batch = context.n_batch.max(context.n_ctx);
    }
    let model = model_options(&options.load, &options.model, devices, &[header]);
    check_memory(&model, &context, &[header])?;
    lora::check_all(&options.load.lora, header)?;
    files.check_unchanged(SINCE_CHECKED)?;
    let files = Arc::clone(files);
    let needs = MemoryNeeds::of(header, &context);
    let layers = fit::layers_of(header, &context).filter(|_| !model.may_use_devices());
    let score_bytes = layers.map_or(0, |it| fit::score_bytes(&it, context.flash_attn));
    let n_threads = context.n_threads;
    let adapters = options.load.lora.clone();
    Ok(move || {
        let loader = Loader::new(Arc::new(LogQueue::default()), files, false);
        let load = &mut |options: &ModelOptions| {
            let loaded = load_as(options, &context, &loader);
            loaded.map_err(|error| loader.with_reason(error))
        };
        let (model, context) = placement::load_fitting(&model, needs.as_ref(), &loader.log, load)?;
        let adapters = adapters.iter().map(|adapter| (adapter.path.as_str(), adapter.scale));
        let context = loader.with_adapters(context, adapters)?;
        let context = context.with_threads(n_threads)?;
        exit::register();
        Ok(Embedder::new(context, Arc::new(LlamaVocab::new(model)), pooling, score_bytes))
    })
}

fn load_as(
    options: &ModelOptions,
    context: &ContextOptions,
    loader: &Loader,
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
    Ok((model, loader.tried(created)?))
}
