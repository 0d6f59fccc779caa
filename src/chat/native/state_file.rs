//! The option `state_file`: saves the KV cache of a chat, so that the next chat can continue with
//! it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use crate::api::LogLevel;
use crate::diagnostic::Diagnostic;
use crate::error::{Error, Result};
use crate::llama::{self, BeforeExit, KeptModel, KeptState, LoadedModel, StateStore};
use crate::sync::lock;

/// Refuses a path in a folder that does not exist, before anything is loaded. The file itself is
/// written only when the chat is closed.
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

/// A warning about a chat, reported once in the log and once in a reply.
#[derive(Debug)]
pub(super) struct PendingWarning {
    code: &'static str,
    /// The option that the warning is about.
    option: &'static str,
    text: String,
    unlogged: AtomicBool,
    unreported: AtomicBool,
}

impl PendingWarning {
    pub(super) fn new(code: &'static str, option: &'static str, text: String) -> PendingWarning {
        let (unlogged, unreported) = (AtomicBool::new(true), AtomicBool::new(true));
        PendingWarning { code, option, text, unlogged, unreported }
    }

    /// The log line, when called for the first time.
    pub(super) fn take_line(&self) -> Option<(LogLevel, String)> {
        let line = || (LogLevel::Warn, format!("{}: {}", self.option, self.text));
        self.unlogged.swap(false, Ordering::Relaxed).then(line)
    }

    /// The diagnostic for a reply, when called for the first time.
    pub(super) fn take_diagnostic(&self) -> Option<Diagnostic> {
        let diagnostic = || Diagnostic::new(self.code, self.text.as_str());
        self.unreported.swap(false, Ordering::Relaxed).then(diagnostic)
    }
}

/// The state file of one chat.
pub(super) struct StateFile {
    store: Arc<dyn StateStore>,
    chat: u64,
    model: Arc<KeptModel>,
    /// The warning that the file was ignored, with the reason.
    warning: Option<PendingWarning>,
    /// Whether a request has run since the last write. Otherwise there is nothing new to write.
    used: AtomicBool,
    /// Whether the exit of the process has written the file. Later requests fail.
    final_write: AtomicBool,
    /// The cancel flag of the last request.
    cancel: Mutex<Weak<AtomicBool>>,
}

impl StateFile {
    /// Restores the content of the file, if it exists and matches the model. If the process exits
    /// before the chat is closed, the file is written during the exit.
    pub(super) fn restore(
        store: Arc<dyn StateStore>,
        chat: u64,
        model: &Arc<KeptModel>,
        loaded: &LoadedModel,
    ) -> Arc<StateFile> {
        let restored = loaded.read_state(store.as_ref()).and_then(|kept| match kept {
            Some(kept) => {
                loaded.engine.restore(chat, kept).map_err(|error| error.message().to_owned())
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
        model.keep_state(weak.clone());
        llama::call_before_exit(weak);
        file
    }

    /// Records that a request runs, and the flag that cancels it.
    pub(super) fn mark_used(&self, cancel: &Arc<AtomicBool>) {
        *lock(&self.cancel) = Arc::downgrade(cancel);
        self.used.store(true, Ordering::Relaxed);
    }

    /// The warning that the file was ignored, with the reason.
    pub(super) fn warning(&self) -> Option<&PendingWarning> {
        self.warning.as_ref()
    }

    /// Writes the part of the KV cache that the last request has left. The file does not change if
    /// no request has run, or if another chat has evicted the cache.
    pub(super) fn write(&self) -> Result<()> {
        if self.final_write.load(Ordering::Relaxed) { Ok(()) } else { self.write_by(None) }
    }

    fn write_by(&self, deadline: Option<Instant>) -> Result<()> {
        // The file was written before the model was unloaded.
        let Some(model) = self.model.in_memory() else { return Ok(()) };
        if !self.used.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match model.engine.save(self.chat, deadline)? {
            Some(kept) => model.write_state(self.store.as_ref(), &kept),
            None => Ok(()),
        }
    }
}

impl KeptState for StateFile {
    fn save(&self) -> Result<()> {
        let saved = self.write();
        if saved.is_err() {
            self.used.store(true, Ordering::Relaxed);
        }
        saved
    }

    /// If the file cannot be read, the prompt is only computed again.
    fn restore(&self, model: &LoadedModel) {
        if let Ok(Some(kept)) = model.read_state(self.store.as_ref()) {
            let _ = model.engine.restore(self.chat, kept);
        }
    }
}

impl BeforeExit for StateFile {
    fn before_exit(&self, deadline: Instant) -> bool {
        let running = lock(&self.cancel).upgrade();
        if let Some(running) = running {
            running.store(true, Ordering::Relaxed);
        }
        // No event is emitted, because the host may have destroyed the data of its callback.
        let _ = self.write_by(Some(deadline));
        self.final_write.store(true, Ordering::Relaxed);
        Instant::now() < deadline
    }
}
