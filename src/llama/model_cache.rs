//! Loaded models: chats with the same file and load options share one.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use once_cell::sync::OnceCell;
use serde_json::{Value, json};

use super::context::LlamaContext;
use super::context_options::ContextOptions;
use super::device_selection::{self, DeviceSelection};
use super::file_identity::{FileIdentity, ModelFiles, SINCE_CHECKED, identify};
use super::fit::MemoryNeeds;
use super::load_key::{AdapterKey, FileChange, LoadKey};
use super::log::{self, LogQueue};
use super::lora::{self, Adapter};
use super::model::{Model, ModelOptions};
use super::state_file::{self, StateLimits};
use super::state_store::StateStore;
use super::trial::Verdicts;
use super::vocab::{self, LlamaVocab};
use super::{context_checks, cpu, device, draft, exit, fingerprint, fit, kernels, memory_use};
use crate::api::{AdapterScales, CreateOptions, DEFAULT_N_CTX, Speculative};
use crate::constraint::Grammars;
use crate::engine::{
    Drafter, Engine, LoadProgress, Loaded, NgramDrafter, SavedSequence, Speculation, TokenId,
};
use crate::error::{Code, Error, Result};
use crate::gguf::{self, Layer, ModelHeader};
use crate::process::{self, Shared, Use};

/// The context length if the header does not contain the trained one.
pub(super) const UNKNOWN_CONTEXT: u64 = 4096;
/// llama.cpp maps whole files and reads every mapped page in advance. A file with more than this
/// many bytes after its tensors is read instead of mapped, which reads only the tensors.
pub(super) const MAX_TRAILING_BYTES: u64 = 64 << 20;

/// The reason for refusing a model without a decoder, or without memory of earlier tokens.
const ENCODER: &str = "the model does not generate text token by token; if it is an encoder, open it \
                       with llb_embed_create for vectors of texts";

/// The reason for refusing a model that generates from the text of an encoder (T5).
const ENCODER_AND_DECODER: &str = "the model has an encoder and a decoder; llb generates text only \
                                   with models that have a decoder alone";

/// A model in memory with its engine.
pub struct LoadedModel {
    /// Runs the jobs.
    pub engine: Engine,
    /// Compiles grammars for the vocabulary.
    pub grammars: Grammars,
    /// What llama.cpp logged.
    pub log: Arc<LogQueue>,
    /// Tokens of context.
    pub n_ctx: usize,
    /// The most tokens of context that the model supports, if there is a limit.
    pub most_ctx: Option<usize>,
    /// The trained context length in tokens, if the file contains it.
    pub trained_ctx: Option<usize>,
    /// The reason why a full context cannot be shifted; `None` if it can be.
    pub shift_refusal: Option<&'static str>,
    key: LoadKey,
    /// The most bytes of data in a state file.
    most_state_bytes: u64,
    /// The description that a state file must match, computed on first use.
    description: OnceCell<Value>,
}

impl LoadedModel {
    /// Reads a state file, which must match this model, the llama.cpp version and these options.
    /// `None` if the file does not exist. The error is a message that says why the file cannot be
    /// used.
    pub fn read_state(&self, store: &dyn StateStore) -> Result<Option<SavedSequence>, String> {
        let description = self.description().map_err(|error| error.to_string())?;
        let vocab = self.engine.vocab();
        let fits = |token: TokenId| usize::try_from(token).is_ok_and(|token| token < vocab.len());
        let limits = StateLimits {
            n_tokens: self.n_ctx,
            n_bytes: self.most_state_bytes,
            n_adapters: self.key.lora.len(),
        };
        state_file::read(store, description, limits, fits)
    }

    /// Writes a state file, replacing an existing one.
    pub fn write_state(&self, store: &dyn StateStore, kept: &SavedSequence) -> Result<()> {
        let written = self
            .state_description(&kept.adapters)
            .and_then(|description| state_file::write(store, &description, kept));
        written.map_err(|error| {
            Error::new(Code::InferenceFailed, format!("{}: {error}", store.name())).caused_by(error)
        })
    }

