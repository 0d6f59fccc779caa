//! What the engine needs to know of a model's reasoning.

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::engine::{Budget, Reasoning, Vocab};
use crate::error::Result;

/// The tags around a model's reasoning, whether the prompt ended inside of them, and a request's
/// budget.
pub(super) fn reasoning(
    [open, close]: &[Arc<str>; 2],
    inside: bool,
    tokens: Option<usize>,
    vocab: &dyn Vocab,
) -> Result<Reasoning> {
    let budget = match tokens {
        Some(tokens) => Some(Budget { tokens, ending: vocab.tokenize(close, true)? }),
        None => None,
    };
    Ok(Reasoning { open: Arc::clone(open), close: Arc::clone(close), inside, budget })
}

/// For a budget that a model has no use for.
pub(super) fn ignored() -> Diagnostic {
    Diagnostic::new(
        "reasoning_budget_ignored",
        "reasoning_budget: how this model marks reasoning is not known, so there is nothing to limit",
    )
}
