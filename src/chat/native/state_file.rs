//! The option `state_file`: carries the KV cache of a chat over to the next chat.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::api::LogLevel;
use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::llama::LoadedModel;

/// The state file of one chat.
pub(in crate::chat) struct StateFile {
    path: PathBuf,
    chat: u64,
    /// Why the file was ignored, until a reply reports it.
    unreported: Mutex<Option<String>>,
    /// The same, until the log has it.
    unlogged: Mutex<Option<String>>,
    /// Whether a request ran, so that there may be something new to write.
    used: AtomicBool,
}

impl StateFile {
    /// Refuses a path in a missing folder before anything is loaded. The file itself is written
    /// only when the chat is closed.
    pub(in crate::chat) fn check(path: &str) -> Result<()> {
        let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder.filter(|folder| !folder.is_dir()) {
            Some(folder) => Err(Error::invalid(
                "state_file",
                format!("there is no folder {}; create it first", folder.display()),
            )),
            None => Ok(()),
        }
    }

    /// Restores the content of the file, if it exists and fits the model.
    pub(super) fn restore(path: &str, chat: u64, model: &LoadedModel) -> StateFile {
        let path = PathBuf::from(path);
        let restored = model.read_state(&path).and_then(|kept| match kept {
            Some(kept) => {
                model.engine.restore(chat, kept).map_err(|error| error.message().to_owned())
            }
            None => Ok(()),
        });
        let problem = restored.err().map(|reason| format!("{}: {reason}", path.display()));
        StateFile {
            path,
            chat,
            unreported: Mutex::new(problem.clone()),
            unlogged: Mutex::new(problem),
            used: AtomicBool::new(false),
        }
    }

    /// Notes that a request runs.
    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Why the file was ignored, once for the log.
    pub(super) fn take_warning(&self) -> Option<(LogLevel, String)> {
        let problem = take(&self.unlogged)?;
        Some((LogLevel::Warn, format!("state_file: {problem}")))
    }

    /// Why the file was ignored, once for a reply.
    pub(super) fn take_diagnostic(&self) -> Option<Diagnostic> {
        Some(Diagnostic::new("state_ignored", take(&self.unreported)?))
    }

    /// Writes what the last request left in the KV cache. The file is unchanged if no request ran,
    /// or if another chat has evicted the cache.
    pub(super) fn write(&self, model: &LoadedModel) -> Result<()> {
        if !self.used.load(Ordering::Relaxed) {
            return Ok(());
        }
        match model.engine.save(self.chat)? {
            Some(kept) => model.write_state(&self.path, &kept),
            None => Ok(()),
        }
    }
}

fn take(problem: &Mutex<Option<String>>) -> Option<String> {
    problem.lock().unwrap_or_else(PoisonError::into_inner).take()
}