    /// What a state of this model with these adapters can be used by: a model of the same content,
    /// llama.cpp, and options that shape a state.
    pub fn state_description(&self, adapters: &AdapterScales) -> io::Result<Value> {
        let mut description = self.description()?.clone();
        description["lora_scales"] = adapters.to_json();
        Ok(description)
    }

    fn description(&self) -> io::Result<&Value> {
        self.description.get_or_try_init(|| {
            let LoadKey { file, model, context, lora, .. } = &self.key;
            let adapters =
                lora.iter().map(|lora| Ok(fingerprint::of_file(Path::new(&lora.path))?.into()));
            let adapters = adapters.collect::<io::Result<Vec<Value>>>()?;
            let content = fingerprint::of_files(&gguf::part_paths(Path::new(&model.path)))?;
            // The files may have been replaced while the model in memory is the old one.
            let loaded = std::iter::once((&model.path, file));
            for (path, loaded) in loaded.chain(lora.iter().map(|lora| (&lora.path, &lora.file))) {
                if identify(Path::new(path)).ok().as_ref() != Some(loaded) {
                    let problem = format!("{path}: the file has changed since it was loaded");
                    return Err(io::Error::other(problem));
                }
            }
            Ok(json!({
                "model": content,
                "lora": adapters,
                "llama.cpp": super::BUILD,
                "n_ctx": context.n_ctx,
                "kv_unified": context.kv_unified,
                "flash_attn": format!("{:?}", context.flash_attn),
                "cache_type_k": format!("{:?}", context.cache_type_k),
                "cache_type_v": format!("{:?}", context.cache_type_v),
            }))
        })
    }
}

type ModelSlot = Arc<Mutex<Weak<LoadedModel>>>;

/// Loads that passed their trials, each with the ctimes of its files.
static PASSED: Verdicts<(LoadKey, Vec<Option<FileChange>>)> = Verdicts::new();

static LOADED: Shared<Option<HashMap<LoadKey, ModelSlot>>> = Shared::new(None);

