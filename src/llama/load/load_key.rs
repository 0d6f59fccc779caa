//! The key of a loaded model: chats whose keys are equal share it.

use std::path::{Path, PathBuf};

use super::file_identity::FileIdentity;
use crate::api::Speculative;
use crate::gguf;
use crate::llama::context::model::ModelOptions;
use crate::llama::context::options::ContextOptions;

/// Two loads with equal keys share one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LoadKey {
    /// The process that loaded the model. A forked child cannot use its parent's engines.
    pub(crate) forks: usize,
    pub(crate) file: FileIdentity,
    pub(crate) model: ModelOptions,
    pub(crate) context: ContextOptions,
    /// Whether the context is the largest one that fitted.
    pub(crate) fits_ctx: bool,
    pub(crate) lora: Vec<AdapterKey>,
    pub(crate) speculative: Speculative,
    /// The draft model's file.
    pub(crate) draft: Option<FileIdentity>,
}

/// An adapter in a load key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AdapterKey {
    pub(crate) file: FileIdentity,
    pub(crate) path: String,
}

/// Seconds and nanoseconds of a file's ctime: the last change of its content or attributes. No
/// program can set it.
pub(crate) type FileChange = (i64, i64);

impl LoadKey {
    /// The key of the same load with another batch.
    pub(crate) fn with_batch(&self, n_batch: u32) -> LoadKey {
        LoadKey { context: ContextOptions { n_batch, ..self.context.clone() }, ..self.clone() }
    }

    /// The ctimes of all files, including all parts of split models. `None` where the system does
    /// not report one.
    pub(crate) fn changes(&self) -> Vec<Option<FileChange>> {
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
