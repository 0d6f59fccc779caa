//! The key of a loaded model: chats whose keys are equal share it.

use std::path::{Path, PathBuf};

use super::context_options::ContextOptions;
use super::file_identity::FileIdentity;
use super::model::ModelOptions;
use crate::api::Speculative;
use crate::gguf;

/// Two loads with equal keys share one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LoadKey {
    /// The process that loaded the model. A forked child cannot use its parent's engines.
    pub(super) forks: usize,
    pub(super) file: FileIdentity,
    pub(super) model: ModelOptions,
    pub(super) context: ContextOptions,
    /// Whether the context is the largest one that fitted.
    pub(super) fits_ctx: bool,
    pub(super) lora: Vec<AdapterKey>,
    pub(super) speculative: Speculative,
    /// The draft model's file.
    pub(super) draft: Option<FileIdentity>,
}

/// An adapter in a load key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AdapterKey {
    pub(super) file: FileIdentity,
    pub(super) path: String,
}

/// Seconds and nanoseconds of a file's ctime: the last change of its content or attributes. No
/// program can set it.
pub(super) type FileChange = (i64, i64);

impl LoadKey {
    /// The key of the same load with another batch.
    pub(super) fn with_batch(&self, n_batch: u32) -> LoadKey {
        LoadKey { context: ContextOptions { n_batch, ..self.context.clone() }, ..self.clone() }
    }

    /// The ctimes of all files, including all parts of split models. `None` where the system does
    /// not report one.
    pub(super) fn changes(&self) -> Vec<Option<FileChange>> {
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
