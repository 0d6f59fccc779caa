//! The vocabulary of a loaded model.

mod hangul;
#[cfg(test)]
mod tests;
mod text_pieces;
mod tokenize;

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};

use llama_cpp_sys_2 as sys;

use crate::constraint::Vocabulary;
use crate::engine::{
    Interrupt, PlainVocab, SpecialToken, SpecialTokens, TokenCache, TokenId, Vocab,
    without_reserved,
};
use crate::error::{Code, Error, Result};
use crate::llama::context::{MAX_BYTES_OF_SPECIAL, Model};
use crate::llama::raw::{shim, stack};
use text_pieces::{PIECE, TextPieces};

/// The vocabulary of a loaded model. It is immutable after loading, and its functions may be called
/// from any thread.
pub(crate) struct LlamaVocab {
    model: Arc<Model>,
    n_tokens: i32,
    special: OnceLock<SpecialTokens>,
    /// For each token, whether only the template may write it.
    reserved: OnceLock<Box<[bool]>>,
    rules: OnceLock<TextPieces>,
    /// The rules, without the cuts that tokens of the vocabulary span.
    cuts: OnceLock<TextPieces>,
    byte_tokens: OnceLock<Box<[Option<TokenId>; 256]>>,
    unknown: OnceLock<Option<TokenId>>,
    longest: OnceLock<usize>,
    /// Whether texts are tokenized without their accents.
    strips_accents: OnceLock<bool>,
    known: TokenCache,
}

/// Tokens of OpenAI's harmony format. llama.cpp turns them into normal tokens so that it prints
/// them, but they still begin and end messages.
const HARMONY: [&[u8]; 5] =
    [b"<|start|>", b"<|message|>", b"<|channel|>", b"<|constrain|>", b"<|end|>"];

impl LlamaVocab {
    pub(crate) fn new(model: Arc<Model>) -> Self {
        LlamaVocab {
            n_tokens: model.n_tokens() as i32,
            model,
            special: OnceLock::new(),
            reserved: OnceLock::new(),
            rules: OnceLock::new(),
            cuts: OnceLock::new(),
            byte_tokens: OnceLock::new(),
            unknown: OnceLock::new(),
            longest: OnceLock::new(),
            strips_accents: OnceLock::new(),
            known: TokenCache::default(),
        }
    }

    /// The special token with this id. `None` for a normal token, or for one with a role whose text is
    /// long or not UTF-8.
    fn special(&self, token: TokenId) -> Option<SpecialToken> {
        let has = |attribute| self.attributes(token) & attribute != 0;
        let control = has(sys::LLAMA_TOKEN_ATTR_CONTROL) || has(sys::LLAMA_TOKEN_ATTR_UNKNOWN);
        let special = control || has(sys::LLAMA_TOKEN_ATTR_USER_DEFINED);
        let reserved = self.reserved()[token as usize];
        let text = match (special, reserved) {
            (true, _) => self.text(token)?.to_str().ok()?.to_owned(),
            // The file marks the token as a normal one, so its text is in the vocabulary's own
            // encoding.
            (false, true) => {
                let piece = self.piece(token, true);
                String::from_utf8(piece).ok().filter(|text| text.len() <= MAX_BYTES_OF_SPECIAL)?
            }
            (false, false) => return None,
        };
        Some(SpecialToken {
            text,
            token,
            control,
            reserved,
            strips_before: has(sys::LLAMA_TOKEN_ATTR_LSTRIP),
            strips_after: has(sys::LLAMA_TOKEN_ATTR_RSTRIP),
        })
    }

    fn attributes(&self, token: TokenId) -> sys::llama_token_attr {
        // SAFETY: the id is inside the vocabulary, and the model is alive.
        unsafe { sys::llama_vocab_get_attr(self.model.vocab(), token) }
    }

    /// For each token, whether only the template may write it: control tokens, and tokens that
    /// begin or end a text or a turn, whatever type the file gives them.
    fn reserved(&self) -> &[bool] {
        self.reserved.get_or_init(|| {
            let roles = self.roles();
            let control = sys::LLAMA_TOKEN_ATTR_CONTROL | sys::LLAMA_TOKEN_ATTR_UNKNOWN;
            let is_reserved = |token: TokenId| {
                let attributes = self.attributes(token);
                if attributes & control != 0 {
                    return true;
                }
                let user_defined = attributes & sys::LLAMA_TOKEN_ATTR_USER_DEFINED != 0;
                if user_defined
                    && self.text(token).is_some_and(|it| HARMONY.contains(&it.to_bytes()))
                {
                    return true;
                }
                // If a file names no special tokens, llama.cpp's default ids may be punctuation.
                (self.is_end_of_generation(token) || roles.contains(&token))
                    && String::from_utf8_lossy(&self.piece(token, true)).chars().nth(1).is_some()
            };
            (0..self.n_tokens).map(is_reserved).collect()
        })
    }

