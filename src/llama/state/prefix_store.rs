//! Reads and writes prefixes of prompts in the `cache_dir` of a chat.
//!
//! In: a prompt's tokens, and the state that the engine has computed for them. Out: the longest
//! prefix of the tokens in the folder. A request never fails because of the folder, and never waits
//! for a write: problems are logged. A thread writes the files. It starts with the first write and
//! ends with [`PrefixStore::finish`].

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

use super::prefix_folder::{FoundPrefix, Identity, PrefixFolder};
use super::state_file;
use crate::api::{AdapterScales, LogLevel};
use crate::engine::{SavedSequence, TokenId};
use crate::error::{Error, Result};
use crate::llama::load::loaded_model::LoadedModel;
use crate::llama::raw::LogQueue;
use crate::process;
use crate::spawn;

/// The maximum number of bytes that may wait to be written. If the disk is slow, prefixes are
/// dropped instead of using more memory.
const MAX_WAITING: u64 = 1 << 30;
/// A generous bound for what a file contains besides llama.cpp's data and the tokens.
const HEAD_BYTES: u64 = 4096;

/// The prefixes in a chat's folder.
pub struct PrefixStore {
    shared: Arc<StoreState>,
    writer: Mutex<Option<PrefixWriter>>,
    /// The process that owns the writer. A forked child does not have its thread.
    forks: usize,
}

/// The state that is shared with the writer's thread.
struct StoreState {
    folder: PrefixFolder,
    /// Files that could not be used. They may be written again.
    unusable: Mutex<HashSet<String>>,
    waiting: AtomicU64,
    notes: LogQueue,
    /// Notes that were already made. A lasting problem is reported only once.
    noted: Mutex<HashSet<String>>,
}

struct PrefixWriter {
    queue: Sender<PendingPrefix>,
    thread: JoinHandle<()>,
}

/// A prefix that is about to be written.
struct PendingPrefix {
    name: String,
    description: Value,
    kept: SavedSequence,
    bytes: u64,
}

/// A prompt, and the prefixes of it in the folder, shortest first.
pub struct PromptPrefixes<'a> {
    tokens: &'a [TokenId],
    adapters: &'a AdapterScales,
    found: Vec<FoundPrefix>,
}

impl PromptPrefixes<'_> {
    /// The length of the longest prefix; 0 without one.
    pub fn longest(&self) -> usize {
        self.found.last().map_or(0, |found| found.length)
    }
}

impl PrefixStore {
    /// Opens a folder with a limit in bytes, and creates it if it is missing. `INVALID_REQUEST` if
    /// it must not be used.
    pub fn open(path: &str, most_bytes: u64) -> Result<PrefixStore> {
        let invalid = |problem: String| Error::invalid("cache_dir", problem);
        let path: PathBuf =
            std::path::absolute(path).map_err(|error| invalid(error.to_string()))?;
        let folder = PrefixFolder::open(path, most_bytes).map_err(invalid)?;
        let shared = Arc::new(StoreState {
            folder,
            unusable: Mutex::default(),
            waiting: AtomicU64::new(0),
            notes: LogQueue::default(),
            noted: Mutex::default(),
        });
        Ok(PrefixStore { shared, writer: Mutex::default(), forks: process::forks() })
    }

