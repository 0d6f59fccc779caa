//! The option `state_file`: what a chat has computed, from one chat to the next.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::llama::LoadedModel;

/// The state file of one chat.
pub(crate) struct Saved {
    path: PathBuf,
    chat: u64,
    /// Why the file was of no use, until a reply has said so.
    ignored: Mutex<Option<String>>,
    /// Whether a request has run, so that there may be something new to write.
    used: AtomicBool,
}

impl Saved {
    /// Refuses a path in a folder that is not there, before anything is loaded: that would be found
    /// out when the chat ends.
    pub(crate) fn check(path: &str) -> Result<()> {
        let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => Err(Error::invalid(
                "state_file",
                format!("there is no folder {}; make it first", folder.display()),
            )),
            None => Ok(()),
        }
    }

    /// Restores what is in the file, if there is one that fits.
    pub(crate) fn restore(path: &str, chat: u64, model: &LoadedModel) -> Saved {
        let path = PathBuf::from(path);
        let restored = model.read_state(&path).and_then(|kept| match kept {
            Some(kept) => {
                model.engine.restore(chat, kept).map_err(|error| error.message().to_owned())
            }
            None => Ok(()),
        });
        let ignored = restored.err().map(|reason| format!("{}: {reason}", path.display()));
        Saved { path, chat, ignored: Mutex::new(ignored), used: AtomicBool::new(false) }
    }

    /// A request runs.
    pub(crate) fn use_it(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Why the file was of no use.
    pub(crate) fn ignored(&self) -> Option<String> {
        self.ignored.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same as a diagnostic, once.
    pub(crate) fn take_diagnostic(&self) -> Option<Diagnostic> {
        let message = self.ignored.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Diagnostic::new("state_ignored", message))
    }

    /// Writes what the last request left in the KV cache. Where nothing ran, or another chat has
    /// taken its place since, the file stays as it is.
    pub(crate) fn write(&self, model: &LoadedModel) -> Result<()> {
        if !self.used.load(Ordering::Relaxed) {
            return Ok(());
        }
        match model.engine.keep(self.chat)? {
            Some(kept) => model.write_state(&self.path, &kept),
            None => Ok(()),
        }
    }
}
