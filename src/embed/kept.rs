//! An embedding model in memory while a call uses it, and until it was idle for the time of the option
//! `keep_alive`, or `llb_model_unload` is called. The next call loads it again.
//!
//! As `llama::KeptModel`, but each handle has a model of its own, and nothing of it is kept between
//! calls.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::texts::TextTokenizer;
use super::thread::EmbedThread;
use crate::api::{EmbedOptions, Pooling};
use crate::error::Result;
use crate::gguf::ModelHeader;
use crate::llama::{self, Kept, ModelFiles, Release};
use crate::process;

/// A model in memory.
pub(super) struct LoadedEmbedder {
    pub(super) thread: EmbedThread,
    pub(super) tokenizer: TextTokenizer,
    /// The most tokens of a text.
    pub(super) n_ctx: usize,
    /// The length of a vector, or the number of scores.
    pub(super) width: usize,
}

/// The model of one handle. Any thread may use it.
pub(super) struct KeptEmbedder {
    options: EmbedOptions,
    pooling: Pooling,
    files: Arc<ModelFiles>,
    /// The process: in a child, a thread of the parent may have held the lock.
    forks: usize,
    hold: Mutex<Hold>,
}

struct Hold {
    model: Option<Arc<LoadedEmbedder>>,
    /// Calls that use it now.
    uses: usize,
    idle_since: Instant,
}

/// A call that uses a model: it stays in memory until this is dropped.
pub(super) struct EmbedderUse {
    kept: Arc<KeptEmbedder>,
    /// `None` only while it is dropped.
    model: Option<Arc<LoadedEmbedder>>,
}

impl EmbedderUse {
    /// The model.
    pub(super) fn model(&self) -> &LoadedEmbedder {
        self.model.as_ref().expect("it is taken by the drop alone").deref()
    }
}

impl Drop for EmbedderUse {
    fn drop(&mut self) {
        if self.kept.forks != process::forks() {
            return std::mem::forget(self.model.take());
        }
        drop(self.model.take());
        let mut hold = self.kept.lock();
        hold.uses -= 1;
        hold.idle_since = Instant::now();
        let is_idle = hold.uses == 0;
        drop(hold);
        match self.kept.options.load.keep_alive {
            Some(time) if is_idle && time.is_zero() => drop(self.kept.release(Some(time))),
            Some(_) if is_idle => llama::wake_keeper(),
            _ => {}
        }
    }
}

impl Drop for KeptEmbedder {
    fn drop(&mut self) {
        if self.options.load.keep_alive.is_some() && self.forks == process::forks() {
            llama::look_again();
        }
    }
}

impl KeptEmbedder {
    /// Loads a model whose header was checked.
    pub(super) fn open(
        options: &EmbedOptions,
        pooling: Pooling,
        header: &ModelHeader,
    ) -> Result<Arc<KeptEmbedder>> {
        let path = llama::absolute(&options.model);
        let load = llama::with_absolute_paths(&options.load);
        let files = Arc::new(ModelFiles::identify(&path, llama::file_paths(&load, &path))?);
        let options = EmbedOptions { load, model: path, ..options.clone() };
        let model = Arc::new(load_model(&options, pooling, header)?);
        let hold = Hold { model: Some(model), uses: 0, idle_since: Instant::now() };
        let forks = process::forks();
        let kept =
            Arc::new(KeptEmbedder { options, pooling, files, forks, hold: Mutex::new(hold) });
        llama::watch(&kept, &kept.files, kept.options.load.keep_alive);
        Ok(kept)
    }

    /// Keeps the model in memory for a call. Loads it if it was unloaded: errors are those of a
    /// create, and `MODEL_INVALID` if a file has changed since.
    pub(super) fn acquire(self: &Arc<Self>) -> Result<EmbedderUse> {
        let mut hold = self.lock();
        let model = match &hold.model {
            Some(model) => Arc::clone(model),
            None => {
                self.files.check_unchanged("the model was opened; open it again")?;
                let header = ModelHeader::read_file(Path::new(&self.options.model))?;
                header.check_before_load(Path::new(&self.options.model))?;
                Arc::new(load_model(&self.options, self.pooling, &header)?)
            }
        };
        hold.model = Some(Arc::clone(&model));
        hold.uses += 1;
        drop(hold);
        Ok(EmbedderUse { kept: Arc::clone(self), model: Some(model) })
    }

    fn lock(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another thread loads the model.
    fn try_lock(&self) -> Option<MutexGuard<'_, Hold>> {
        match self.hold.try_lock() {
            Ok(hold) => Some(hold),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Kept for KeptEmbedder {
    fn is_busy(&self) -> bool {
        self.try_lock().is_none_or(|hold| hold.uses > 0)
    }

    fn release(&self, idle: Option<Duration>) -> Release {
        let Some(mut hold) = self.try_lock() else { return Release::Busy };
        if hold.model.is_none() {
            return Release::Absent;
        }
        if hold.uses > 0 {
            return Release::Busy;
        }
        if let Some(end) = idle.and_then(|idle| hold.idle_since.checked_add(idle))
            && Instant::now() < end
        {
            return Release::Until(end);
        }
        let model = hold.model.take();
        drop(hold);
        // Waits for the end of its thread.
        if model.and_then(Arc::into_inner).is_some() {
            llama::give_memory_back();
        }
        Release::Done
    }
}

fn load_model(
    options: &EmbedOptions,
    pooling: Pooling,
    header: &ModelHeader,
) -> Result<LoadedEmbedder> {
    let (thread, facts) = EmbedThread::start(llama::load_embedder(options, pooling, header)?)?;
    let tokenizer = TextTokenizer::new(facts.vocab)?;
    Ok(LoadedEmbedder { thread, tokenizer, n_ctx: facts.n_ctx, width: facts.width })
}
