//! The vocabulary of a loaded model.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use llama_cpp_sys_2 as sys;

use super::model::Model;
use super::shim;
use crate::constraint::Vocabulary;
use crate::engine::{SpecialToken, SpecialTokens, TokenCache, TokenId, Vocab};
use crate::error::{Code, Error, Result};

/// llama.cpp's vocabulary is immutable after loading; its functions may be called from any thread.
pub(crate) struct LlamaVocab {
    model: Arc<Model>,
    n_tokens: i32,
    special: OnceLock<SpecialTokens>,
    known: TokenCache,
}

impl LlamaVocab {
    pub(crate) fn new(model: Arc<Model>) -> Self {
        // SAFETY: the model is alive, and so is its vocabulary.
        let n_tokens = unsafe { sys::llama_vocab_n_tokens(model.vocab()) };
        LlamaVocab { model, n_tokens, special: OnceLock::new(), known: TokenCache::default() }
    }

    /// The special token with this id; `None` for a plain token, or if its spelling is not UTF-8.
    fn special(&self, token: TokenId) -> Option<SpecialToken> {
        // SAFETY: the id is inside the vocabulary, and the model is alive.
        let attributes = unsafe { sys::llama_vocab_get_attr(self.model.vocab(), token) };
        let has = |attribute| attributes & attribute != 0;
        let control = has(sys::LLAMA_TOKEN_ATTR_CONTROL) || has(sys::LLAMA_TOKEN_ATTR_UNKNOWN);
        if !control && !has(sys::LLAMA_TOKEN_ATTR_USER_DEFINED) {
            return None;
        }
        let text = self.text(token)?.to_str().ok()?.to_owned();
        Some(SpecialToken {
            text,
            token,
            control,
            strips_before: has(sys::LLAMA_TOKEN_ATTR_LSTRIP),
            strips_after: has(sys::LLAMA_TOKEN_ATTR_RSTRIP),
        })
    }

    /// A message about the first difference from another vocabulary; `None` if all tokens are the
    /// same.
    pub(crate) fn difference(&self, other: &LlamaVocab) -> Option<String> {
        if self.n_tokens != other.n_tokens {
            return Some(format!(
                "it has {} tokens, but the model has {}",
                other.n_tokens, self.n_tokens
            ));
        }
        let ends = |vocab: &LlamaVocab| (vocab.required_bos(), vocab.end_of_sequence());
        if ends(self) != ends(other) {
            return Some("its BOS or EOS is a different token".to_owned());
        }
        let different = |token: &TokenId| {
            self.text(*token) != other.text(*token)
                || self.is_end_of_generation(*token) != other.is_end_of_generation(*token)
        };
        let first = (0..self.n_tokens).find(different)?;
        let shown = |vocab: &LlamaVocab| {
            vocab.text(first).map(CStr::to_string_lossy).unwrap_or_default().into_owned()
        };
        Some(format!("token {first} is {:?}, but {:?} in the model", shown(other), shown(self)))
    }

    fn end_of_sequence(&self) -> TokenId {
        // SAFETY: the model is alive.
        unsafe { sys::llama_vocab_eos(self.model.vocab()) }
    }

