//! `context_overflow` "shift": when the context is full, a reply continues after some tokens are
//! dropped.

use serde_json::{Value, json};

use crate::api::{ChatRequest, ContextOverflow, CreateOptions};
use crate::engine::dropped_tokens;
use crate::error::{Error, Result};
use crate::llama::LoadedModel;

/// Refuses "shift" for models and options that do not support it. Each error names the option.
pub(super) fn check_shift(options: &CreateOptions, model: &LoadedModel) -> Result<()> {
    check_n_keep("defaults.n_keep", options.defaults.n_keep, model.n_ctx)?;
    match model.shift_refusal.filter(|_| options.context_overflow == ContextOverflow::Shift) {
        Some(refusal) => {
            Err(Error::invalid("context_overflow", format!("\"shift\" is not possible: {refusal}")))
        }
        None => Ok(()),
    }
}

/// Refuses to keep more tokens than the context has.
pub(super) fn check_n_keep(path: &str, n_keep: Option<usize>, n_ctx: usize) -> Result<()> {
    match n_keep.filter(|n_keep| *n_keep >= n_ctx) {
        Some(n_keep) => {
            let problem = format!(
                "must be less than n_ctx, which is {n_ctx}, got {n_keep}; -1 keeps the whole prompt"
            );
            Err(Error::invalid(path, problem))
        }
        None => Ok(()),
    }
}

/// The maximum number of tokens of a reply. A context that is shifted never ends it, so without a
/// limit the reply has as many tokens as the context.
pub(super) fn max_tokens(
    overflow: ContextOverflow,
    model: &LoadedModel,
    request: &ChatRequest,
) -> Option<usize> {
    let most = (overflow == ContextOverflow::Shift).then_some(model.n_ctx);
    request.output.max_tokens.or(most)
}

/// The number of first tokens of the prompt and its reply that a context shift keeps. `None` if the
/// reply ends when the context is full. A BOS that the vocabulary requires is kept in addition to
/// `n_keep`, as in llama-server.
pub(super) fn shift_keeps(
    overflow: ContextOverflow,
    model: &LoadedModel,
    request: &ChatRequest,
    prompt_tokens: usize,
) -> Option<usize> {
    if overflow != ContextOverflow::Shift {
        return None;
    }
    let bos = usize::from(model.engine.vocab().required_bos().is_some());
    Some(request.output.n_keep.map_or(prompt_tokens, |n_keep| n_keep + bos))
}

/// Predicts the first context shift of a reply to this prompt: `{"after_tokens", "kept",
/// "dropped"}`. `None` if the reply ends when the context is full.
pub(super) fn first_shift(
    overflow: ContextOverflow,
    model: &LoadedModel,
    request: &ChatRequest,
    prompt_tokens: usize,
) -> Option<Value> {
    let n_ctx = model.n_ctx;
    let keeps = shift_keeps(overflow, model, request, prompt_tokens)?;
    let (kept, dropped) = dropped_tokens(n_ctx - 1, keeps, n_ctx);
    let after = n_ctx.saturating_sub(prompt_tokens);
    Some(json!({ "after_tokens": after, "kept": kept, "dropped": dropped }))
}