/// Returns the model for these options, shared or newly loaded. `header` was read after `files`
/// were identified. `OUT_OF_MEMORY` if it does not fit, `MODEL_INVALID` if a file has changed since
/// or llama.cpp refuses it, `INFERENCE_FAILED` if it refuses the options.
pub(super) fn open(
    options: &CreateOptions,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
    on_progress: &mut dyn FnMut(LoadProgress) -> bool,
) -> Result<Arc<LoadedModel>> {
    let path = files.path();
    let kernels = kernels::choose(options.loading.backend.as_deref())?;
    let devices = DeviceSelection::of(options)?;
    let mut context = context_options(options, header, &devices)?;
    let file = identify(Path::new(path))?;
    if options.context.fits && options.context.n_ctx.is_none() {
        context.n_ctx = match loaded_fit(&file, &context, options.context.n_batch.is_none()) {
            Some(n_ctx) => n_ctx,
            None => memory_use::fitting_ctx(options, &devices, path, header, &context)?,
        };
    }
    let draft = match &options.loading.speculative {
        Speculative::Draft { model, .. } => {
            let header = draft::header(model)?;
            Some((identify(Path::new(model)).map_err(draft::invalid)?, header))
        }
        _ => None,
    };
    let (draft, draft_header) = draft.unzip();
    if let Some(header) = &draft_header {
        context_checks::check_positions(header, context.n_ctx).map_err(draft::invalid)?;
    }
    let headers: Vec<&ModelHeader> = std::iter::once(header).chain(&draft_header).collect();
    let use_mmap = options.loading.use_mmap
        && headers.iter().all(|header| header.trailing_bytes() <= MAX_TRAILING_BYTES);
    context_checks::check_memory(options, &devices, use_mmap, &context, &headers)?;
    let lora = options.loading.lora.iter().enumerate().map(|(index, lora)| {
        let checked = lora::check(&lora.path, header).and_then(|_| identify(Path::new(&lora.path)));
        let file = checked.map_err(|error| lora::option_error(index, error))?;
        Ok(AdapterKey { file, path: lora.path.clone() })
    });
    let lora: Vec<AdapterKey> = lora.collect::<Result<_>>()?;
    files.check_unchanged(SINCE_CHECKED)?;
    let model = ModelOptions {
        path: path.to_owned(),
        n_gpu_layers: options.loading.n_gpu_layers,
        devices,
        use_mmap,
        use_mlock: options.loading.use_mlock,
        repacks: !headers.iter().any(|header| header.repeats_experts()),
    };
    let speculative = options.loading.speculative.clone();
    let forks = process::forks();
    let fits_ctx = options.context.fits;
    let mut key = LoadKey { forks, file, model, context, fits_ctx, lora, speculative, draft };
    if options.context.n_batch.is_none() {
        key.context.n_batch = loaded_batch(&key).unwrap_or(key.context.n_batch);
    }
    let needs = LoadNeeds {
        model: MemoryNeeds::of(header, &key.context),
        draft: draft_header.as_ref().and_then(|it| MemoryNeeds::of(it, &key.context)),
        most_state_bytes: most_state_bytes(header, &key.context),
    };
    let entry = {
        let mut loaded = LOADED.lock();
        let loaded = loaded.get_or_insert_default();
        // Removes models that were dropped and are not being loaded. Entries of a parent process
        // may be locked forever.
        loaded.retain(|key, entry| {
            key.forks != forks
                || Arc::strong_count(entry) > 1
                || entry.lock().is_ok_and(|model| model.strong_count() > 0)
        });
        Arc::clone(loaded.entry(key.clone()).or_default())
    };
    // Locked while loading, so that a second chat with the same key waits for the load.
    let mut slot = entry.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(model) = slot.upgrade().filter(|model| !model.engine.is_broken()) {
        on_progress(1.0);
        return Ok(model);
    }
    let most_ctx = header.learned_positions().map(|positions| positions as usize);
    let trained_ctx = header.extended_context_length().map(|tokens| tokens as usize);
    let loaded = load(&key, files, needs, on_progress)?;
    let model = Arc::new(LoadedModel { most_ctx, trained_ctx, ..loaded });
    kernels.log(&model.log);
    device_selection::log(options, &model.log);
    *slot = Arc::downgrade(&model);
    Ok(model)
}

/// Whether an entry is that of a model that is loaded, or being loaded: then it is locked.
fn is_loaded(entry: &ModelSlot) -> bool {
    entry.try_lock().map_or(true, |model| model.strong_count() > 0)
}

/// The context of a loaded model that was fitted with these options. Fitting again would give a
/// smaller one, because the model itself takes memory now. With `has_any_batch`, its batch may be
/// another one that llb chooses.
fn loaded_fit(file: &FileIdentity, context: &ContextOptions, has_any_batch: bool) -> Option<u32> {
    let forks = process::forks();
    let loaded = LOADED.lock();
    let fitted = loaded.iter().flatten().find(|(key, entry)| {
        let ContextOptions { n_ctx, n_batch, .. } = *context;
        let found = key.context.n_batch;
        let has_batch = found == n_batch || has_any_batch && fit::BATCHES.contains(&found);
        let like = ContextOptions { n_ctx, n_batch, ..key.context.clone() };
        let is_like = has_batch && key.file == *file && like == *context;
        key.fits_ctx && key.forks == forks && is_like && is_loaded(entry)
    });
    fitted.map(|(key, _)| key.context.n_ctx)
}

/// The batch of a loaded model with this key otherwise. The free memory, by which it was chosen, is
/// another one now.
fn loaded_batch(key: &LoadKey) -> Option<u32> {
    let loaded = LOADED.lock();
    let loaded = loaded.as_ref()?;
    let has = |n_batch: &u32| loaded.get(&key.with_batch(*n_batch)).is_some_and(is_loaded);
    fit::BATCHES.into_iter().rev().find(has)
}

