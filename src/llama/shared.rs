//! Loaded models, one per file and load options, however many chats use them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use super::context::{ContextOptions, LlamaContext};
use super::log::{self, LogQueue};
use super::model::{Model, ModelOptions};
use super::vocab::{self, LlamaVocab};
use super::{cpu, exit, memory};
use crate::api::CreateOptions;
use crate::constraint::Grammars;
use crate::engine::{Engine, Progress, Vocab};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;

/// Context of a model whose header does not say what it was trained for.
const UNKNOWN_CONTEXT: u64 = 4096;
/// Default context: what a laptop can spare.
const DEFAULT_CONTEXT: u64 = 8192;

/// A model in memory with its engine.
pub struct LoadedModel {
    /// Runs jobs.
    pub engine: Engine,
    /// Compiles grammars for its vocabulary.
    pub grammars: Grammars,
    /// What llama.cpp logged.
    pub log: Arc<LogQueue>,
    /// Tokens of context.
    pub n_ctx: usize,
}

/// What makes two loads the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    file: FileIdentity,
    model: ModelOptions,
    context: ContextOptions,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileIdentity {
    device_and_inode: (u64, u64),
    size: u64,
    modified: Option<SystemTime>,
}

type Entry = Arc<Mutex<Weak<LoadedModel>>>;

static LOADED: Mutex<Option<HashMap<Key, Entry>>> = Mutex::new(None);

/// The loaded model for these options: one that is in memory already, or a new one. `OUT_OF_MEMORY` where it cannot fit,
/// `MODEL_INVALID` where llama.cpp refuses the file, `INFERENCE_FAILED` where it refuses the options.
pub fn open(
    options: &CreateOptions,
    path: &str,
    header: &ModelHeader,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Arc<LoadedModel>> {
    cpu::check()?;
    let context = context_options(options, header);
    check_memory(options, &context, header)?;
    let model = ModelOptions {
        path: path.to_owned(),
        n_gpu_layers: options.n_gpu_layers,
        use_mmap: options.use_mmap,
        use_mlock: options.use_mlock,
    };
    let key = Key { file: identify(Path::new(path))?, model, context };
    let entry = {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        // Forget models that are gone and that nobody is loading.
        loaded.retain(|_, entry| Arc::strong_count(entry) > 1 || entry.lock().is_ok_and(|model| model.strong_count() > 0));
        Arc::clone(loaded.entry(key.clone()).or_default())
    };
    // Held while loading: a second chat on the same file waits for the first one's load.
    let mut slot = entry.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(model) = slot.upgrade().filter(|model| !model.engine.is_broken()) {
        on_progress(1.0);
        return Ok(model);
    }
    let model = Arc::new(load(&key, on_progress)?);
    *slot = Arc::downgrade(&model);
    Ok(model)
}

fn load(key: &Key, on_progress: &mut dyn FnMut(Progress)) -> Result<LoadedModel> {
    let queue = Arc::new(LogQueue::default());
    let load = {
        let (queue, key) = (Arc::clone(&queue), key.clone());
        move |on_progress: &mut dyn FnMut(Progress)| {
            log::collect_on_this_thread(Arc::clone(&queue));
            // llama.cpp returns NULL and logs why.
            let with_reason = |error: Error| match queue.last_error() {
                Some(reason) => Error::new(error.code(), format!("{}: {reason}", error.message())),
                None => error,
            };
            let model = Arc::new(Model::load(&key.model, on_progress).map_err(with_reason)?);
            if !model.has_decoder() {
                return Err(Error::new(Code::ModelInvalid, "the model only encodes; it cannot chat"));
            }
            if !model.has_vocabulary() {
                return Err(Error::new(Code::ModelInvalid, "the model has no vocabulary"));
            }
            let vocab: Arc<dyn Vocab> = Arc::new(LlamaVocab::new(Arc::clone(&model)));
            let context = LlamaContext::new(model, &key.context).map_err(with_reason)?;
            let backend: Box<dyn crate::engine::Backend> = Box::new(context);
            Ok((backend, vocab))
        }
    };
    let engine = Engine::start(load, on_progress)?;
    exit::register();
    let vocab = Arc::clone(engine.vocab());
    // Most chats have tools, and their first request should not wait for this.
    let grammars = Grammars::new(move || vocab::words(&vocab)).begin();
    Ok(LoadedModel { engine, grammars, log: queue, n_ctx: key.context.n_ctx as usize })
}

fn context_options(options: &CreateOptions, header: &ModelHeader) -> ContextOptions {
    let trained = header.context_length().filter(|n| *n > 0).unwrap_or(UNKNOWN_CONTEXT);
    let n_ctx = options.n_ctx.unwrap_or_else(|| trained.min(DEFAULT_CONTEXT) as u32);
    let usable = num_cpus::get().max(1) as u32;
    let physical = (num_cpus::get_physical() as u32).clamp(1, usable);
    ContextOptions {
        n_ctx,
        n_batch: options.n_batch,
        n_parallel: options.n_parallel,
        // llama.cpp's threads wait for each other in loops: more than can run at once never come to an end.
        n_threads: options.n_threads.unwrap_or(physical).min(usable),
        flash_attn: options.flash_attn,
        cache_type_k: options.cache_type_k,
        cache_type_v: options.cache_type_v,
    }
}

fn check_memory(options: &CreateOptions, context: &ContextOptions, header: &ModelHeader) -> Result<()> {
    let (Some(available), Some(per_token)) =
        (memory::available(), header.kv_bytes_per_token(context.cache_type_k.bytes(), context.cache_type_v.bytes()))
    else {
        return Ok(());
    };
    let cache = per_token.saturating_mul(u64::from(context.n_ctx));
    // Mapped weights can be paged in and out; weights that are read must fit.
    let weights = if options.use_mmap { 0 } else { header.file_size() };
    let needed = cache.saturating_add(weights);
    if needed <= available {
        return Ok(());
    }
    let mib = |bytes: u64| bytes / (1 << 20);
    let message = format!(
        "n_ctx {} needs {} MiB ({} MiB KV cache), but {} MiB are available; ask for a smaller n_ctx",
        context.n_ctx,
        mib(needed),
        mib(cache),
        mib(available)
    );
    Err(Error::new(Code::OutOfMemory, message).with("needed_bytes", needed).with("available_bytes", available))
}

fn identify(path: &Path) -> Result<FileIdentity> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| Error::new(Code::ModelNotFound, format!("{}: {error}", path.display())).caused_by(error))?;
    #[cfg(unix)]
    let device_and_inode = {
        use std::os::unix::fs::MetadataExt;
        (metadata.dev(), metadata.ino())
    };
    #[cfg(not(unix))]
    let device_and_inode = (0, 0);
    Ok(FileIdentity { device_and_inode, size: metadata.len(), modified: metadata.modified().ok() })
}
