//! What a context remembers of each sequence: its cells, its states and the positions of its places.

use std::ptr::NonNull;

use llama_cpp_sys_2 as sys;

use super::copies::PendingCopies;
use super::model::Model;
use super::options::ContextOptions;
use super::positions::Positions;
use super::rollbacks::Rollbacks;
use super::sequence_state::{self, SequencePart};
use crate::engine::{BatchEntry, EmbeddingBatch};
use crate::error::{Code, Error, Result};
use crate::llama::raw::shim::{self, CallFailed};

/// Why a sequence cannot be saved or restored before the next decode.
const INCOMPLETE: &str =
    "a request ended before its tokens were computed; try again after another request";

/// A call failed. The context must not be used again.
pub(super) struct Unusable;

impl From<CallFailed> for Unusable {
    fn from(_: CallFailed) -> Unusable {
        Unusable
    }
}

/// What a change of sequences returns.
pub(super) type Changed<T> = std::result::Result<T, Unusable>;

/// The sequences of a context. Their methods need a context that is alive and was not abandoned.
pub(super) struct Sequences {
    context: NonNull<sys::llama_context>,
    /// NULL if the context remembers nothing, as an encoder. Only `positions` is then used.
    memory: sys::llama_memory_t,
    /// Of each sequence.
    positions: Vec<Positions>,
    /// Whether a sequence has states, which cannot be cut.
    has_state: bool,
    /// How many positions a token attends to in layers with a sliding window; 0 without such layers.
    window: sys::llama_pos,
    rollbacks: Rollbacks,
    copies: PendingCopies,
    /// Whether the next decode moves keys.
    moves_keys: bool,
}

impl Sequences {
    /// The sequences of a new context.
    pub(super) fn new(
        context: NonNull<sys::llama_context>,
        model: &Model,
        options: &ContextOptions,
    ) -> Sequences {
        let n_sequences = options.n_parallel as usize;
        let (has_state, window) = (model.has_state(), model.window().max(0));
        // SAFETY: the context is alive. The result is 0 if llama.cpp cannot take back states of this
        // architecture.
        let n_states = unsafe { sys::llama_n_rs_seq(context.as_ptr()) };
        // Windows move too. The cells that they drop are not those of the states.
        let n_rollback = if has_state && window == 0 { n_states } else { 0 };
        Sequences {
            context,
            // SAFETY: the context is alive.
            memory: unsafe { sys::llama_get_memory(context.as_ptr()) },
            positions: (0..n_sequences).map(|_| Positions::default()).collect(),
            has_state,
            window,
            rollbacks: Rollbacks::new(n_rollback as usize, n_sequences, options.kv_unified),
            copies: PendingCopies::new(!options.kv_unified),
            moves_keys: false,
        }
    }

    /// Whether the context remembers earlier tokens. Otherwise no other method may be called but
    /// those about positions and decodes.
    pub(super) fn are_remembered(&self) -> bool {
        !self.memory.is_null()
    }

    /// The positions of each sequence.
    pub(super) fn positions(&self) -> &[Positions] {
        &self.positions
    }

    /// Whether the next decode moves keys. Aborting it would not undo that.
    pub(super) fn moves_keys(&self) -> bool {
        self.moves_keys
    }

    /// Called before a decode.
    pub(super) fn decode_begins(&mut self) {
        self.rollbacks.forget();
    }

    /// Called after a decode that succeeded, was aborted, or found no room.
    pub(super) fn decode_ended(&mut self) {
        self.copies.decoded();
        self.moves_keys = false;
    }

    /// Notes tokens that were decoded.
    pub(super) fn decoded(&mut self, batch: &[BatchEntry]) {
        self.rollbacks.decoded(batch);
    }

    /// Notes embeddings that were decoded.
    pub(super) fn decoded_embeddings(&mut self, batch: &EmbeddingBatch) {
        self.positions[batch.sequence].push(batch);
        self.rollbacks.settled(batch.sequence);
    }

    /// Whether llama.cpp can move tokens to other positions.
    pub(super) fn can_shift(&self) -> bool {
        // SAFETY: the memory belongs to the context.
        shim::guard(|| unsafe { shim::calls::llama_memory_can_shift(self.memory) }).unwrap_or(false)
    }

    /// [`crate::engine::Backend::max_rollback`].
    pub(super) fn max_rollback(&self) -> usize {
        if self.has_state { self.rollbacks.most() } else { usize::MAX }
    }

    /// [`crate::engine::Backend::can_roll_back_together`].
    pub(super) fn can_roll_back_together(&self, sequences: &[usize]) -> bool {
        !self.has_state || self.rollbacks.are_computed_together(sequences)
    }

