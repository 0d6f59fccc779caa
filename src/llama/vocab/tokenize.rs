//! Texts to tokens and back as llama.cpp's own functions do it.
//!
//! In: a text and llama.cpp's two options, or tokens. Out: exactly `llama_tokenize`'s tokens, or
//! `llama_detokenize`'s bytes, or an error that says what the tokenizer cannot take. Prompts are
//! tokenized elsewhere, so that only the template can write reserved tokens.

use std::collections::HashSet;
use std::ffi::c_char;

use super::LlamaVocab;
use super::text_pieces::PIECE;
use crate::engine::{Interrupt, TokenId, Vocab, no_token};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim::{self, CallFailed};

/// The most bytes of the text of tokens. A vocabulary may have tokens of any length, so few tokens
/// may spell a long text.
const MAX_TEXT: usize = 8 << 20;

impl LlamaVocab {
    /// Tokenizes a text of any length. `add_special` adds the tokens that the vocabulary puts around a text, such
    /// as BOS; `parse_special` lets the text spell control tokens. `CONTEXT_OVERFLOW` if a part is
    /// too long for the tokenizer.
    pub(crate) fn tokenize_text(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>> {
        let mut tokens = self.text_tokens(text, parse_special).map_err(|error| {
            let message = error.message().replace("messages: ", "text: ");
            error.with_message(message.replace("of the prompt", "of the text"))
        })?;
        if add_special {
            let [before, after] = self.enclosing()?;
            tokens.splice(0..0, before);
            tokens.extend(after);
        }
        Ok(tokens)
    }

    fn text_tokens(&self, text: &str, parse_special: bool) -> Result<Vec<TokenId>> {
        if text.len() <= PIECE {
            return self.tokenize_piece(text, parse_special);
        }
        if parse_special {
            let (special, interrupt) = (self.special_tokens(), Interrupt::default());
            let tokenized = special.tokenize(self, text, Vec::new(), None, &interrupt)?;
            return Ok(tokenized.tokens);
        }
        let mut tokens = Vec::new();
        for piece in self.cuts().cut(text, PIECE) {
            tokens.extend(self.tokenize_piece(piece, false)?);
        }
        Ok(tokens)
    }

    /// Returns the bytes of tokens, all of which must be in the vocabulary. `remove_special` leaves
    /// out BOS and EOS at the ends if the vocabulary adds them; `unparse_special` spells control
    /// tokens.
    pub(crate) fn detokenize(
        &self,
        tokens: &[TokenId],
        remove_special: bool,
        unparse_special: bool,
    ) -> Result<Vec<u8>> {
        let what = "llama.cpp could not detokenize";
        let too_long = || {
            let problem = format!("spell a text of more than {MAX_TEXT} bytes; send fewer");
            Error::invalid("ids", problem)
        };
        let count = i32::try_from(tokens.len()).map_err(|_| too_long())?;
        let bytes = shim::fill(tokens.len() * 6 + 16, |bytes: &mut [u8]| {
            let room = i32::try_from(bytes.len()).map_err(|_| too_long())?;
            // SAFETY: tokens and bytes are valid for the given lengths, and the model is alive.
            let written = shim::guard(|| unsafe {
                shim::calls::llama_detokenize(
                    self.model.vocab(),
                    tokens.as_ptr(),
                    count,
                    bytes.as_mut_ptr().cast::<c_char>(),
                    room,
                    remove_special,
                    unparse_special,
                )
            });
            let written = written.map_err(|failed| failed.error(Code::InferenceFailed, what))?;
            if written.unsigned_abs() as usize > MAX_TEXT { Err(too_long()) } else { Ok(written) }
        })?;
        bytes.ok_or_else(|| Error::new(Code::InferenceFailed, what))
    }

    /// llama.cpp's tokens, but all letters of Hangul. The text must be short enough for the stack of
    /// the tokenizer. `enclosed` adds the tokens of
    /// [`LlamaVocab::enclosing`].
    pub(super) fn call_tokenize(
        &self,
        text: &str,
        enclosed: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>> {
        let text = self.normalized(text);
        let too_long = || {
            Error::new(
                Code::ContextOverflow,
                format!("a text of {} bytes is too long to tokenize", text.len()),
            )
        };
        if i32::try_from(text.len()).is_err() {
            return Err(too_long());
        }
        // Most tokens have several bytes.
        let tokens = shim::fill(text.len() / 2 + 16, |tokens| {
            match self.write_tokens(tokens, &text, enclosed, parse_special) {
                Ok(i32::MIN) => Err(too_long()),
                Ok(count) => Ok(count),
                Err(failed) => Err(self.refused(&text, &failed)),
            }
        })?;
        let refused = "llama.cpp could not tokenize the prompt";
        tokens.ok_or_else(|| Error::new(Code::InferenceFailed, refused))
    }

    /// The error of a call that did not return.
    fn refused(&self, text: &str, failed: &CallFailed) -> Error {
        let error = failed.error(Code::InferenceFailed, "llama.cpp could not tokenize");
        match error.code() {
            Code::InferenceFailed => {
                self.unwritable(text).map_or(error, |character| no_token(&character))
            }
            _ => error,
        }
    }

    /// The first character that llama.cpp cannot tokenize. Its SentencePiece tokenizer throws an
    /// exception for a character that has no token, if the vocabulary lacks a token for one of the
    /// character's bytes.
    fn unwritable(&self, text: &str) -> Option<String> {
        let fails = |text: &str| self.write_tokens(&mut [0; 16], text, false, false).is_err();
        if fails("") {
            return None;
        }
        // Most of these vocabularies put a space before each text. If the space has no token, all
        // texts fail.
        let characters = [' '].into_iter().chain(text.chars());
        let mut tried = HashSet::new();
        let mut distinct = characters.filter(|character| tried.insert(*character));
        distinct.find(|character| fails(&character.to_string())).map(String::from)
    }

    /// Writes the tokens of a text. Returns their number, negative if there is not enough room.
    fn write_tokens(
        &self,
        tokens: &mut [TokenId],
        text: &str,
        enclosed: bool,
        parse_special: bool,
    ) -> std::result::Result<i32, CallFailed> {
        let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
        // SAFETY: text and tokens are valid for the given lengths, and the model is alive.
        shim::guard(|| unsafe {
            shim::calls::llama_tokenize(
                self.model.vocab(),
                text.as_ptr().cast::<c_char>(),
                length,
                tokens.as_mut_ptr(),
                tokens.len() as i32,
                enclosed,
                parse_special,
            )
        })
    }
}
