//! Reasoning as the engine follows it: tags and budget.

use std::sync::Arc;

use crate::engine::{ReasoningBudget, ReasoningOptions, Vocab};
use crate::error::Result;

/// The tags of a model's reasoning, whether the prompt ends inside them, and the budget of a
/// request.
pub(super) fn reasoning(
    [open, close]: &[Arc<str>; 2],
    inside: bool,
    tokens: Option<usize>,
    vocab: &dyn Vocab,
) -> Result<ReasoningOptions> {
    let budget = match tokens {
        Some(tokens) => Some(ReasoningBudget { tokens, ending: vocab.tokenize(close, true)? }),
        None => None,
    };
    Ok(ReasoningOptions { open: Arc::clone(open), close: Arc::clone(close), inside, budget })
}
