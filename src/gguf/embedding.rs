//! The facts in a header about vectors of texts and scores of pairs of texts.

use super::header::ModelHeader;
use super::value::GgufValue;
use crate::error::{Code, Error, Result};

/// llama.cpp's number for a vector of each token (`LLAMA_POOLING_TYPE_NONE`).
const NO_POOLING: u64 = 0;
/// llama.cpp's number for scores (`LLAMA_POOLING_TYPE_RANK`), which is the greatest.
const RANK: u64 = 4;
/// The key of the template for a pair of texts (llama.cpp's converter;
/// `tokenizer.chat_template.NAME`).
const RERANK_KEY: &str = "tokenizer.chat_template.rerank";

impl ModelHeader {
    /// How the vectors of a text's tokens become one vector, as llama.cpp's number from 0 to 4.
    /// `None` if the file does not state it.
    ///
    /// # Errors
    /// `MODEL_INVALID` for any other number, because llama.cpp would fail an assertion.
    pub fn pooling(&self) -> Result<Option<u64>> {
        match self.architecture_value("pooling_type") {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if number <= RANK => Ok(Some(number)),
                _ => {
                    let key = format!("{}.pooling_type", self.architecture());
                    let message = format!("{key}: expected a number from 0 to {RANK}");
                    Err(Error::new(Code::ModelInvalid, message))
                }
            },
        }
    }

    /// Whether a token also attends to later tokens, according to the file.
    pub fn is_bidirectional(&self) -> bool {
        matches!(self.architecture_value("attention.causal"), Some(GgufValue::Bool(false)))
    }

    /// Whether the file has weights that turn a pooled vector into scores.
    pub fn has_classifier(&self) -> bool {
        let tensors = self.tensors().list.iter();
        tensors
            .map(|tensor| tensor.name.as_str())
            .any(|name| matches!(name, "cls.weight" | "cls.output.weight"))
    }

    /// The text in which the model expects a pair of texts, with `{query}` and `{document}`.
    pub fn rerank_template(&self) -> Option<&str> {
        self.get(RERANK_KEY)?.as_str()
    }

    /// Refuses a model that is made for vectors or scores and cannot generate text.
    ///
    /// # Errors
    /// `MODEL_INVALID`. The message says which function to call instead.
    pub fn check_generates(&self) -> Result<()> {
        let Some(number) = self.pooling()?.filter(|number| *number != NO_POOLING) else {
            return Ok(());
        };
        let key = format!("{}.pooling_type", self.architecture());
        let (makes, function) = match number {
            RANK => ("scores of texts", "llb_rank"),
            _ => ("vectors of texts", "llb_embed"),
        };
        let message = format!(
            "the model makes {makes} and generates no text ({key} is {number}); open it with \
             llb_embed_create and call {function}"
        );
        Err(Error::new(Code::ModelInvalid, message))
    }
}