    /// The spelling of a token in the file.
    fn text(&self, token: TokenId) -> Option<&CStr> {
        // SAFETY: the id is inside the vocabulary, and the model is alive.
        let text = unsafe { sys::llama_vocab_get_text(self.model.vocab(), token) };
        // SAFETY: llama.cpp returns NUL-terminated text that lives as long as the model.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    }

    fn tokenize_anew(&self, text: &str, parse_special: bool) -> Result<Vec<TokenId>> {
        let too_long = || {
            Error::new(
                Code::ContextOverflow,
                format!("a text of {} bytes is too long to tokenize", text.len()),
            )
        };
        let length = i32::try_from(text.len()).map_err(|_| too_long())?;
        // Most tokens have several bytes. A second call is made if the array is too small.
        let mut tokens: Vec<TokenId> = vec![0; text.len() / 2 + 16];
        for _ in 0..2 {
            // SAFETY: text and tokens are valid for the given lengths, and the model is alive.
            let count = shim::guard(|| unsafe {
                shim::calls::llama_tokenize(
                    self.model.vocab(),
                    text.as_ptr().cast::<c_char>(),
                    length,
                    tokens.as_mut_ptr(),
                    tokens.len() as i32,
                    false,
                    parse_special,
                )
            });
            let count = count.map_err(|failed| {
                failed.error(Code::InferenceFailed, "llama.cpp could not tokenize")
            })?;
            match usize::try_from(count) {
                Ok(count) => {
                    tokens.truncate(count);
                    return Ok(tokens);
                }
                Err(_) if count == i32::MIN => return Err(too_long()),
                Err(_) => tokens.resize(count.unsigned_abs() as usize, 0),
            }
        }
        Err(Error::new(Code::InferenceFailed, "llama.cpp could not tokenize the prompt"))
    }

    /// Whether the id may be passed to llama.cpp: one outside the vocabulary throws through C.
    fn contains(&self, token: TokenId) -> bool {
        (0..self.n_tokens).contains(&token)
    }
}

/// The vocabulary for grammars.
pub(crate) fn grammar_vocabulary(vocab: &Arc<dyn Vocab>) -> Vocabulary {
    let tokens = 0..vocab.len() as TokenId;
    let token_bytes = tokens.clone().map(|token| {
        let plain = vocab.piece(token, false);
        let special = if plain.is_empty() { vocab.piece(token, true) } else { Vec::new() };
        // A vocabulary padded to a round size has tokens without text. An empty token is never
        // allowed.
        if special.is_empty() { plain } else { [&[0xFF], special.as_slice()].concat() }
    });
    let ends = tokens.filter(|token| vocab.is_end_of_generation(*token)).map(|token| token as u32);
    Vocabulary {
        token_bytes: token_bytes.collect(),
        end_tokens: ends.collect(),
        tokenize: Box::new({
            let vocab = Arc::clone(vocab);
            move |text| {
                let tokens = vocab.tokenize(text, false).unwrap_or_default();
                tokens.into_iter().map(|token| token as u32).collect()
            }
        }),
    }
}

impl Vocab for LlamaVocab {
    fn len(&self) -> usize {
        self.n_tokens as usize
    }

    fn tokenize(&self, text: &str, parse_special: bool) -> Result<Vec<TokenId>> {
        if parse_special {
            return self.tokenize_anew(text, true);
        }
        self.known.tokens(text, || self.tokenize_anew(text, false))
    }

    fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
        if !self.contains(token) {
            return Vec::new();
        }
        let mut bytes = vec![0u8; 64];
        for _ in 0..2 {
            // SAFETY: the buffer is valid for its length, the id is inside the vocabulary, and the
            // model is alive.
            let count = shim::guard(|| unsafe {
                let buffer = bytes.as_mut_ptr().cast::<c_char>();
                shim::calls::llama_token_to_piece(
                    self.model.vocab(),
                    token,
                    buffer,
                    bytes.len() as i32,
                    0,
                    special,
                )
            });
            let Ok(count) = count else { return Vec::new() };
            match usize::try_from(count) {
                Ok(count) => {
                    bytes.truncate(count);
                    return bytes;
                }
                Err(_) => bytes.resize(count.unsigned_abs() as usize, 0),
            }
        }
        Vec::new()
    }

    fn is_end_of_generation(&self, token: TokenId) -> bool {
        // SAFETY: the id is inside the vocabulary, and the model is alive.
        self.contains(token) && unsafe { sys::llama_vocab_is_eog(self.model.vocab(), token) }
    }

    fn required_bos(&self) -> Option<TokenId> {
        // SAFETY: the model is alive.
        let wanted = unsafe { sys::llama_vocab_get_add_bos(self.model.vocab()) };
        // SAFETY: the model is alive.
        let bos = unsafe { sys::llama_vocab_bos(self.model.vocab()) };
        (wanted && self.contains(bos)).then_some(bos)
    }

    fn special_tokens(&self) -> &SpecialTokens {
        self.special.get_or_init(|| {
            SpecialTokens::new((0..self.n_tokens).filter_map(|token| self.special(token)).collect())
        })
    }
}
