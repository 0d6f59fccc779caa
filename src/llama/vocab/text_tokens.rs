//! Texts to tokens and back as llama.cpp's own functions do it, for texts of any length.
//!
//! In: a text and llama.cpp's two options, or tokens. Out: exactly `llama_tokenize`'s tokens, or
//! `llama_detokenize`'s bytes. Prompts are tokenized elsewhere, so that only the template can write
//! reserved tokens.

use std::ffi::c_char;

use super::LlamaVocab;
use super::text_pieces::PIECE;
use crate::engine::{Interrupt, TokenId, Vocab};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim;

impl LlamaVocab {
    /// Tokenizes a text. `add_special` adds the tokens that the vocabulary puts around a text, such
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
        let too_long = || Error::invalid("ids", "too many to write as one text; send fewer");
        let count = i32::try_from(tokens.len()).map_err(|_| too_long())?;
        let mut bytes = vec![0_u8; tokens.len() * 6 + 16];
        for _ in 0..2 {
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
            let written = written.map_err(|failed| {
                failed.error(Code::InferenceFailed, "llama.cpp could not detokenize")
            })?;
            match usize::try_from(written) {
                Ok(written) => {
                    bytes.truncate(written);
                    return Ok(bytes);
                }
                Err(_) => bytes.resize(written.unsigned_abs() as usize, 0),
            }
        }
        Err(Error::new(Code::InferenceFailed, "llama.cpp could not detokenize"))
    }
}