    /// [`crate::engine::Backend::truncate`].
    pub(super) fn truncate(&mut self, sequence: usize, length: usize) -> Changed<bool> {
        let Some(from) = self.positions[sequence].cut(length) else { return Ok(false) };
        if length > 0 && from < self.shortest_window(sequence) {
            return Ok(false);
        }
        if self.has_state && !self.can_remove_states(sequence, length, from) {
            return Ok(false);
        }
        let removed = self.remove(sequence, from, -1)?;
        if removed {
            self.positions[sequence].truncate(length);
        }
        Ok(removed)
    }

    /// Removes everything. Also zeroes the states. llama.cpp assigns states to sequences before it
    /// computes a batch, and does not undo that when the batch is aborted
    /// (`llama_memory_recurrent::find_slot`). Unused states then hold stale values, and a state that
    /// was to be moved is lost.
    pub(super) fn clear(&mut self) -> Changed<()> {
        self.positions.iter_mut().for_each(|positions| positions.truncate(0));
        self.rollbacks.clear();
        // SAFETY: the memory belongs to the context.
        Ok(shim::guard(|| unsafe { shim::calls::llama_memory_clear(self.memory, true) })?)
    }

    /// [`crate::engine::Backend::shortest`].
    pub(super) fn shortest(&self, sequence: usize, length: usize) -> usize {
        if self.has_state {
            return length;
        }
        self.positions[sequence].length_at(self.shortest_window(sequence) as usize)
    }

    /// [`crate::engine::Backend::copy`].
    pub(super) fn copy(&mut self, from: usize, to: usize, length: usize) -> Changed<bool> {
        // A copied token must not attend to a position that is missing. A complete sequence has
        // every position that its next token attends to.
        let is_part = !self.has_state;
        let next = self.positions[from].cut(length);
        if next.is_none_or(|next| is_part && next < self.shortest_window(from))
            || !self.settle(from)?
        {
            self.truncate(to, 0)?;
            return Ok(false);
        }
        self.rollbacks.settled(to);
        let (memory, source, target) =
            (self.memory, from as sys::llama_seq_id, to as sys::llama_seq_id);
        // Some kinds of memory copy only whole sequences: DeepSeek V4's, and one that is not
        // unified. What was too much is then removed. A unified cache assigns the cells to both
        // sequences, so the target must not have cells of its own at these positions.
        self.remove(to, -1, -1)?;
        // SAFETY: the memory belongs to the context, and the sequences are below n_seq_max.
        let copy = || unsafe { shim::calls::llama_memory_seq_cp(memory, source, target, -1, -1) };
        shim::guard(copy)?;
        self.copies.copied(from, to);
        self.positions[to] = self.positions[from].copied(length);
        let last = Some(self.positions[to].last(length));
        let cut = self.last_position(to) == last || self.truncate(to, length)?;
        let whole = cut
            && self.last_position(to) == last
            && (!is_part || next >= Some(self.shortest_window(to)));
        if !whole {
            self.truncate(to, 0)?;
        }
        Ok(whole)
    }

    /// [`crate::engine::Backend::checkpoint`].
    pub(super) fn checkpoint(&self, sequence: usize) -> Result<Vec<u8>> {
        sequence_state::read(self.context, sequence, SequencePart::State)
    }

    /// [`crate::engine::Backend::rewind`]. Layers with attention keep their cells, because the cells
    /// before `length` are unchanged.
    pub(super) fn rewind(&mut self, sequence: usize, length: usize, state: &[u8]) -> Changed<bool> {
        let Some(from) = self.positions[sequence].cut(length) else { return Ok(false) };
        let restored = sequence_state::write(self.context, sequence, SequencePart::State, state)?;
        let removed = self.remove(sequence, from, -1)?;
        self.rollbacks.settled(sequence);
        self.positions[sequence].truncate(length);
        let last = Some(self.positions[sequence].last(length));
        let rewound = restored && removed && self.last_position(sequence) == last;
        if !rewound {
            self.truncate(sequence, 0)?;
        }
        Ok(rewound)
    }