/// What a load needs, computed from the headers.
struct LoadNeeds {
    /// The device memory for the model and the draft model.
    model: Option<MemoryNeeds>,
    draft: Option<MemoryNeeds>,
    most_state_bytes: u64,
}

fn load(
    key: &LoadKey,
    files: &Arc<ModelFiles>,
    needs: LoadNeeds,
    on_progress: &mut dyn FnMut(LoadProgress) -> bool,
) -> Result<LoadedModel> {
    let queue = Arc::new(LogQueue::default());
    let most_state_bytes = needs.most_state_bytes;
    let shift_refusal = Arc::new(OnceCell::new());
    let load = {
        let (queue, key, files) = (Arc::clone(&queue), key.clone(), Arc::clone(files));
        let shift_refusal = Arc::clone(&shift_refusal);
        move |on_progress: &mut dyn FnMut(LoadProgress) -> bool| {
            log::collect_on_this_thread(Arc::clone(&queue));
            let with_reason = |error: Error| queue.add_reason(error);
            // Read before the files, so that later changes are noticed.
            let verdict = (key.clone(), key.changes());
            let is_trusted = PASSED.has_passed(&verdict);
            let tried = |context: LlamaContext| {
                // llama.cpp has opened the files, and nothing was computed yet.
                files.check_unchanged(SINCE_CHECKED)?;
                if is_trusted { Ok(context) } else { context.tried() }
            };
            let load = &mut |options: &ModelOptions| {
                let model = Arc::new(Model::load(options, on_progress).map_err(with_reason)?);
                if !model.has_decoder() {
                    return Err(Error::new(Code::ModelInvalid, ENCODER));
                }
                if !model.has_vocabulary() {
                    return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
                }
                let context =
                    LlamaContext::new(Arc::clone(&model), &key.context).map_err(with_reason)?;
                if !context.has_memory() {
                    return Err(Error::new(Code::ModelInvalid, ENCODER));
                }
                let context = tried(context).map_err(|error| {
                    if error.code() != Code::ModelInvalid || !model.has_encoder() {
                        return error;
                    }
                    Error::new(Code::ModelInvalid, ENCODER_AND_DECODER).caused_by(error)
                })?;
                Ok((model, context))
            };
            let (model, mut context) =
                device::load_fitting(&key.model, needs.model.as_ref(), &queue, load)?;
            let vocab = Arc::new(LlamaVocab::new(Arc::clone(&model)));
            let speculation = speculation(&key, needs.draft.as_ref(), &vocab, &queue, &tried)
                .map_err(with_reason)?;
            let adapters = key.lora.iter().enumerate().map(|(index, lora)| {
                let loaded = Adapter::load(&model, &lora.path).map_err(with_reason);
                // All adapters are on during the trial. Each request sets its own scales.
                Ok((loaded.map_err(|error| lora::option_error(index, error))?, 1.0))
            });
            let adapters = adapters.collect::<Result<Vec<_>>>()?;
            if !adapters.is_empty() {
                context = context
                    .with_adapters(adapters)
                    .and_then(tried)
                    .map_err(|error| Error::invalid("lora", error.message()))?;
            }
            let context = context.with_threads(key.context.n_threads)?;
            PASSED.pass(verdict);
            shift_refusal.get_or_init(|| context.shift_refusal());
            Ok(Loaded { backend: Box::new(context), vocab, speculation })
        }
    };
    let engine = Engine::start(load, on_progress)?;
    exit::register();
    let vocab = Arc::clone(engine.vocab());
    // Built in advance, because most chats have tools and their first request should not wait.
    let grammars = Grammars::new(move || vocab::grammar_vocabulary(&vocab)).begin();
    Ok(LoadedModel {
        engine,
        grammars,
        log: queue,
        n_ctx: key.context.n_ctx as usize,
        most_ctx: None,
        trained_ctx: None,
        shift_refusal: shift_refusal.get().copied().flatten(),
        key: key.clone(),
        most_state_bytes,
        description: OnceCell::new(),
    })
}

