//! The model of a chat. It is in memory while a request uses it, and until it is unloaded
//! (`keep_alive`). The next request loads it again.
//!
//! Chats share loaded models (`model_cache`), so the memory is freed once no chat holds the model.
//! Nothing here emits events: what happened is recorded for the log of the next call.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::file_identity::{ModelFiles, absolute};
use super::keep_alive::{HeldModel, Kept, ModelHold, Release, watch};
use super::loaded_model::LoadedModel;
use super::model_cache;
use crate::api::{CreateOptions, LogLevel, ProjectorChoice, Speculative};
use crate::engine::{Interrupt, LoadProgress};
use crate::error::Result;
use crate::gguf::{self, ModelHeader};
use crate::llama::raw::LogQueue;

/// The state of a chat that lives in the model's memory.
pub trait KeptState: Send + Sync {
    /// Saves the state before the model is unloaded. If this fails, the model stays loaded.
    fn save(&self) -> Result<()>;

    /// Restores the state in a model that was loaded again.
    fn restore(&self, model: &LoadedModel);
}

/// The model of one chat. Any thread may use it.
pub struct KeptModel {
    options: CreateOptions,
    path: String,
    held: HeldModel<LoadedModel>,
    /// The model that this chat used last. Other chats may still hold it.
    last: Mutex<Weak<LoadedModel>>,
    state: OnceLock<Weak<dyn KeptState>>,
    notes: LogQueue,
}

/// A request's use of a model. The model stays in memory until this is dropped.
pub struct ModelUse(Arc<KeptModel>);

impl Drop for ModelUse {
    fn drop(&mut self) {
        if self.0.held.is_own() {
            self.0.held.end_use(|time| drop(self.0.release(Some(time))));
        }
    }
}

impl KeptModel {
    /// Loads the model with these options, or shares a loaded one. `header` was read after `files`
    /// were identified. Errors are those of a create.
    pub fn open(
        options: &CreateOptions,
        files: ModelFiles,
        header: &ModelHeader,
        on_progress: &mut dyn FnMut(LoadProgress) -> bool,
    ) -> Result<Arc<KeptModel>> {
        let files = Arc::new(files);
        let path = files.path().to_owned();
        let mut options = with_absolute_paths(options);
        let model = model_cache::open(&options, &files, header, on_progress)?;
        let keep_alive = options.loading.keep_alive;
        options.context.n_ctx = u32::try_from(model.n_ctx).ok();
        let kept = Arc::new(KeptModel {
            options,
            path,
            last: Mutex::new(Arc::downgrade(&model)),
            held: HeldModel::new(model, files, keep_alive),
            state: OnceLock::new(),
            notes: LogQueue::default(),
        });
        watch(&kept, &kept.held);
        Ok(kept)
    }

    /// Registers a state to save and restore together with the model.
    pub fn keep_state(&self, state: Weak<dyn KeptState>) {
        let _ = self.state.set(state);
    }

    /// Keeps the model in memory for a request, and loads it first if it was unloaded. Errors are
    /// those of a create, `MODEL_INVALID` if a file has changed, and `CANCELLED`.
    pub fn acquire(self: &Arc<Self>, interrupt: &Interrupt) -> Result<ModelUse> {
        let mut hold = self.held.lock();
        self.loaded_by(&mut hold, interrupt)?;
        hold.uses += 1;
        drop(hold);
        Ok(ModelUse(Arc::clone(self)))
    }

    /// Returns the model, and loads it first if it was unloaded. The returned reference should be
    /// held only briefly.
    pub fn model(&self) -> Result<Arc<LoadedModel>> {
        self.loaded_by(&mut self.held.lock(), &Interrupt::default())
    }

    /// The model if it is in memory and not being loaded.
    pub fn in_memory(&self) -> Option<Arc<LoadedModel>> {
        self.held.try_lock()?.model.clone()
    }

