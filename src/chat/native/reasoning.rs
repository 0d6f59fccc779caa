//! Configures how the engine follows the reasoning of a reply and ends it.

use std::sync::Arc;

use super::NativeSource;
use crate::api::ChatRequest;
use crate::engine::{Interrupt, ReasoningOptions};
use crate::error::{Error, Result};

impl NativeSource {
    /// The tags of the model's reasoning, its budget, and the tokens that end it. `None` if the
    /// tags are unknown. `inside` is true if the prompt ends inside reasoning.
    pub(super) fn reasoning(
        &self,
        request: &ChatRequest,
        inside: bool,
        interrupt: &Interrupt,
    ) -> Result<Option<ReasoningOptions>> {
        let Some([open, close]) = &self.reasoning_tags else { return Ok(None) };
        let message = &request.output.reasoning_budget_message;
        if message.contains(&**close) {
            let problem = format!("contains {close:?}, which ends the reasoning; leave it out");
            return Err(Error::invalid("reasoning_budget_message", problem));
        }
        let model = self.model()?;
        let vocab = model.engine.vocab();
        // Text from a request never becomes special tokens.
        let mut ending = vocab
            .tokenize(message, false, interrupt)
            .map_err(|error| error.about("reasoning_budget_message"))?;
        if ending.len() >= model.n_ctx {
            let (tokens, n_ctx) = (ending.len(), model.n_ctx);
            let problem = format!("has {tokens} tokens, but the context has {n_ctx}; shorten it");
            return Err(Error::invalid("reasoning_budget_message", problem));
        }
        ending.extend(vocab.tokenize(close, true, interrupt)?);
        Ok(Some(ReasoningOptions {
            open: Arc::clone(open),
            close: Arc::clone(close),
            inside,
            budget: request.output.reasoning_budget,
            ending,
        }))
    }
}