    /// The tokens to which the file or llama.cpp gives a role, except normal tokens.
    fn roles(&self) -> Vec<TokenId> {
        let by_role = [
            sys::llama_vocab_bos,
            sys::llama_vocab_eos,
            sys::llama_vocab_eot,
            sys::llama_vocab_sep,
            sys::llama_vocab_pad,
            sys::llama_vocab_mask,
            sys::llama_vocab_fim_pre,
            sys::llama_vocab_fim_suf,
            sys::llama_vocab_fim_mid,
            sys::llama_vocab_fim_pad,
            sys::llama_vocab_fim_rep,
            sys::llama_vocab_fim_sep,
        ];
        // SAFETY: the model is alive.
        by_role.map(|role| unsafe { role(self.model.vocab()) }).to_vec()
    }

    fn kind(&self) -> sys::llama_vocab_type {
        // SAFETY: the model is alive.
        unsafe { sys::llama_vocab_type(self.model.vocab()) }
    }

    /// The token for text that the vocabulary cannot represent. BERT's files mark it as a control
    /// token.
    fn unknown(&self) -> Option<TokenId> {
        // llama.cpp's default id for WordPiece vocabularies.
        const OF_BERT: TokenId = 100;
        *self.unknown.get_or_init(|| match self.model.metadata("tokenizer.ggml.unknown_token_id") {
            Some(id) => id.parse().ok(),
            None => (self.kind() == sys::LLAMA_VOCAB_TYPE_WPM).then_some(OF_BERT),
        })
    }

    /// The cutting rules of this kind of tokenizer, before the tokens of the vocabulary restrict
    /// them.
    fn rules(&self) -> &TextPieces {
        self.rules.get_or_init(|| {
            let value = |key| self.model.metadata(key);
            match self.kind() {
                sys::LLAMA_VOCAB_TYPE_BPE => {
                    let pre = value("tokenizer.ggml.pre").unwrap_or_default();
                    match value("tokenizer.ggml.model").as_deref() {
                        Some("gemma4") => TextPieces::byte_pairs("gemma4"),
                        Some("gpt2" | "whitespace") => TextPieces::byte_pairs(&pre),
                        _ => TextPieces::byte_pairs(&pre).uncut(),
                    }
                }
                sys::LLAMA_VOCAB_TYPE_SPM => {
                    let adds_space = value("tokenizer.ggml.add_space_prefix");
                    TextPieces::whole_text(adds_space.is_none_or(|value| value == "true"))
                }
                sys::LLAMA_VOCAB_TYPE_WPM
                | sys::LLAMA_VOCAB_TYPE_RWKV
                | sys::LLAMA_VOCAB_TYPE_PLAMO2 => TextPieces::whole_text(false),
                _ => TextPieces::whole_text(false).uncut(),
            }
        })
    }

    /// Where texts may be cut with this vocabulary. Computed once, by looking at all tokens.
    fn cuts(&self) -> &TextPieces {
        self.cuts.get_or_init(|| {
            // A pre-tokenizer splits text independently of the tokens, except that some tokens are
            // matched before it.
            let words = [sys::LLAMA_VOCAB_TYPE_BPE, sys::LLAMA_VOCAB_TYPE_WPM];
            let words = words.contains(&self.kind());
            let spans = |token: &TokenId| {
                !words || self.attributes(*token) & sys::LLAMA_TOKEN_ATTR_USER_DEFINED != 0
            };
            let tokens = (0..self.n_tokens).filter(spans).filter_map(|token| self.text(token));
            tokens.fold(*self.rules(), |rules, text| rules.with_token(&text.to_string_lossy()))
        })
    }

    /// A message about the first difference from another vocabulary; `None` if all tokens are
    /// equal.
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

