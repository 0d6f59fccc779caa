//! The interface between the scheduler and the code that computes logits.

use std::sync::Arc;
use std::time::Duration;

use crate::api::AdapterScales;
use crate::error::{Code, Error, Result};

/// A token id of the vocabulary.
pub type TokenId = i32;

/// The tokens that a grammar allows next, one bit each.
pub type TokenMask = llguidance::toktrie::SimpleVob;

/// One token of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The token.
    pub token: TokenId,
    /// Its position in the sequence: how many places are before it.
    pub position: usize,
    /// Its sequence, below [`Backend::n_sequences`].
    pub sequence: usize,
    /// Whether its logits are needed.
    pub logits: bool,
}

/// Embeddings of one sequence to decode: a piece of media, or a part of it.
pub struct EmbeddingBatch<'a> {
    /// The embeddings, one after another.
    pub rows: &'a [f32],
    /// The place in the piece of the first of them.
    pub start: usize,
    /// How many there are.
    pub count: usize,
    /// Their sequence.
    pub sequence: usize,
    /// The position of the first of them: how many places of the sequence are before it.
    pub position: usize,
    /// Whether each attends only to those before it.
    pub is_causal: bool,
    /// What the model takes in place of these positions, for the whole piece.
    pub rotations: Option<&'a Arc<PieceRotations>>,
}

/// The positions by which a model rotates a piece whose places it does not see in a row: those of a
/// picture are a grid for models with M-RoPE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceRotations {
    /// For each place, its distance from the position of the first place: in time, where it does not
    /// decrease, in rows and in columns.
    pub offsets: Vec<[u32; 3]>,
    /// The distance of the token after the piece.
    pub count: usize,
}

/// The threads of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLimits {
    /// The maximum number of threads of a decode, at least 1. If the number is not adapted, every
    /// decode has this many.
    pub most: usize,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// Who chooses the number of threads.
    pub policy: ThreadPolicy,
}

/// Who chooses the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// The caller: every decode has the maximum number.
    Pinned,
    /// The controller, by the cost of earlier decodes.
    Adaptive,
    /// It is not adapted: a device computes, and the threads do little.
    Device,
}

/// The result of a decode that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// The logits are available.
    Done,
    /// `abort` returned true. The KV cache may hold a part of the batch. If the backend is not
    /// divisible, no sequence may be used before [`Backend::clear`].
    Aborted,
}

/// Computes logits. A backend lives on the engine thread and is used by no other thread.
pub trait Backend {
    /// The maximum number of tokens of a sequence.
    fn n_ctx(&self) -> usize;

    /// The number of cells in the KV cache, which all sequences share unless there are enough for
    /// each to be full.
    fn n_cells(&self) -> usize {
        self.n_ctx()
    }

    /// The maximum number of entries in a batch.
    fn n_batch(&self) -> usize;

    /// The number of sequences. They are numbered from 0.
    fn n_sequences(&self) -> usize;

    /// Whether a fault has left the backend in an unknown state. Every later call then fails, and
    /// the state is never used again.
    fn is_broken(&self) -> bool;

    /// The threads that the backend may compute with, and who chooses their number.
    fn threads(&self) -> ThreadLimits;

    /// Sets the number of threads for the following decodes, at least 1 and at most
    /// [`ThreadLimits::most`].
    fn set_threads(&mut self, threads: usize);

    /// The total time for which the first `threads` threads have waited for a processor since they
    /// started. The calling thread is one of them. `None` if the system does not report it.
    fn waited(&self, threads: usize) -> Option<Duration>;

    /// The hidden states of the entries of the last batch, one after another: the input of
    /// [`PredictingLayers`](super::PredictingLayers). `None` if the backend does not keep them.
    fn hidden(&self) -> Option<&[f32]> {
        None
    }

    /// Sets the scales of the adapters for the following decodes. Cells that are already computed
    /// do not change.
    fn set_adapters(&mut self, scales: &AdapterScales) -> Result<()>;

    /// Computes a batch. `abort` is polled while the batch is computed. After an error the state is
    /// the same as after an abort.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded>;

