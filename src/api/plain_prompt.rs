//! The members `prompt` and `suffix` of a request: a text that the model continues as it is, without
//! a chat template.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// What the model continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainPrompt {
    /// A text.
    Text {
        /// The text before the reply.
        prompt: String,
        /// The text after the reply, which then fills the gap.
        suffix: Option<String>,
    },
    /// Tokens, which are used as they are.
    Tokens(Vec<i32>),
}

impl PlainPrompt {
    /// Reads both members. None if the request has messages instead.
    pub(super) fn read(fields: &mut Fields) -> Result<Option<PlainPrompt>> {
        let suffix = fields.string("suffix")?.map(str::to_owned);
        match fields.get("prompt") {
            None if suffix.is_some() => Err(fields.invalid("suffix", "requires `prompt`")),
            None => Ok(None),
            Some(Value::String(text)) => {
                Ok(Some(PlainPrompt::Text { prompt: text.clone(), suffix }))
            }
            Some(Value::Array(_)) if suffix.is_some() => {
                Err(fields.invalid("suffix", "requires a `prompt` of text"))
            }
            Some(Value::Array(tokens)) => {
                let token = |(index, token): (usize, &Value)| {
                    let id = token.as_i64().and_then(|id| i32::try_from(id).ok());
                    id.filter(|id| *id >= 0).ok_or_else(|| {
                        let problem = expected("a token id", token);
                        fields.invalid(&format!("prompt[{index}]"), problem)
                    })
                };
                let tokens: Result<Vec<i32>> = tokens.iter().enumerate().map(token).collect();
                Ok(Some(PlainPrompt::Tokens(tokens?)))
            }
            Some(other) => {
                Err(fields.invalid("prompt", expected("a string or an array of token ids", other)))
            }
        }
    }
}
