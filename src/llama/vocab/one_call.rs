//! The tokens of a text that llama.cpp tokenizes in one call.
//!
//! In: a text that is short enough for the tokenizer's stack (mod.rs checks that), and llama.cpp's
//! two options. Out: its tokens, or an error that says what the tokenizer cannot take.

use std::collections::HashSet;
use std::ffi::c_char;

use super::LlamaVocab;
use super::plain_text::no_token;
use crate::engine::TokenId;
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;

impl LlamaVocab {
    /// llama.cpp's tokens, but all letters of Hangul. `enclosed` adds the tokens of
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
        // Most tokens have several bytes. If the array is too small, a second call is made.
        let mut tokens: Vec<TokenId> = vec![0; text.len() / 2 + 16];
        for _ in 0..2 {
            let count = self.write_tokens(&mut tokens, &text, enclosed, parse_special);
            let count = count.map_err(|failed| self.refused(&text, &failed))?;
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

    /// The error of a call that did not return.
    fn refused(&self, text: &str, failed: &shim::CallFailed) -> Error {
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
    ) -> std::result::Result<i32, shim::CallFailed> {
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