    /// Computes embeddings in the places of tokens, at most as many as a batch has entries. No logits
    /// are available afterwards. Otherwise as [`Backend::decode`].
    fn decode_embeddings(
        &mut self,
        _batch: &EmbeddingBatch,
        _abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        Err(Error::new(Code::InferenceFailed, "this backend decodes tokens only"))
    }

    /// Removes all positions of a sequence from `length` on. Returns false if the model cannot
    /// remove a part of a sequence or of a piece of media, or no longer has the cells that the
    /// remaining tokens attend to.
    /// The caller must then not use any part of the sequence.
    fn truncate(&mut self, sequence: usize, length: usize) -> bool;

    /// How many of the last tokens of a decode [`Backend::truncate`] can remove from a sequence that
    /// is not divisible, once. The decode must have had no other sequence, or those of
    /// [`Backend::can_roll_back_together`], and nothing but such removals may have changed since.
    /// `usize::MAX` if the backend is divisible.
    fn max_rollback(&self) -> usize {
        if self.is_divisible() { usize::MAX } else { 0 }
    }

    /// Whether [`Backend::max_rollback`] also holds for a decode of these sequences, in this order, if
    /// it has the same number of tokens of each.
    fn can_roll_back_together(&self, sequences: &[usize]) -> bool {
        sequences.len() < 2 || self.is_divisible()
    }

    /// Empties every sequence.
    fn clear(&mut self);

    /// Whether a part of a sequence can be copied or removed. A model with recurrent layers keeps
    /// one state for the whole sequence, so it is not divisible. Then only whole sequences are
    /// copied, and the end of a sequence is removed by [`Backend::rewind`], or as far as
    /// [`Backend::max_rollback`] says.
    fn is_divisible(&self) -> bool;

    /// The state of a sequence that is not divisible, for [`Backend::rewind`]. `None` if it cannot
    /// be saved.
    fn checkpoint(&self, sequence: usize) -> Option<Vec<u8>>;

    /// Removes all positions of a sequence from `length` on. `state` is what
    /// [`Backend::checkpoint`] saved at `length`. Returns false if that fails; the sequence is then
    /// empty.
    fn rewind(&mut self, sequence: usize, length: usize, state: &[u8]) -> bool;

    /// The shortest prefix of a sequence of `length` tokens that can be kept or copied and then
    /// continued. 1 if every prefix is usable, and `length` if only the whole sequence is. Layers
    /// with a sliding window give a value in between, because they drop the cells that a shorter
    /// prefix attends to. The value grows while other sequences are computed.
    fn shortest(&self, sequence: usize, length: usize) -> usize;

    /// Replaces `to` by the first `length` tokens of `from`. Afterwards they share all cells of
    /// these, unless each sequence has its own. If the backend is not divisible, `length` must be
    /// the whole of `from`. Returns false if that fails; `to` is then empty.
    fn copy(&mut self, from: usize, to: usize, length: usize) -> bool;

    /// Removes `count` tokens of a sequence after the first `kept`, and moves the later tokens down
    /// by `count` positions. No other sequence may share the cells that move. The next decode
    /// computes their keys for the new positions and cannot be aborted. Returns how many of the
    /// first tokens are the same as if nothing had been shifted, at most `kept`. `None` if the
    /// model cannot shift; nothing has changed then.
    fn shift(&mut self, sequence: usize, kept: usize, count: usize) -> Option<usize>;

    /// Saves a sequence as bytes for [`Backend::restore`]. `BUSY` after a copy or a shift, until the
    /// next decode makes it.
    fn save(&self, sequence: usize) -> Result<Vec<u8>>;

    /// Restores a sequence of `n_tokens` tokens into an empty sequence. `data` comes from
    /// [`Backend::save`] of a backend with the same model and options. After an error the sequence
    /// is empty.
    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()>;

    /// The logits of the `row`-th entry of the last batch, one per token of the vocabulary. The
    /// entry must have requested logits.
    fn logits(&self, row: usize) -> Result<&[f32]>;
}
