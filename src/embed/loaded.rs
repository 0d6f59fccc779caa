//! Models in memory. Handles with the same files and options share one, and their calls get turns.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::texts::TextTokenizer;
use super::thread::EmbedThread;
use crate::api::{ContextChoice, EmbedOptions, LoadingChoice, PlacementChoice, Pooling};
use crate::error::Result;
use crate::gguf::ModelHeader;
use crate::llama::{self, ModelFiles};
use crate::process::{self, Shared};

/// A model in memory.
pub(super) struct LoadedEmbedder {
    pub(super) thread: EmbedThread,
    pub(super) tokenizer: TextTokenizer,
    /// The maximum number of tokens of a text.
    pub(super) n_ctx: usize,
    /// The length of a vector, or the number of scores.
    pub(super) width: usize,
    /// Its files, as they were when it was loaded.
    files: Arc<ModelFiles>,
}

type EmbedderSlot = Arc<Mutex<Weak<LoadedEmbedder>>>;

static LOADED: Shared<Vec<(EmbedderKey, EmbedderSlot)>> = Shared::new(Vec::new());

/// Two loads with equal keys share a model while its files are unchanged.
#[derive(PartialEq)]
struct EmbedderKey {
    /// The process that loaded the model. A forked child cannot use its parent's threads.
    forks: usize,
    /// The absolute path of the model.
    path: String,
    pooling: Pooling,
    context: ContextChoice,
    loading: LoadingChoice,
    placement: PlacementChoice,
}

/// Returns the model for these options, shared or newly loaded. `header` was read after `files` were
/// identified, and checked. The path in `options` is absolute.
pub(super) fn open(
    options: &EmbedOptions,
    pooling: Pooling,
    files: &Arc<ModelFiles>,
    header: &ModelHeader,
) -> Result<Arc<LoadedEmbedder>> {
    let slot = slot(EmbedderKey {
        forks: process::forks(),
        path: options.model.clone(),
        pooling,
        context: options.load.context.clone(),
        // Each handle has its own.
        loading: LoadingChoice { keep_alive: None, ..options.load.loading.clone() },
        placement: options.load.placement.clone(),
    });
    // Locked while loading, so that a second handle with the same key waits for the load.
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let is_usable = |model: &Arc<LoadedEmbedder>| {
        !model.thread.is_broken() && model.files.check_unchanged("it was loaded").is_ok()
    };
    if let Some(model) = slot.upgrade().filter(is_usable) {
        return Ok(model);
    }
    let load = llama::load_embedder(options, pooling, files, header)?;
    let (thread, facts) = EmbedThread::start(load)?;
    let model = Arc::new(LoadedEmbedder {
        thread,
        tokenizer: TextTokenizer::new(facts.vocab)?,
        n_ctx: facts.n_ctx,
        width: facts.width,
        files: Arc::clone(files),
    });
    *slot = Arc::downgrade(&model);
    Ok(model)
}

/// The slot of a key. Removes models that were dropped and are not being loaded.
fn slot(key: EmbedderKey) -> EmbedderSlot {
    let mut loaded = LOADED.lock();
    // Slots of a parent process may be locked forever.
    loaded.retain(|(other, slot)| {
        other.forks != key.forks
            || Arc::strong_count(slot) > 1
            || slot.lock().is_ok_and(|model| model.strong_count() > 0)
    });
    if let Some((_, slot)) = loaded.iter().find(|(other, _)| *other == key) {
        return Arc::clone(slot);
    }
    let slot = EmbedderSlot::default();
    loaded.push((key, Arc::clone(&slot)));
    slot
}
