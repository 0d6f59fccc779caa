//! The option `state_file`: carries the KV cache of a chat over to the next chat.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use super::pending_warning::PendingWarning;
use crate::error::{Error, Result};
use crate::llama::{self, BeforeExit, LoadedModel, StateStore};

/// Refuses a path in a missing folder before anything is loaded. The file itself is written
/// only when the chat is closed.
pub(crate) fn check_state_file(path: &str) -> Result<()> {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(Error::invalid(
            "state_file",
            format!("there is no folder {}; create it first", folder.display()),
        )),
        None => Ok(()),
    }
}

/// The state file of one chat.
pub(super) struct StateFile {
    store: Arc<dyn StateStore>,
    chat: u64,
    model: Arc<LoadedModel>,
    /// Why the file was ignored, if it was.
    warning: Option<PendingWarning>,
    /// Whether a request ran since the last write, so that there may be something new to write.
    used: AtomicBool,
    /// The exit has written the file. Later requests fail.
    final_write: AtomicBool,
    /// The cancel flag of the last request.
    cancel: Mutex<Weak<AtomicBool>>,
}

impl StateFile {
    /// Restores the content of the file, if it exists and fits the model. If the process exits
    /// before the chat is closed, the file is written then.
    pub(super) fn restore(
        store: Arc<dyn StateStore>,
        chat: u64,
        model: &Arc<LoadedModel>,
    ) -> Arc<StateFile> {
        let restored = model.read_state(store.as_ref()).and_then(|kept| match kept {
            Some(kept) => {
                model.engine.restore(chat, kept).map_err(|error| error.message().to_owned())
            }
            None => Ok(()),
        });
        let warning = restored.err().map(|reason| {
            let text = format!("{}: {reason}", store.name());
            PendingWarning::new("state_ignored", "state_file", text)
        });
        let file = Arc::new(StateFile {
            store,
            chat,
            model: Arc::clone(model),
            warning,
            used: AtomicBool::new(false),
            final_write: AtomicBool::new(false),
            cancel: Mutex::default(),
        });
        let weak: Weak<StateFile> = Arc::downgrade(&file);
        llama::call_before_exit(weak);
        file
    }

    /// Notes that a request runs, which this flag cancels.
    pub(super) fn mark_used(&self, cancel: &Arc<AtomicBool>) {
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(cancel);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Why the file was ignored, if it was.
    pub(super) fn warning(&self) -> Option<&PendingWarning> {
        self.warning.as_ref()
    }

    /// Writes what the last request left in the KV cache. The file is unchanged if no request ran,
    /// or if another chat has evicted the cache.
    pub(super) fn write(&self) -> Result<()> {
        if self.final_write.load(Ordering::Relaxed) { Ok(()) } else { self.write_by(None) }
    }

    fn write_by(&self, deadline: Option<Instant>) -> Result<()> {
        if !self.used.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.model.engine.save(self.chat, deadline)? {
            Some(kept) => self.model.write_state(self.store.as_ref(), &kept),
            None => Ok(()),
        }
    }
}

impl BeforeExit for StateFile {
    fn before_exit(&self, deadline: Instant) -> bool {
        let running = self.cancel.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(running) = running {
            running.store(true, Ordering::Relaxed);
        }
        // No event is emitted: the host may have destroyed what its callback uses.
        let _ = self.write_by(Some(deadline));
        self.final_write.store(true, Ordering::Relaxed);
        Instant::now() < deadline
    }
}
