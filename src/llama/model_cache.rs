//! Loaded models: chats with the same file and load options share one.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use once_cell::sync::OnceCell;
use serde_json::{Value, json};

use super::context::{ContextOptions, LlamaContext};
use super::fit::MemoryNeeds;
use super::log::{self, LogQueue};
use super::lora::{self, Adapter};
use super::model::{Model, ModelOptions};
use super::state_file::{self, StateLimits, StateStore};
use super::trial::Verdicts;
use super::vocab::{self, LlamaVocab};
use super::{cpu, device, draft, exit, fingerprint, kernels, memory};
use crate::api::{CreateOptions, Speculative};
use crate::constraint::Grammars;
use crate::engine::{
    Drafter, Engine, LoadProgress, Loaded, NgramDrafter, SavedSequence, Speculation, TokenId,
};
use crate::error::{Code, Error, Result};
use crate::gguf::{self, Layer, ModelHeader};
use crate::process::{self, Shared, Use};

/// The context if the header does not give the trained context length.
const UNKNOWN_CONTEXT: u64 = 4096;
/// The default context, sized for a laptop.
const DEFAULT_CONTEXT: u64 = 8192;
/// llama.cpp maps whole files and reads every mapped page in advance. A file with more bytes than
/// this after its tensors is read instead, which takes its tensors only.
const MOST_TRAILING_BYTES: u64 = 64 << 20;

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
    /// The most tokens of context that the model can have, if there is a limit.
    pub most_ctx: Option<usize>,
    /// The tokens of context that the model was made for, where its file tells.
    pub trained_ctx: Option<usize>,
    key: LoadKey,
    /// Bytes of a state file's data.
    most_state_bytes: u64,
    /// What a state file must match, computed on first use.
    description: OnceCell<Value>,
}

impl LoadedModel {
    /// Reads a state file for this model, llama.cpp version and these options. `None` if there is
    /// no file. An error is a message that says why the file cannot be used.
    pub fn read_state(&self, store: &dyn StateStore) -> Result<Option<SavedSequence>, String> {
        let description = self.description().map_err(|error| error.to_string())?;
        let vocab = self.engine.vocab();
        let fits = |token: TokenId| usize::try_from(token).is_ok_and(|token| token < vocab.len());
        let limits = StateLimits { n_tokens: self.n_ctx, n_bytes: self.most_state_bytes };
        state_file::read(store, description, limits, fits)
    }

    /// Writes a state file, replacing an existing one.
    pub fn write_state(&self, store: &dyn StateStore, kept: &SavedSequence) -> Result<()> {
        let written =
            self.description().and_then(|description| state_file::write(store, description, kept));
        written.map_err(|error| {
            Error::new(Code::InferenceFailed, format!("{}: {error}", store.name())).caused_by(error)
        })
    }

    fn description(&self) -> io::Result<&Value> {
        self.description.get_or_try_init(|| {
            let LoadKey { model, context, lora, .. } = &self.key;
            let adapters = lora.iter().map(|lora| {
                Ok(json!([
                    fingerprint::of_file(Path::new(&lora.path))?,
                    f32::from_bits(lora.scale)
                ]))
            });
            Ok(json!({
                "model": fingerprint::of_file(Path::new(&model.path))?,
                "lora": adapters.collect::<io::Result<Vec<Value>>>()?,
                "llama.cpp": super::BUILD,
                "n_ctx": context.n_ctx,
                "flash_attn": format!("{:?}", context.flash_attn),
                "cache_type_k": format!("{:?}", context.cache_type_k),
                "cache_type_v": format!("{:?}", context.cache_type_v),
            }))
        })
    }
}

/// Two loads with equal keys share one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LoadKey {
    /// The process: a forked child cannot use the engines of its parent.
    forks: usize,
    file: FileIdentity,
    model: ModelOptions,
    context: ContextOptions,
    lora: Vec<AdapterKey>,
    speculative: Speculative,
    /// The draft model's file.
    draft: Option<FileIdentity>,
}

