//! What the scheduler needs from the code that computes logits.

use std::ops::Range;
use std::time::Duration;

use super::interrupt::Interrupt;
use super::special_tokens::SpecialTokens;
use super::threads::ThreadLimits;
use crate::error::Result;

/// A token id of the vocabulary.
pub type TokenId = i32;

/// The tokens that a grammar allows next, one bit each.
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
    /// Whether its logits are needed.
    pub logits: bool,
}

/// How a decode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// The logits are available.
    Done,
    /// `abort` returned true. The KV cache may hold a part of the batch. If the backend is not
    /// divisible, no sequence may be used before [`Backend::clear`].
    Aborted,
}

/// Computes logits. Lives on the engine thread and is used by no other.
pub trait Backend {
    /// Cells of the KV cache, shared by all sequences.
    fn n_ctx(&self) -> usize;

    /// The most entries of one batch.
    fn n_batch(&self) -> usize;

    /// The number of sequences.
    fn n_sequences(&self) -> usize;

    /// Whether a fault has left it in an unknown state. Then every call fails, and the state is not
    /// used again.
    fn is_broken(&self) -> bool;

    /// The threads that it may compute with.
    fn threads(&self) -> ThreadLimits;

    /// Sets the threads of the following decodes, at least 1 and at most [`ThreadLimits::most`].
    fn set_threads(&mut self, threads: usize);

    /// How long the first `threads` of its threads, with the calling one, have waited for a
    /// processor so far, summed up. `None` if the system does not tell.
    fn waited(&self, threads: usize) -> Option<Duration>;

    /// Computes a batch. `abort` is polled while it runs. After an error the same holds as after an
    /// abort.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded>;

    /// Removes all positions of a sequence from `length` on. False if the model cannot remove a
    /// part, or has lost what the rest attends to; then no part of the sequence may be used.
    fn truncate(&mut self, sequence: usize, length: usize) -> bool;

    /// Empties every sequence.
    fn clear(&mut self);

    /// Whether a part of a sequence can be copied or removed. Not if the model keeps one state for
    /// the whole sequence: then nothing is shared and nothing is drafted.
    fn is_divisible(&self) -> bool;

    /// The fewest tokens that a sequence of `length` can be cut to, or copied up to, and still
    /// continue. 1 if any prefix is usable, `length` if only the whole sequence is. In between if
    /// layers with a sliding window have lost what a shorter prefix attends to; the value grows as
    /// other sequences are computed.
    fn shortest(&self, sequence: usize, length: usize) -> usize;

    /// Adds the positions of `from` in `range` to `to`, which holds the same positions before them;
    /// the two share the cells. False if that fails; then `to` is empty.
    fn copy(&mut self, from: usize, to: usize, range: Range<usize>) -> bool;

    /// Saves a sequence for [`Backend::restore`].
    fn save(&self, sequence: usize) -> Result<Vec<u8>>;

    /// Restores a sequence of `n_tokens` tokens that a backend of the same kind saved, into an
    /// empty sequence. After an error the sequence is empty.
    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()>;

    /// The logits of the `row`-th entry of the last batch, one per token of the vocabulary. The
    /// entry must have requested logits.
    fn logits(&self, row: usize) -> Result<&[f32]>;
}

/// The vocabulary. It is immutable and may be used from any thread.
pub trait Vocab: Send + Sync {
    /// The number of tokens.
    fn len(&self) -> usize;

    /// Whether there are no tokens.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts text to tokens without adding BOS or EOS. With `parse_special`, text that spells a
    /// special token becomes that token. Without it, no reserved token is among the tokens.
    ///
    /// `CANCELLED` when `interrupt` says so, `CONTEXT_OVERFLOW` if the text is too long.
    fn tokenize(
        &self,
        text: &str,
        parse_special: bool,
        interrupt: &Interrupt,
    ) -> Result<Vec<TokenId>>;

    /// The bytes of a token. Control tokens have none unless `special`.
    fn piece(&self, token: TokenId, special: bool) -> Vec<u8>;

    /// Whether the token ends a generation.
    fn is_end_of_generation(&self, token: TokenId) -> bool;

    /// The token that must begin a prompt, if there is one.
    fn required_bos(&self) -> Option<TokenId>;

    /// Tokens that are never drawn.
    fn suppressed(&self) -> &[TokenId] {
        &[]
    }

    /// The tokens that are matched in a text before the rest is tokenized.
    fn special_tokens(&self) -> &SpecialTokens;
}