    /// Takes the recorded log lines of at least this level.
    pub fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        let mut lines = self.notes.take(least);
        lines.extend(self.in_memory().iter().flat_map(|model| model.log.take(least)));
        lines
    }

    fn loaded_by(
        &self,
        hold: &mut ModelHold<LoadedModel>,
        interrupt: &Interrupt,
    ) -> Result<Arc<LoadedModel>> {
        if let Some(model) = &hold.model {
            return Ok(Arc::clone(model));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = last.upgrade().filter(|model| !model.engine.is_broken());
        let model = match shared {
            Some(model) => model,
            None => {
                let start = Instant::now();
                let model = self.load_again(interrupt)?;
                let seconds = start.elapsed().as_secs_f64();
                self.notes.push(LogLevel::Info, format!("model: loaded again in {seconds:.1} s"));
                if let Some(state) = self.state.get().and_then(Weak::upgrade) {
                    state.restore(&model);
                }
                model
            }
        };
        *last = Arc::downgrade(&model);
        hold.model = Some(Arc::clone(&model));
        Ok(model)
    }

    fn load_again(&self, interrupt: &Interrupt) -> Result<Arc<LoadedModel>> {
        self.held.files.check_unchanged("the chat was created; create it again")?;
        let header = ModelHeader::read_file(Path::new(&self.path))?;
        header.check_before_load(Path::new(&self.path))?;
        let files = &self.held.files;
        model_cache::open(&self.options, files, &header, &mut |_| !interrupt.is_over())
    }
}

impl Kept for KeptModel {
    fn is_busy(&self) -> bool {
        self.held.is_busy()
    }

    fn release(&self, idle: Option<Duration>) -> Release {
        match self.held.lock_idle(idle) {
            // The state is saved without holding the lock, using the model that is about to be
            // released.
            Ok(mut hold) => hold.uses += 1,
            Err(release) => return release,
        }
        let saved = self.state.get().and_then(Weak::upgrade).map_or(Ok(()), |state| state.save());
        let mut hold = self.held.lock();
        hold.uses -= 1;
        if let Err(error) = saved {
            hold.idle_since = Instant::now();
            self.notes.push(LogLevel::Error, format!("model: stays loaded: {}", error.message()));
            return Release::Failed(error);
        }
        if hold.uses > 0 {
            return Release::Busy;
        }
        HeldModel::unload(hold);
        let why = match idle {
            Some(idle) => format!("after {} s without a request", idle.as_secs_f64()),
            None => "by llb_model_unload".to_owned(),
        };
        self.notes.push(LogLevel::Info, format!("model: unloaded {why}"));
        Release::Done
    }
}

/// The options with absolute paths, so that a later load does not depend on the working directory.
pub(crate) fn with_absolute_paths(options: &CreateOptions) -> CreateOptions {
    let mut options = options.clone();
    for lora in &mut options.loading.lora {
        lora.path = absolute(&lora.path);
    }
    if let Speculative::Draft { model, .. } = &mut options.loading.speculative {
        *model = absolute(model);
    }
    if let Some(ProjectorChoice::Path(path)) = &mut options.loading.projector {
        *path = absolute(path);
    }
    (options.template.chat_template, options.template.components) = (None, None);
    options
}

/// Identifies all files that a load reads.
pub fn files_of(options: &CreateOptions, path: &str) -> ModelFiles {
    let path = absolute(path);
    let options = with_absolute_paths(options);
    let mut paths = gguf::part_paths(Path::new(&path));
    paths.extend(options.loading.lora.iter().map(|lora| PathBuf::from(&lora.path)));
    if let Speculative::Draft { model, .. } = &options.loading.speculative {
        paths.extend(gguf::part_paths(Path::new(model)));
    }
    if let Some(ProjectorChoice::Path(path)) = &options.loading.projector {
        paths.push(PathBuf::from(path));
    }
    ModelFiles::identify(&path, paths)
}