    /// [`crate::engine::Backend::shift`] of a context that can be shifted.
    pub(super) fn shift(
        &mut self,
        sequence: usize,
        kept: usize,
        count: usize,
    ) -> Changed<Option<usize>> {
        let Some(last) = self.last_position(sequence) else { return Ok(None) };
        let (from, to) = (kept as sys::llama_pos, (kept + count) as sys::llama_pos);
        let (memory, id, end) = (self.memory, sequence as sys::llama_seq_id, last + 1);
        if !self.remove(sequence, from, to)? {
            return Ok(None);
        }
        // SAFETY: the memory belongs to the context, and can be shifted.
        let add = || unsafe { shim::calls::llama_memory_seq_add(memory, id, to, end, from - to) };
        shim::guard(add)?;
        self.moves_keys = true;
        // A window may reach back beyond the kept part, where cells may be gone.
        Ok(Some(if self.window > 0 { 0 } else { kept }))
    }

    /// [`crate::engine::Backend::save`].
    pub(super) fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        if self.copies.is_target(sequence) || self.moves_keys {
            return Err(Error::new(Code::Busy, INCOMPLETE));
        }
        sequence_state::read(self.context, sequence, SequencePart::Whole)
    }

    /// Whether [`Sequences::restore`] may be called. `BUSY` if not before the next decode.
    pub(super) fn check_restore(&self, sequence: usize) -> Result<()> {
        if self.copies.concern(sequence) {
            return Err(Error::new(Code::Busy, INCOMPLETE));
        }
        Ok(())
    }

    /// [`crate::engine::Backend::restore`]. Returns false, and empties the sequence, if llama.cpp
    /// rejected the data.
    pub(super) fn restore(
        &mut self,
        sequence: usize,
        data: &[u8],
        n_tokens: usize,
    ) -> Changed<bool> {
        let read = sequence_state::write(self.context, sequence, SequencePart::Whole, data)?;
        self.rollbacks.settled(sequence);
        self.positions[sequence].truncate(0);
        let last = Some(self.positions[sequence].last(n_tokens));
        let restored = read && self.last_position(sequence) == last;
        if !restored {
            self.truncate(sequence, 0)?;
        }
        Ok(restored)
    }

    /// Removes the positions from `start` up to `end` of a sequence; -1 is no bound. Returns whether
    /// llama.cpp could do that.
    pub(super) fn remove(
        &self,
        sequence: usize,
        start: sys::llama_pos,
        end: sys::llama_pos,
    ) -> Changed<bool> {
        let (memory, id) = (self.memory, sequence as sys::llama_seq_id);
        // SAFETY: the memory belongs to the context; an absent sequence or position is reported, not
        // asserted.
        let remove = || unsafe { shim::calls::llama_memory_seq_rm(memory, id, start, end) };
        Ok(shim::guard(remove)?)
    }

    /// The last position of a sequence; `None` if it is empty.
    fn last_position(&self, sequence: usize) -> Option<sys::llama_pos> {
        // SAFETY: the memory belongs to the context; the result is -1 for an empty sequence.
        let last = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_pos_max(self.memory, sequence as i32)
        });
        last.ok().filter(|last| *last >= 0)
    }

    /// The first position at which the next token finds all cells that it attends to in layers with
    /// a sliding window. llama.cpp reuses cells outside the window for other sequences, and saves
    /// only the last window. From its first position on, a sequence has no holes.
    fn shortest_window(&self, sequence: usize) -> sys::llama_pos {
        if self.window == 0 {
            return 1;
        }
        // SAFETY: the memory belongs to the context; the result is -1 for an empty sequence.
        let first = shim::guard(|| unsafe {
            shim::calls::llama_memory_seq_pos_min(self.memory, sequence as i32)
        });
        let first = first.unwrap_or(-1).max(0);
        // The token at position p attends to positions from p - window + 1.
        if first == 0 { 1 } else { first + self.window - 1 }
    }

    /// Whether the places of a sequence from `length` on, whose positions begin with `from`, can be
    /// removed from its states. If so, the state is noted as taken back.
    fn can_remove_states(&mut self, sequence: usize, length: usize, from: sys::llama_pos) -> bool {
        if length == 0 {
            self.rollbacks.settled(sequence);
            return true;
        }
        match self.last_position(sequence) {
            Some(last) if from <= last => {
                self.rollbacks.take_back(sequence, (last - from + 1) as usize)
            }
            _ => true,
        }
    }

    /// Makes the current state of a sequence the one that llama.cpp copies. Returns false if there is
    /// no memory for that.
    fn settle(&mut self, sequence: usize) -> Changed<bool> {
        if !self.rollbacks.is_pending(sequence) {
            return Ok(true);
        }
        let state = sequence_state::read(self.context, sequence, SequencePart::State);
        let Ok(state) = state else { return Ok(false) };
        if !sequence_state::write(self.context, sequence, SequencePart::State, &state)? {
            return Err(Unusable);
        }
        self.rollbacks.settled(sequence);
        Ok(true)
    }
}