    /// The token's text as written in the file.
    fn text(&self, token: TokenId) -> Option<&CStr> {
        // SAFETY: the id is inside the vocabulary, and the model is alive.
        let text = unsafe { sys::llama_vocab_get_text(self.model.vocab(), token) };
        // SAFETY: llama.cpp returns NUL-terminated text that lives as long as the model.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    }

    /// The tokens of a text that is tokenized in one piece.
    fn tokenize_piece(&self, text: &str, parse_special: bool) -> Result<Vec<TokenId>> {
        let rules = self.rules();
        if !rules.may_exceed(text.len(), stack::remaining()) {
            return self.call_tokenize(text, false, parse_special);
        }
        let needed = rules.stack_for(text).map_err(|reason| {
            let message = format!(
                "messages: this model's tokenizer cannot take a part of the prompt: {reason}; \
                 shorten it or break it up"
            );
            Error::new(Code::ContextOverflow, message)
        })?;
        stack::with_stack(needed, || self.call_tokenize(text, false, parse_special))
    }

    /// The tokens of a text, none of them reserved.
    fn tokenize_plain(&self, text: &str, interrupt: &Interrupt) -> Result<Vec<TokenId>> {
        let tokens = self.tokenize_piece(text, false)?;
        let reserved = self.reserved();
        let is_plain = |token: &TokenId| {
            usize::try_from(*token).is_ok_and(|token| reserved.get(token) == Some(&false))
        };
        if tokens.iter().all(is_plain) {
            return Ok(tokens);
        }
        without_reserved(self, text, tokens, interrupt)
    }

    /// The tokens that the vocabulary adds before and after a text, such as `[CLS]` and `[SEP]`.
    pub(crate) fn enclosing(&self) -> Result<[Vec<TokenId>; 2]> {
        // Any text works if tokenizers with a special rule for the beginning of a text do not
        // change it.
        const TEXT: &str = "a";
        let plain = self.call_tokenize(TEXT, false, false)?;
        let mut whole = self.call_tokenize(TEXT, true, false)?;
        let starts_at = |start: &usize| whole[*start..].starts_with(&plain);
        let start = match plain.is_empty() {
            true => usize::from(self.required_bos().is_some()).min(whole.len()),
            false => (0..whole.len()).find(starts_at).unwrap_or(0),
        };
        let after = whole.split_off((start + plain.len()).min(whole.len()));
        whole.truncate(start);
        Ok([whole, after])
    }

    /// The token between the two texts of a pair, in addition to the enclosing tokens.
    pub(crate) fn pair_separator(&self) -> Option<TokenId> {
        // SAFETY: the model is alive.
        let wanted = unsafe { sys::llama_vocab_get_add_sep(self.model.vocab()) };
        // SAFETY: the model is alive.
        let separator = unsafe { sys::llama_vocab_sep(self.model.vocab()) };
        // WordPiece ends every text with this token anyway.
        let ends_text = self.kind() == sys::LLAMA_VOCAB_TYPE_WPM;
        (wanted && !ends_text && self.contains(separator)).then_some(separator)
    }

    /// Whether the id may be passed to llama.cpp. An id outside the vocabulary throws an exception
    /// through C.
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
        // A vocabulary that is padded to a round size has tokens without text. An empty token is
        // never allowed.
        if special.is_empty() { plain } else { [&[0xFF], special.as_slice()].concat() }
    });
    let ends = tokens.filter(|token| vocab.is_end_of_generation(*token)).map(|token| token as u32);
    Vocabulary {
        token_bytes: token_bytes.collect(),
        end_tokens: ends.collect(),
        tokenize: Box::new({
            let vocab = Arc::clone(vocab);
            move |text| {
                let tokens = vocab.tokenize(text, false, &Interrupt::default()).unwrap_or_default();
                tokens.into_iter().map(|token| token as u32).collect()
            }
        }),
    }
}

impl PlainVocab for LlamaVocab {
    fn raw_tokens(&self, text: &str) -> Result<Vec<TokenId>> {
        self.tokenize_piece(text, false)
    }

    fn is_reserved(&self, token: TokenId) -> bool {
        !usize::try_from(token).is_ok_and(|token| self.reserved().get(token) == Some(&false))
    }

    fn is_unknown(&self, token: TokenId) -> bool {
        self.unknown() == Some(token)
            || self.contains(token) && self.attributes(token) & sys::LLAMA_TOKEN_ATTR_UNKNOWN != 0
    }

