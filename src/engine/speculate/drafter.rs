//! What makes drafts: the interface of prompt lookup, of a draft model, and of layers that predict
//! further tokens.

use crate::engine::backend::TokenId;

/// A decoding job, as a drafter sees it.
#[derive(Debug, Clone, Copy)]
pub struct DraftRequest<'a> {
    /// The sequence of the job.
    pub sequence: usize,
    /// The tokens in its sequence.
    pub tokens: &'a [TokenId],
    /// The sampled token that follows `tokens`.
    pub next: TokenId,
    /// The maximum number of tokens to draft after `next`; at least 1.
    pub most: usize,
    /// Whether the text so far is incomplete by the job's grammar, as within a value of a call.
    /// Values mostly repeat the conversation.
    pub is_value: bool,
}

/// New tokens of a sequence, which the model has computed.
#[derive(Debug, Clone, Copy)]
pub struct DecodedTokens<'a> {
    /// The sequence.
    pub sequence: usize,
    /// All tokens of the sequence.
    pub tokens: &'a [TokenId],
    /// How many of them it had before; less than `tokens`.
    pub before: usize,
    /// The model's hidden states after the new tokens, one after another.
    pub states: &'a [f32],
}

/// Drafts tokens. A drafter lives on the engine thread and is used by no other thread.
pub trait Drafter {
    /// Returns one draft for each of `wanted`, in order. A draft may be empty. `abort` is polled.
    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>>;

    /// Whether it needs [`Drafter::decoded`].
    fn reads_hidden(&self) -> bool {
        false
    }

    /// Is called after each decode with the new tokens. Some of them may be drafts that are then
    /// rejected.
    fn decoded(&mut self, _parts: &[DecodedTokens]) {}

    /// Sets the number of threads for the following drafts. Does nothing for a drafter without a
    /// model.
    fn set_threads(&mut self, _threads: usize) {}
}
