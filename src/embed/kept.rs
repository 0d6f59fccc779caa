//! The model of an embedding handle. It is in memory while a call uses it, and until it is unloaded
//! (`keep_alive`). The next call loads it again.
//!
//! Unlike for a chat, no state is saved before it is unloaded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::loaded::{self, LoadedEmbedder};
use crate::api::{EmbedOptions, Pooling};
use crate::error::Result;
use crate::gguf::ModelHeader;
use crate::llama::{self, HeldModel, Kept, ModelFiles, Release};

/// The model of one handle. Any thread may use it.
pub(super) struct KeptEmbedder {
    options: EmbedOptions,
    pooling: Pooling,
    held: HeldModel<LoadedEmbedder>,
}

/// A call that uses a model: it stays in memory until this is dropped.
pub(super) struct EmbedderUse {
    kept: Arc<KeptEmbedder>,
    /// `None` only while it is dropped.
    model: Option<Arc<LoadedEmbedder>>,
}

impl EmbedderUse {
    pub(super) fn model(&self) -> &LoadedEmbedder {
        self.model.as_ref().expect("it is taken by the drop alone")
    }
}

impl Drop for EmbedderUse {
    fn drop(&mut self) {
        let model = self.model.take();
        if !self.kept.held.is_own() {
            return std::mem::forget(model);
        }
        drop(model);
        self.kept.held.end_use(|time| drop(self.kept.release(Some(time))));
    }
}

impl KeptEmbedder {
    /// Loads a model whose header was read, after `files` were identified, and checked.
    pub(super) fn open(
        options: &EmbedOptions,
        pooling: Pooling,
        files: ModelFiles,
        header: &ModelHeader,
    ) -> Result<Arc<KeptEmbedder>> {
        let files = Arc::new(files);
        let load = llama::with_absolute_paths(&options.load);
        let options = EmbedOptions { load, model: files.path().to_owned(), ..options.clone() };
        let model = loaded::open(&options, pooling, &files, header)?;
        let held = HeldModel::new(model, files, options.load.loading.keep_alive);
        let kept = Arc::new(KeptEmbedder { options, pooling, held });
        llama::watch(&kept, &kept.held);
        Ok(kept)
    }

    /// Keeps the model in memory for a call. Loads it if it was unloaded: errors are those of a
    /// create, and `MODEL_INVALID` if a file has changed since.
    pub(super) fn acquire(self: &Arc<Self>) -> Result<EmbedderUse> {
        let mut hold = self.held.lock();
        let model = match &hold.model {
            Some(model) => Arc::clone(model),
            None => {
                self.held.files.check_unchanged("the model was opened; open it again")?;
                let header = ModelHeader::read_file(Path::new(&self.options.model))?;
                header.check_before_load(Path::new(&self.options.model))?;
                loaded::open(&self.options, self.pooling, &self.held.files, &header)?
            }
        };
        hold.model = Some(Arc::clone(&model));
        hold.uses += 1;
        drop(hold);
        Ok(EmbedderUse { kept: Arc::clone(self), model: Some(model) })
    }
}

impl Kept for KeptEmbedder {
    fn is_busy(&self) -> bool {
        self.held.is_busy()
    }

    fn release(&self, idle: Option<Duration>) -> Release {
        match self.held.lock_idle(idle) {
            Ok(hold) => {
                HeldModel::unload(hold);
                Release::Done
            }
            Err(release) => release,
        }
    }
}
