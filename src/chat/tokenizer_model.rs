//! A tokenizer.json in place of a GGUF file, for a chat whose replies come from servers.

use std::path::Path;
use std::sync::Arc;

use crate::api::CreateOptions;
use crate::engine::Vocab;
#[cfg(not(feature = "tokenizer-json"))]
use crate::error::Error;
use crate::error::Result;

/// The vocabulary and the templates of a model, from a tokenizer.json and the files beside it.
#[cfg_attr(
    not(feature = "tokenizer-json"),
    allow(dead_code, reason = "nothing reads a tokenizer.json without the feature")
)]
pub(super) struct TokenizerModel {
    /// The vocabulary.
    pub(super) vocab: Arc<dyn Vocab>,
    /// The spellings of the control tokens.
    pub(super) control_tokens: Vec<String>,
    pub(super) template: Option<String>,
    pub(super) tool_use_template: Option<String>,
    pub(super) bos_token: Option<String>,
    pub(super) eos_token: Option<String>,
}

impl TokenizerModel {
    /// Reads the option `model`, if it names a tokenizer.json or a folder and servers reply.
    pub(super) fn of(options: &CreateOptions) -> Result<Option<TokenizerModel>> {
        let path = options.model.as_deref().filter(|_| options.engine.is_some()).map(Path::new);
        let is_tokenizer =
            |path: &&Path| path.extension().is_some_and(|end| end == "json") || path.is_dir();
        path.filter(is_tokenizer).map(read).transpose()
    }
}

#[cfg(feature = "tokenizer-json")]
fn read(path: &Path) -> Result<TokenizerModel> {
    use crate::tokenizer_json::TokenizerFiles;
    let files = TokenizerFiles::read(path)?;
    Ok(TokenizerModel {
        control_tokens: files.vocab.control_tokens(),
        vocab: files.vocab,
        template: files.template,
        tool_use_template: files.tool_use_template,
        bos_token: files.bos_token,
        eos_token: files.eos_token,
    })
}

#[cfg(not(feature = "tokenizer-json"))]
fn read(_: &Path) -> Result<TokenizerModel> {
    let problem = "this library was built without the feature `tokenizer-json`; use a GGUF file";
    Err(Error::invalid("model", problem))
}