    fn spellings(&self, token: TokenId) -> Vec<String> {
        let Some(text) =
            Some(token).filter(|token| self.contains(*token)).and_then(|it| self.text(it))
        else {
            return Vec::new();
        };
        let text = text.to_string_lossy();
        let printed = String::from_utf8_lossy(&self.piece(token, true)).into_owned();
        // The whitespace markers of SentencePiece and GPT-2.
        let spaced = text.replace(['\u{2581}', '\u{120}'], " ").replace('\u{10A}', "\n");
        let start = spaced.trim_start_matches(' ').to_owned();
        let mut spellings = vec![text.into_owned(), printed, spaced, start];
        spellings.sort_unstable();
        spellings.dedup();
        spellings.retain(|spelling| !spelling.is_empty());
        spellings
    }

    fn text_of(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens.iter().flat_map(|token| self.piece(*token, true)).collect()
    }

    fn byte_token(&self, byte: u8) -> Option<TokenId> {
        let tokens = self.byte_tokens.get_or_init(|| {
            let mut tokens = Box::new([None; 256]);
            for token in (0..self.n_tokens).filter(|token| !self.is_reserved(*token)) {
                if let [byte] = self.piece(token, false)[..] {
                    tokens[usize::from(byte)].get_or_insert(token);
                }
            }
            tokens
        });
        tokens[usize::from(byte)]
    }
}

impl Vocab for LlamaVocab {
    /// No token's text is shorter than the part of a prompt that it stands for, except with
    /// tokenizers that change the text first, and vocabularies that lack tokens for bytes.
    fn longest_token(&self) -> Option<usize> {
        let keeps_text = [
            sys::LLAMA_VOCAB_TYPE_BPE,
            sys::LLAMA_VOCAB_TYPE_SPM,
            sys::LLAMA_VOCAB_TYPE_RWKV,
            sys::LLAMA_VOCAB_TYPE_PLAMO2,
        ];
        let length = |token| self.text(token).map(|text| text.to_bytes().len());
        keeps_text.contains(&self.kind()).then(|| {
            *self.longest.get_or_init(|| {
                let longest = (0..self.n_tokens).filter_map(length).max().unwrap_or_default();
                // An unknown character is one token.
                longest.max(char::MAX.len_utf8())
            })
        })
    }

    fn len(&self) -> usize {
        self.n_tokens as usize
    }

    fn tokenize(
        &self,
        text: &str,
        parse_special: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>> {
        if parse_special {
            return self.tokenize_piece(text, true);
        }
        if text.len() <= PIECE {
            return self.known.tokens(text, || self.tokenize_plain(text, interrupt));
        }
        let mut tokens = Vec::new();
        for piece in self.cuts().cut(text, PIECE) {
            interrupt.check()?;
            tokens.extend(self.tokenize_plain(piece, interrupt)?);
        }
        Ok(tokens)
    }

    fn piece(&self, token: TokenId, special: bool) -> Vec<u8> {
        if !self.contains(token) {
            return Vec::new();
        }
        let bytes = shim::fill(64, |bytes: &mut [u8]| {
            // SAFETY: the buffer is valid for its length, the id is inside the vocabulary, and the
            // model is alive.
            shim::guard(|| unsafe {
                let (buffer, length) = (bytes.as_mut_ptr().cast::<c_char>(), bytes.len() as i32);
                shim::calls::llama_token_to_piece(
                    self.model.vocab(),
                    token,
                    buffer,
                    length,
                    0,
                    special,
                )
            })
        });
        bytes.ok().flatten().unwrap_or_default()
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

    fn fill_spellings(&self) -> Option<[String; 3]> {
        let roles = [sys::llama_vocab_fim_pre, sys::llama_vocab_fim_suf, sys::llama_vocab_fim_mid];
        // SAFETY: the model is alive.
        let tokens = roles.map(|role| unsafe { role(self.model.vocab()) });
        if tokens.iter().any(|token| !self.contains(*token)) {
            return None;
        }
        Some(tokens.map(|token| String::from_utf8_lossy(&self.piece(token, true)).into_owned()))
    }

    fn suppressed(&self) -> &[TokenId] {
        self.model.suppressed()
    }

    fn special_tokens(&self) -> &SpecialTokens {
        self.special.get_or_init(|| {
            SpecialTokens::new((0..self.n_tokens).filter_map(|token| self.special(token)).collect())
        })
    }
}