/// The drafter for speculative decoding. Runs on the engine thread.
fn speculation(
    key: &LoadKey,
    needs: Option<&MemoryNeeds>,
    vocab: &LlamaVocab,
    log: &LogQueue,
    tried: &dyn Fn(LlamaContext) -> Result<LlamaContext>,
) -> Result<Option<Speculation>> {
    let (drafter, n_max): (Box<dyn Drafter>, u32) = match &key.speculative {
        Speculative::Off => return Ok(None),
        Speculative::Ngram { n_max, ngram } => {
            (Box::new(NgramDrafter::new(*ngram as usize)), *n_max)
        }
        Speculative::Draft { model, n_max } => {
            let options = ModelOptions { path: model.clone(), ..key.model.clone() };
            (Box::new(draft::load(&options, &key.context, needs, vocab, log, tried)?), *n_max)
        }
    };
    Ok(Some(Speculation::new(drafter, n_max as usize)))
}

pub(super) fn context_options(
    options: &CreateOptions,
    header: &ModelHeader,
    devices: &DeviceSelection,
) -> Result<ContextOptions> {
    let trained = header.context_length().filter(|n| *n > 0).unwrap_or(UNKNOWN_CONTEXT);
    let trained = trained.min(header.learned_positions().unwrap_or(u64::MAX));
    let n_ctx = options.context.n_ctx.unwrap_or_else(|| trained.min(DEFAULT_N_CTX.into()) as u32);
    context_checks::check_positions(header, n_ctx)?;
    context_checks::check_cells(options, header)?;
    let usable = cpu::usable();
    let during = Use::begin();
    let physical = (num_cpus::get_physical() as u32).clamp(1, usable);
    drop(during);
    let mut context = ContextOptions {
        n_ctx,
        n_batch: options.context.n_batch.unwrap_or_default(),
        n_parallel: options.context.n_parallel,
        kv_unified: options.context.kv_unified,
        // llama.cpp's threads spin while they wait for each other, so with more threads than cores
        // they make almost no progress.
        n_threads: options.loading.n_threads.unwrap_or(physical).min(usable),
        adapts_threads: options.loading.n_threads.is_none(),
        flash_attn: options.context.flash_attn,
        cache_type_k: options.context.cache_type_k,
        cache_type_v: options.context.cache_type_v,
        pooling: None,
    };
    if options.context.n_batch.is_none() {
        let uses_devices = options.loading.n_gpu_layers != Some(0);
        let devices = if uses_devices { device::measured(devices) } else { Vec::new() };
        context.n_batch = fit::batch_size(header, &context, &devices, options.loading.n_gpu_layers);
    }
    Ok(context)
}

/// An upper bound for the state of one sequence: twice the cache of a full context, and room for
/// llama.cpp's data about cells and layers. Without a limit if the header lacks the sizes.
fn most_state_bytes(header: &ModelHeader, context: &ContextOptions) -> u64 {
    const NOTES: u64 = 16 << 20;
    const NOTES_PER_TOKEN: u64 = 64;
    let (key, value) = (context.cache_type_k.bytes(), context.cache_type_v.bytes());
    let Some(layers) = header.layers(key, value) else { return u64::MAX };
    let n_ctx = u64::from(context.n_ctx);
    let layer = |layer: &Layer| {
        layer.per_token.saturating_mul(n_ctx).saturating_add(layer.per_sequence).saturating_mul(2)
    };
    layers
        .blocks
        .iter()
        .map(layer)
        .fold(NOTES.saturating_add(n_ctx.saturating_mul(NOTES_PER_TOKEN)), u64::saturating_add)
}
