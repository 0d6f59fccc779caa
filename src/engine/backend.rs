//! What the scheduler needs of something that computes logits.

use std::ops::Range;

use super::special_tokens::SpecialTokens;
use crate::api::Sampling;
use crate::error::Result;

/// A token id of the model's vocabulary.
pub type TokenId = i32;

/// Tokens a grammar allows next, one bit each.
pub type TokenMask = llguidance::toktrie::SimpleVob;

/// One token of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The token.
    pub token: TokenId,
    /// Its position in the sequence.
    pub position: usize,
    /// Its sequence, below [`Backend::n_sequences`].
    pub sequence: usize,
    /// Whether its logits are wanted.
    pub logits: bool,
}

/// How a decode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// Logits are there.
    Done,
    /// `abort` said so; the KV cache of the batch's sequences may hold a part of it.
    Aborted,
}

/// Computes logits. Lives on the engine thread and is used by no other.
pub trait Backend {
    /// Cells of the KV cache, shared by all sequences.
    fn n_ctx(&self) -> usize;

    /// Most entries of one batch.
    fn n_batch(&self) -> usize;

    /// Number of sequences.
    fn n_sequences(&self) -> usize;

    /// Whether a fault has left it in an unknown state. Then every call fails, and nothing of it is
    /// touched again.
    fn is_broken(&self) -> bool;

    /// Computes a batch. `abort` is asked now and then while it runs.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded>;

    /// Forgets all positions of a sequence from `length` on. False where the model cannot forget a
    /// part only, or has lost what the rest of the sequence looks back to; then nothing of it may
    /// be used.
    fn truncate(&mut self, sequence: usize, length: usize) -> bool;

    /// Whether a part of a sequence can be copied or forgotten: not where a model's memory is one
    /// state for all that was read. There nothing is shared, and nothing is guessed.
    fn is_divisible(&self) -> bool;

    /// The fewest tokens that a sequence of `length` can be cut to, or copied up to, and still go
    /// on; fewer leave nothing of it. 1 where all of it is there, `length` where it can only be
    /// taken as a whole. In between where layers with a sliding window have lost what a shorter
    /// beginning would look back to; this grows as other sequences are computed.
    fn shortest(&self, sequence: usize, length: usize) -> usize;

    /// Gives `to`, which holds the same positions below `range`, those of `from` in `range`, in the
    /// same cells. False where that cannot be done after all; then `to` is empty.
    fn copy(&mut self, from: usize, to: usize, range: Range<usize>) -> bool;

    /// What is computed of a sequence, for [`Backend::restore`].
    fn keep(&self, sequence: usize) -> Result<Vec<u8>>;

    /// Puts what another backend of the same kind kept of `n_tokens` tokens into an empty sequence.
    /// After an error the sequence is empty.
    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()>;

    /// A sampler whose penalties have seen `recent`.
    fn sampler(&self, sampling: &Sampling, recent: &[TokenId]) -> Result<Box<dyn Sampler>>;

    /// The logits of the `row`-th entry of the last batch (an entry that asked for them), one per
    /// token of the vocabulary.
    fn logits(&self, row: usize) -> Result<&[f32]>;
}

/// Chooses one token.
pub trait Sampler {
    /// Draws from logits, one per token of the vocabulary, among the tokens `mask` allows. None
    /// when not one of them has a probability. Remembers nothing but how many random numbers it
    /// took.
    fn draw(&mut self, logits: &[f32], mask: Option<&TokenMask>) -> Option<TokenId>;

    /// Remembers a token of the reply, for penalties.
    fn accept(&mut self, token: TokenId);
}

/// The vocabulary. Immutable: any thread may ask.
pub trait Vocab: Send + Sync {
    /// Number of tokens.
    fn len(&self) -> usize;

    /// Whether there is no token at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Text to tokens, without adding BOS or EOS. With `parse_special`, text that spells a special
    /// token becomes it.
    fn tokenize(&self, text: &str, parse_special: bool) -> Result<Vec<TokenId>>;

    /// The bytes of a token; control tokens have none unless `special`.
    fn piece(&self, token: TokenId, special: bool) -> Vec<u8>;

    /// Whether the token ends a generation.
    fn is_end_of_generation(&self, token: TokenId) -> bool;

    /// The token that begins a text, where prompts must have it.
    fn required_bos(&self) -> Option<TokenId>;

    /// The tokens that are found in a text before the rest of it is tokenised.
    fn special_tokens(&self) -> &SpecialTokens;
}