/// An adapter of a load.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AdapterKey {
    file: FileIdentity,
    path: String,
    /// The bits of the scale, which can be hashed.
    scale: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileIdentity {
    device_and_inode: (u64, u64),
    size: u64,
    modified: Option<SystemTime>,
}

/// Seconds and nanoseconds of the last change of a file or its attributes, which no program can
/// set.
type FileChange = (i64, i64);

type ModelSlot = Arc<Mutex<Weak<LoadedModel>>>;

/// Loads that passed their trials, each with the times when its files last changed in any way.
static PASSED: Verdicts<(LoadKey, Vec<Option<FileChange>>)> = Verdicts::new();

static LOADED: Shared<Option<HashMap<LoadKey, ModelSlot>>> = Shared::new(None);

/// The loaded model for these options, from memory or newly loaded. `OUT_OF_MEMORY` if it does not
/// fit, `MODEL_INVALID` if llama.cpp refuses the file, `INFERENCE_FAILED` if it refuses the
/// options.
pub fn open(
    options: &CreateOptions,
    path: &str,
    header: &ModelHeader,
    on_progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<LoadedModel>> {
    let kernels = kernels::choose(options.backend.as_deref())?;
    let context = context_options(options, header)?;
    let draft = match &options.speculative {
        Speculative::Draft { model, .. } => {
            let header = draft::header(model)?;
            Some((identify(Path::new(model)).map_err(draft::invalid)?, header))
        }
        _ => None,
    };
    let (draft, draft_header) = draft.unzip();
    if let Some(header) = &draft_header {
        check_positions(header, context.n_ctx).map_err(draft::invalid)?;
    }
    let headers: Vec<&ModelHeader> = std::iter::once(header).chain(&draft_header).collect();
    let use_mmap = options.use_mmap
        && headers.iter().all(|header| header.trailing_bytes() <= MOST_TRAILING_BYTES);
    check_memory(options, use_mmap, &context, &headers)?;
    let needs = LoadNeeds {
        model: MemoryNeeds::of(header, &context),
        draft: draft_header.as_ref().and_then(|it| MemoryNeeds::of(it, &context)),
        most_state_bytes: most_state_bytes(header, &context),
    };
    let lora = options.lora.iter().enumerate().map(|(index, lora)| {
        let checked =
            lora::check(&lora.path, header).and_then(|()| identify(Path::new(&lora.path)));
        let file = checked.map_err(|error| adapter_error(index, error))?;
        Ok(AdapterKey { file, path: lora.path.clone(), scale: lora.scale.to_bits() })
    });
    let lora: Vec<AdapterKey> = lora.collect::<Result<_>>()?;
    let model = ModelOptions {
        path: path.to_owned(),
        n_gpu_layers: options.n_gpu_layers,
        use_devices: true,
        use_mmap,
        use_mlock: options.use_mlock,
    };
    let speculative = options.speculative.clone();
    let forks = process::forks();
    let file = identify(Path::new(path))?;
    let key = LoadKey { forks, file, model, context, lora, speculative, draft };
    let entry = {
        let mut loaded = LOADED.lock();
        let loaded = loaded.get_or_insert_default();
        // Forget models that are dropped and not being loaded. The entries of a parent process may
        // be locked for ever.
        loaded.retain(|key, entry| {
            key.forks != forks
                || Arc::strong_count(entry) > 1
                || entry.lock().is_ok_and(|model| model.strong_count() > 0)
        });
        Arc::clone(loaded.entry(key.clone()).or_default())
    };
    // Held while loading: a second chat with the same key waits for the load.
    let mut slot = entry.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(model) = slot.upgrade().filter(|model| !model.engine.is_broken()) {
        on_progress(1.0);
        return Ok(model);
    }
    let most_ctx = header.learned_positions().map(|positions| positions as usize);
    let trained_ctx = header.extended_context_length().map(|tokens| tokens as usize);
    let loaded = load(&key, needs, on_progress)?;
    let model = Arc::new(LoadedModel { most_ctx, trained_ctx, ..loaded });
    kernels.log(&model.log);
    *slot = Arc::downgrade(&model);
    Ok(model)
}

/// What a load needs by its headers.
struct LoadNeeds {
    /// Device memory of the model and of the draft model.
    model: Option<MemoryNeeds>,
    draft: Option<MemoryNeeds>,
    most_state_bytes: u64,
}

fn load(
    key: &LoadKey,
    needs: LoadNeeds,
    on_progress: &mut dyn FnMut(LoadProgress),
) -> Result<LoadedModel> {
    let queue = Arc::new(LogQueue::default());
    let most_state_bytes = needs.most_state_bytes;
    let load = {
        let (queue, key) = (Arc::clone(&queue), key.clone());
        move |on_progress: &mut dyn FnMut(LoadProgress)| {
            exit::block_signals();
            log::collect_on_this_thread(Arc::clone(&queue));
            // llama.cpp returns NULL and logs the reason.
            let with_reason = |error: Error| match queue.explain(error.message()) {
                Some(reason) => {
                    let message = format!("{}: {reason}", error.message());
                    Error::new(error.code(), message).caused_by(error)
                }
                None => error,
            };
            // Before the files are read.
            let verdict = (key.clone(), key.changes());
            let is_trusted = PASSED.has_passed(&verdict);
            let tried =
                |context: LlamaContext| if is_trusted { Ok(context) } else { context.tried() };
            let load = &mut |options: &ModelOptions| {
                let model = Arc::new(Model::load(options, on_progress).map_err(with_reason)?);
                if !model.has_decoder() {
                    return Err(Error::new(
                        Code::ModelInvalid,
                        "the model is an encoder, which cannot generate text",
                    ));
                }
                if !model.has_vocabulary() {
                    return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
                }
                let context =
                    LlamaContext::new(Arc::clone(&model), &key.context).map_err(with_reason)?;
                Ok((model, tried(context)?))
            };
            let (model, mut context) =
                device::load_fitting(&key.model, needs.model.as_ref(), &queue, load)?;
            let vocab = Arc::new(LlamaVocab::new(Arc::clone(&model)));
            let speculation = speculation(&key, needs.draft.as_ref(), &vocab, &queue, &tried)
                .map_err(with_reason)?;
            let adapters = key.lora.iter().enumerate().map(|(index, lora)| {
                let loaded = Adapter::load(&model, &lora.path).map_err(with_reason);
                Ok((
                    loaded.map_err(|error| adapter_error(index, error))?,
                    f32::from_bits(lora.scale),
                ))
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
            Ok(Loaded { backend: Box::new(context), vocab, speculation })
        }
    };
    let engine = Engine::start(load, on_progress)?;
    exit::register();
    let vocab = Arc::clone(engine.vocab());
    // Built in advance: most chats have tools, and their first request should not wait.
    let grammars = Grammars::new(move || vocab::grammar_vocabulary(&vocab)).begin();
    Ok(LoadedModel {
        engine,
        grammars,
        log: queue,
        n_ctx: key.context.n_ctx as usize,
        most_ctx: None,
        trained_ctx: None,
        key: key.clone(),
        most_state_bytes,
        description: OnceCell::new(),
    })
}

/// The drafter of this load. Runs on the engine thread.
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

/// An error about the option, to tell it from an error about the model.
fn adapter_error(index: usize, error: Error) -> Error {
    Error::invalid(format_args!("lora[{index}].path"), error.message()).caused_by(error)
}

fn context_options(options: &CreateOptions, header: &ModelHeader) -> Result<ContextOptions> {
    let trained = header.context_length().filter(|n| *n > 0).unwrap_or(UNKNOWN_CONTEXT);
    let trained = trained.min(header.learned_positions().unwrap_or(u64::MAX));
    let n_ctx = options.n_ctx.unwrap_or_else(|| trained.min(DEFAULT_CONTEXT) as u32);
    check_positions(header, n_ctx)?;
    let usable = cpu::usable();
    let during = Use::begin();
    let physical = (num_cpus::get_physical() as u32).clamp(1, usable);
    drop(during);
    Ok(ContextOptions {
        n_ctx,
        n_batch: options.n_batch,
        n_parallel: options.n_parallel,
        // llama.cpp's threads spin while they wait for each other: with more threads than cores
        // they make almost no progress.
        n_threads: options.n_threads.unwrap_or(physical).min(usable),
        adapts_threads: options.n_threads.is_none(),
        flash_attn: options.flash_attn,
        cache_type_k: options.cache_type_k,
        cache_type_v: options.cache_type_v,
    })
}

/// Refuses a context with more positions than the model has learned. llama.cpp asserts on the first
/// token beyond them.
fn check_positions(header: &ModelHeader, n_ctx: u32) -> Result<()> {
    match header.learned_positions() {
        Some(positions) if positions < u64::from(n_ctx) => Err(Error::invalid(
            "n_ctx",
            format_args!(
                "the model has learned {positions} positions and cannot compute others, got {n_ctx}; set n_ctx to {positions} or less"
            ),
        )
        .with("n_ctx", n_ctx)
        .with("context_length", positions)),
        _ => Ok(()),
    }
}

/// `headers` are those of all models of the load.
fn check_memory(
    options: &CreateOptions,
    use_mmap: bool,
    context: &ContextOptions,
    headers: &[&ModelHeader],
) -> Result<()> {
    let per_token = |header: &&ModelHeader| {
        header.kv_bytes_per_token(context.cache_type_k.bytes(), context.cache_type_v.bytes())
    };
    let per_token = headers.iter().map(per_token).sum::<Option<u64>>();
    let (Some(available), Some(per_token)) = (memory::available(), per_token) else {
        return Ok(());
    };
    // The KV cache of a layer is on the layer's device, whose memory is checked elsewhere.
    let on_devices = options.n_gpu_layers != Some(0) && device::exists();
    let cache = if on_devices { 0 } else { per_token.saturating_mul(u64::from(context.n_ctx)) };
    // Mapped weights can be paged in and out. Weights that are read must fit.
    let size = |header: &&ModelHeader| header.file_size() - header.trailing_bytes();
    let weights = if use_mmap { 0 } else { headers.iter().map(size).sum() };
    let needed = cache.saturating_add(weights);
    if needed <= available {
        return Ok(());
    }
    let mib = |bytes: u64| bytes / (1 << 20);
    let message = format!(
        "n_ctx {} needs {} MiB ({} MiB KV cache), but {} MiB are available; set a smaller n_ctx",
        context.n_ctx,
        mib(needed),
        mib(cache),
        mib(available)
    );
    Err(Error::new(Code::OutOfMemory, message)
        .with("needed_bytes", needed)
        .with("available_bytes", available))
}

/// A bound of the state of one sequence: twice the cache of a full context, and room for what
/// llama.cpp notes about its cells and layers. No bound if the header lacks the sizes.
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

impl LoadKey {
    /// When each file was last changed, all parts of the models included. `None` where the system
    /// does not tell.
    fn changes(&self) -> Vec<Option<FileChange>> {
        let draft = match &self.speculative {
            Speculative::Draft { model, .. } => Some(model),
            _ => None,
        };
        let models = std::iter::once(&self.model.path).chain(draft);
        let parts = models.flat_map(|model| gguf::part_paths(Path::new(model)));
        let adapters = self.lora.iter().map(|adapter| PathBuf::from(&adapter.path));
        parts.chain(adapters).map(|path| changed(&path)).collect()
    }
}

fn changed(path: &Path) -> Option<FileChange> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.ctime(), metadata.ctime_nsec()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}

fn identify(path: &Path) -> Result<FileIdentity> {
    let metadata = std::fs::metadata(path).map_err(|error| {
        Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error)
    })?;
    #[cfg(unix)]
    let device_and_inode = {
        use std::os::unix::fs::MetadataExt;
        (metadata.dev(), metadata.ino())
    };
    #[cfg(not(unix))]
    let device_and_inode = (0, 0);
    Ok(FileIdentity { device_and_inode, size: metadata.len(), modified: metadata.modified().ok() })
}
