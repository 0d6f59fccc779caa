//! Vocabularies of tokenizer.json files, which transformers' tokenizers have, with the files beside
//! them.
//!
//! In: a path of such a file, or of its folder. Out: the vocabulary as the engine uses it, and the
//! chat templates. `tokenizers` runs the pipeline of the file; its caches and panics stay here.

mod configuration;
mod document;
mod library_call;
mod pipeline;
#[cfg(test)]
mod tests;
mod token_bytes;
mod vocab;
mod word_pattern;
mod word_step;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::error::{Code, Error, Result};
use crate::process::{self, Shared};
use crate::regular_file::FileIdentity;
use configuration::TokenizerConfiguration;
use document::TokenizerDocument;
use vocab::TokenizerVocab;

/// A tokenizer.json and the files beside it.
pub(crate) struct TokenizerFiles {
    /// The vocabulary, which chats with the same files share.
    pub(crate) vocab: Arc<TokenizerVocab>,
    /// The chat template.
    pub(crate) template: Option<String>,
    /// The chat template for requests with tools.
    pub(crate) tool_use_template: Option<String>,
    /// The spelling of the BOS token.
    pub(crate) bos_token: Option<String>,
    /// The spelling of the EOS token.
    pub(crate) eos_token: Option<String>,
}

impl TokenizerFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND`, or `MODEL_INVALID` with the file and the fault.
    pub(crate) fn read(path: &Path) -> Result<TokenizerFiles> {
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        let config = TokenizerConfiguration::read(&folder)?;
        let vocab = opened(&file, &folder, &config).map_err(|error| error.about(file.display()))?;
        Ok(TokenizerFiles {
            vocab,
            template: config.template,
            tool_use_template: config.tool_use_template,
            bos_token: config.bos_token,
            eos_token: config.eos_token,
        })
    }
}

/// The files on which a vocabulary depends.
#[derive(PartialEq, Eq)]
struct VocabularyFiles {
    tokenizer: FileIdentity,
    others: Vec<Option<FileIdentity>>,
}

impl VocabularyFiles {
    fn of(file: &Path, folder: &Path) -> Result<VocabularyFiles> {
        let tokenizer = FileIdentity::of(file)
            .map_err(|error| Error::new(Code::ModelNotFound, error.to_string()))?;
        let identity = |name: &str| FileIdentity::of(&PathBuf::from(folder).join(name)).ok();
        let others = ["tokenizer_config.json", "generation_config.json"].map(identity);
        Ok(VocabularyFiles { tokenizer, others: others.into() })
    }
}

/// The vocabularies that chats of this process use.
struct OpenVocabularies {
    forks: usize,
    entries: Vec<(VocabularyFiles, Weak<TokenizerVocab>)>,
}

static OPEN: Shared<OpenVocabularies> =
    Shared::new(OpenVocabularies { forks: 0, entries: Vec::new() });

/// The vocabulary of a file, from another chat or newly read.
fn opened(
    file: &Path,
    folder: &Path,
    config: &TokenizerConfiguration,
) -> Result<Arc<TokenizerVocab>> {
    let files = VocabularyFiles::of(file, folder)?;
    {
        let mut open = OPEN.lock();
        // Other threads may have held locks of a vocabulary when the process was forked.
        if open.forks != process::forks() {
            std::mem::forget(std::mem::take(&mut open.entries));
            open.forks = process::forks();
        }
        open.entries.retain(|(_, vocab)| vocab.strong_count() > 0);
        let same = open.entries.iter().find(|(other, _)| *other == files);
        if let Some(vocab) = same.and_then(|(_, vocab)| vocab.upgrade()) {
            return Ok(vocab);
        }
    }
    let read = std::time::SystemTime::now();
    let document = TokenizerDocument::read(file)?;
    let vocab = Arc::new(TokenizerVocab::new(document, config)?);
    if files.tokenizer.is_settled(read) {
        OPEN.lock().entries.push((files, Arc::downgrade(&vocab)));
    }
    Ok(vocab)
}