    /// Finds the prefixes of a prompt that this model can use.
    pub fn find<'a>(
        &self,
        model: &LoadedModel,
        tokens: &'a [TokenId],
        adapters: &'a AdapterScales,
    ) -> PromptPrefixes<'a> {
        let found = self.shared.folder.check().and_then(|()| {
            let description =
                model.state_description(adapters).map_err(|error| error.to_string())?;
            let found = self.shared.folder.find(&Identity::of(&description), tokens);
            found.map_err(|error| error.to_string())
        });
        let mut found = found.unwrap_or_else(|problem| {
            self.shared.note(&problem);
            Vec::new()
        });
        let unusable = lock(&self.shared.unusable);
        found.retain(|found| !unusable.contains(&found.name));
        PromptPrefixes { tokens, adapters, found }
    }

    /// Reads the longest prefix of more than `least` tokens.
    pub fn read(
        &self,
        model: &LoadedModel,
        prompt: &mut PromptPrefixes,
        least: usize,
    ) -> Option<SavedSequence> {
        while let Some(FoundPrefix { length, name }) = prompt.found.last() {
            if *length <= least {
                return None;
            }
            match model.read_state(&self.shared.folder.file(name)) {
                Ok(Some(kept)) if self.is_of(&kept, prompt, *length) => {
                    self.shared.folder.mark_used(name);
                    return Some(kept);
                }
                Ok(Some(_)) => self.refuse(prompt, "it holds other tokens than its name says"),
                // Another process has removed it.
                Ok(None) => drop(prompt.found.pop()),
                Err(reason) => self.refuse(prompt, &reason),
            }
        }
        None
    }

    fn is_of(&self, kept: &SavedSequence, prompt: &PromptPrefixes, length: usize) -> bool {
        kept.tokens == prompt.tokens[..length] && kept.adapters == *prompt.adapters
    }

    /// Stops using the longest prefix, for this reason.
    pub fn refuse(&self, prompt: &mut PromptPrefixes, reason: &str) {
        let Some(FoundPrefix { name, .. }) = prompt.found.pop() else { return };
        self.shared.note(&format!("{name}: {reason}"));
        lock(&self.shared.unusable).insert(name);
    }

    /// Queues a prefix to be written by the thread.
    pub fn write(&self, model: &LoadedModel, kept: SavedSequence) {
        if self.forks != process::forks() {
            return;
        }
        let description = match model.state_description(&kept.adapters) {
            Ok(description) => description,
            Err(error) => return self.shared.note(&error.to_string()),
        };
        let tokens = size_of_val(kept.tokens.as_slice());
        let bytes = (kept.data.len() + tokens) as u64 + HEAD_BYTES;
        let most = self.shared.folder.most_bytes();
        if bytes > most {
            let problem = format!(
                "a prefix of {} tokens has {bytes} bytes, and cache_bytes is {most}",
                kept.tokens.len()
            );
            return self.shared.note(&problem);
        }
        let name = PrefixFolder::name(&Identity::of(&description), &kept.tokens);
        let before = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let pending = PendingPrefix { name, description, kept, bytes };
        let is_sent = before.saturating_add(bytes) <= MAX_WAITING.max(bytes)
            && self.queue().is_some_and(|queue| queue.send(pending).is_ok());
        if !is_sent {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The queue of the writer's thread, which is started if it is not running. `None` if the
    /// system refuses to start it.
    fn queue(&self) -> Option<Sender<PendingPrefix>> {
        let mut writer = lock(&self.writer);
        if writer.is_none() {
            let (queue, pending) = channel();
            let shared = Arc::clone(&self.shared);
            let thread = spawn::thread("llb-prefixes", move || shared.write_all(&pending));
            *writer = thread.ok().map(|thread| PrefixWriter { queue, thread });
        }
        writer.as_ref().map(|writer| writer.queue.clone())
    }

    /// Waits until all queued prefixes are written.
    pub fn finish(&self) {
        if self.forks != process::forks() || process::is_exiting() {
            return;
        }
        if let Some(PrefixWriter { queue, thread }) = lock(&self.writer).take() {
            drop(queue);
            let _ = thread.join();
        }
    }

    /// Takes the log lines of at least this level.
    pub fn take_log(&self, least: LogLevel) -> Vec<(LogLevel, String)> {
        self.shared.notes.take(least)
    }
}

impl Drop for PrefixStore {
    fn drop(&mut self) {
        if self.forks != process::forks() {
            // The thread may have held a lock when the parent forked.
            let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
            return std::mem::forget(writer.take());
        }
        self.finish();
    }
}

impl StoreState {
    fn write_all(&self, pending: &Receiver<PendingPrefix>) {
        for prefix in pending {
            if let Err(problem) = self.write(&prefix) {
                self.note(&problem);
            }
            self.waiting.fetch_sub(prefix.bytes, Ordering::Relaxed);
        }
    }

    fn write(&self, prefix: &PendingPrefix) -> Result<(), String> {
        self.folder.check()?;
        let written = self.folder.make_room(prefix.bytes).and_then(|()| {
            let file = self.folder.file(&prefix.name);
            state_file::write(&file, &prefix.description, &prefix.kept)?;
            // Another process may have written files meanwhile.
            self.folder.make_room(0)
        });
        written.map_err(|error| format!("a prefix could not be written: {error}"))?;
        lock(&self.unusable).remove(&prefix.name);
        Ok(())
    }

    fn note(&self, problem: &str) {
        const MAX: usize = 256;
        let mut noted = lock(&self.noted);
        if noted.len() >= MAX {
            noted.clear();
        }
        if noted.insert(problem.to_owned()) {
            self.notes.push(LogLevel::Warn, format!("cache_dir: {problem}"));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
