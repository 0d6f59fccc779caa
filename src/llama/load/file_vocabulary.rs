//! Vocabularies of model files, loaded without the weights and cached.
//!
//! In: a path. Out: the vocabulary and the header of the file, from the cache if the file has not
//! changed. At most [`MAX_KEPT`] are cached, each until [`IDLE`] after its last use.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::file_identity::{ModelFiles, SINCE_CHECKED, identify};
use crate::engine::{TokenId, Vocab};
use crate::error::{Code, Error, Result};
use crate::gguf::ModelHeader;
use crate::llama::context::Model;
use crate::llama::raw::stack;
use crate::llama::vocab::LlamaVocab;
use crate::process::{self, Shared};
use crate::regular_file::FileIdentity;
use crate::spawn;

/// A large vocabulary takes 50 MB.
const MAX_KEPT: usize = 4;
/// How long an unused vocabulary stays in memory.
const IDLE: Duration = Duration::from_secs(60);

/// The vocabulary of a model file.
pub struct FileVocabulary {
    header: ModelHeader,
    vocab: Arc<LlamaVocab>,
}

impl FileVocabulary {
    /// Returns the vocabulary of a file, from the cache or newly read.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND`, and `MODEL_INVALID` if llama.cpp cannot take the file or it has no
    /// vocabulary.
    pub fn of_file(path: &str) -> Result<Arc<FileVocabulary>> {
        let files = ModelFiles::identify(path, vec![path.into()]);
        let identity = identify(Path::new(path))?;
        // What is dropped is freed outside of the lock, because the lock must be held only briefly.
        let (slot, dropped) = KEPT.lock().own().slot(&identity);
        drop(dropped);
        // Locked while the file is read, so that a second call for the same file waits.
        let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vocabulary) = &*kept {
            return Ok(Arc::clone(vocabulary));
        }
        let begun = SystemTime::now();
        let read = read(path, &files);
        match &read {
            Ok(vocabulary) if identity.is_settled(begun) => *kept = Some(Arc::clone(vocabulary)),
            _ => KEPT.lock().entries.retain(|entry| !Arc::ptr_eq(&entry.slot, &slot)),
        }
        drop(kept);
        start_keeper();
        read
    }

    /// The header of the file.
    pub fn header(&self) -> &ModelHeader {
        &self.header
    }

    /// The vocabulary as the engine uses it.
    pub fn vocab(&self) -> &dyn Vocab {
        &*self.vocab
    }

    /// The vocabulary, which may outlive this.
    #[cfg(feature = "remote")]
    pub fn shared_vocab(&self) -> Arc<dyn Vocab> {
        Arc::<LlamaVocab>::clone(&self.vocab)
    }

    /// Returns the tokens of a text, exactly as `llama_tokenize` does. `add_special` adds what the
    /// vocabulary puts around a text, such as BOS; `parse_special` lets the text spell control
    /// tokens.
    ///
    /// # Errors
    /// `CONTEXT_OVERFLOW` for a part that the tokenizer cannot take.
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>> {
        self.vocab.tokenize_text(text, add_special, parse_special)
    }

    /// Returns the bytes of tokens, exactly as `llama_detokenize` does. All must be in the
    /// vocabulary.
    ///
    /// # Errors
    /// `INFERENCE_FAILED` if llama.cpp fails.
    pub fn detokenize(
        &self,
        tokens: &[TokenId],
        remove_special: bool,
        unparse_special: bool,
    ) -> Result<Vec<u8>> {
        self.vocab.detokenize(tokens, remove_special, unparse_special)
    }
}

fn read(path: &str, files: &ModelFiles) -> Result<Arc<FileVocabulary>> {
    let header = ModelHeader::read_file(Path::new(path))?;
    header.check_complete().map_err(|error| error.about(path))?;
    header.check_loadable().map_err(|error| error.about(path))?;
    header.check_tokens(Path::new(path))?;
    let owned = path.to_owned();
    let loaded = stack::load_on_thread("llb-load", move || Model::load_vocabulary(&owned));
    let model = loaded.map_err(|error| error.about(path))?;
    files.check_unchanged(SINCE_CHECKED)?;
    if !model.has_vocabulary() {
        let problem = "the model has no vocabulary; use a file that has its tokenizer";
        return Err(Error::new(Code::ModelInvalid, problem).about(path));
    }
    Ok(Arc::new(FileVocabulary { header, vocab: Arc::new(LlamaVocab::new(Arc::new(model))) }))
}

type VocabularySlot = Arc<Mutex<Option<Arc<FileVocabulary>>>>;

struct KeptEntry {
    file: FileIdentity,
    slot: VocabularySlot,
    last_use: Instant,
}

/// The cached vocabularies of a process.
struct KeptVocabularies {
    forks: usize,
    entries: Vec<KeptEntry>,
    /// Whether the thread that frees unused vocabularies is running.
    has_keeper: bool,
}

static KEPT: Shared<KeptVocabularies> =
    Shared::new(KeptVocabularies { forks: 0, entries: Vec::new(), has_keeper: false });

impl KeptVocabularies {
    /// The vocabularies of this process. Those that a forked child inherits are leaked, because
    /// other threads of its parent may have held their locks.
    fn own(&mut self) -> &mut KeptVocabularies {
        if self.forks != process::forks() {
            std::mem::forget(std::mem::take(&mut self.entries));
            (self.forks, self.has_keeper) = (process::forks(), false);
        }
        self
    }

    /// The slot of a file, and the least recently used vocabulary if the cache was full.
    fn slot(&mut self, file: &FileIdentity) -> (VocabularySlot, Option<KeptEntry>) {
        let last_use = Instant::now();
        if let Some(known) = self.entries.iter_mut().find(|entry| entry.file == *file) {
            known.last_use = last_use;
            return (Arc::clone(&known.slot), None);
        }
        let all = self.entries.iter().enumerate().filter(|_| self.entries.len() >= MAX_KEPT);
        let oldest = all.min_by_key(|(_, entry)| entry.last_use).map(|(index, _)| index);
        let dropped = oldest.map(|index| self.entries.swap_remove(index));
        let slot = VocabularySlot::default();
        self.entries.push(KeptEntry { file: file.clone(), slot: Arc::clone(&slot), last_use });
        (slot, dropped)
    }
}

/// Starts the thread that frees unused vocabularies, unless it is running. The thread ends when the
/// cache is empty.
fn start_keeper() {
    {
        let mut kept = KEPT.lock();
        let kept = kept.own();
        if kept.has_keeper || kept.entries.is_empty() {
            return;
        }
        kept.has_keeper = true;
    }
    let keep = || {
        while let Some(end) = drop_idle() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        }
    };
    // If the thread cannot be started, vocabularies stay until others replace them.
    if spawn::thread("llb-vocab", keep).is_err() {
        KEPT.lock().has_keeper = false;
    }
}

/// Drops vocabularies that have been unused for too long. Returns when to check again; `None` if the
/// cache is empty.
fn drop_idle() -> Option<Instant> {
    let now = Instant::now();
    // Freed outside of the lock, because the lock must be held only briefly.
    let (_dropped, next) = {
        let mut kept = KEPT.lock();
        let is_idle = |entry: &mut KeptEntry| now.duration_since(entry.last_use) >= IDLE;
        let dropped: Vec<KeptEntry> = kept.entries.extract_if(.., is_idle).collect();
        let next = kept.entries.iter().map(|entry| entry.last_use + IDLE).min();
        kept.has_keeper = next.is_some();
        (dropped, next)
    };
    next
}
