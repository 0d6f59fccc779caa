//! A backend in memory. Its next token depends on every token before it. It asserts that the
//! scheduler leaves no gap in a sequence and uses no state that was destroyed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::super::backend::{EmbeddingBatch, ThreadLimits, ThreadPolicy, TokenId};
use super::super::*;
use crate::error::Result;

/// The backend's records, and the faults that it injects.
#[derive(Default)]
pub(super) struct BackendLog {
    /// The number of computed tokens.
    pub(super) decoded: usize,
    pub(super) decodes: usize,
    pub(super) copied: usize,
    /// The number of sequences that were cut at a checkpoint.
    pub(super) rewound: usize,
    /// Flags to set, each with the number of the decode during which it is set.
    pub(super) cancels: Vec<(usize, Arc<AtomicBool>)>,
    pub(super) refuses_copies: bool,
    /// Whether no part of a sequence can be removed, as when a sliding window has dropped the cells
    /// before it.
    pub(super) refuses_removals: bool,
    /// The number of parts whose removal was refused.
    pub(super) refused_removals: usize,
    /// The number of parts that were removed from a state.
    pub(super) taken_back: usize,
    /// Whether parts can be removed only after a decode of one sequence.
    pub(super) computes_apart: bool,
    /// The sequences of each decode, in order.
    pub(super) orders: Vec<Vec<usize>>,
    /// The adapters of each decode.
    pub(super) sets: Vec<TokenId>,
    /// The number and the threads of each decode that was not aborted.
    pub(super) threads: Vec<(usize, usize)>,
    /// The numbers of the decodes that stall if they have several threads. A stalled decode runs
    /// until it is aborted. With `whole` it ends after a time in which other decodes are given up.
    pub(super) stalls: Range<usize>,
    /// The model. `None`: only [`next_token`] is likely.
    pub(super) model: Option<RowAfter>,
}

/// Computes the logits after some tokens.
pub(super) type RowAfter = fn(&[TokenId]) -> Vec<f32>;

/// The token and the cell of each position of each sequence. A token computed with adapters has
/// another value.
pub(super) struct MemoryBackend {
    sequences: Vec<Vec<(TokenId, usize)>>,
    rows: Vec<Vec<f32>>,
    /// The hidden states of the last batch.
    hidden: Vec<f32>,
    n_ctx: usize,
    n_batch: usize,
    whole: bool,
    /// How many tokens can be removed from a state after a decode. Only with `whole`.
    rollback: usize,
    /// How many of the last tokens of each sequence can be removed from its state.
    removable: Vec<usize>,
    /// Whether an aborted batch has destroyed every state. Only with `whole`.
    destroyed: bool,
    next_cell: usize,
    policy: ThreadPolicy,
    /// The scale of the only adapter, times [`SET`].
    set: TokenId,
    /// The threads of the next decode.
    threads: usize,
    seen: Arc<Mutex<BackendLog>>,
}

pub(super) const N_BATCH: usize = 64;
/// A number greater than any token.
pub(super) const SET: TokenId = 1 << 16;
/// More threads than the engines of other tests use. They run at the same time and share the
/// processors.
pub(super) const THREADS: usize = 16;
const STALL: Duration = Duration::from_millis(100);

/// The letter that follows these tokens.
pub(super) fn next_token(tokens: impl Iterator<Item = TokenId>) -> TokenId {
    letter(tokens.fold(EMPTY, after))
}

/// The state without tokens.
const EMPTY: u64 = 7;

/// The state after another token.
pub(super) fn after(state: u64, token: TokenId) -> u64 {
    (state ^ token as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
}

/// The letter that follows in a state.
pub(super) fn letter(state: u64) -> TokenId {
    TokenId::from(b'a') + (state % 26) as TokenId
}

/// The number of elements of a hidden state.
pub(super) const HIDDEN: usize = 4;

/// A state as numbers that an `f32` represents exactly.
pub(super) fn hidden_of(state: u64) -> [f32; HIDDEN] {
    [0, 16, 32, 48].map(|shift| (state >> shift & 0xFFFF) as f32)
}

fn one_letter(tokens: &[TokenId]) -> Vec<f32> {
    let mut row = vec![0.0; 256];
    row[next_token(tokens.iter().copied()) as usize] = 1.0;
    row
}

impl MemoryBackend {
    /// `whole`: states cannot be divided, as those of a recurrent model.
    pub(super) fn new(
        n_sequences: usize,
        n_ctx: usize,
        whole: bool,
        policy: ThreadPolicy,
        seen: Arc<Mutex<BackendLog>>,
    ) -> MemoryBackend {
        MemoryBackend {
            sequences: vec![Vec::new(); n_sequences],
            rows: Vec::new(),
            hidden: Vec::new(),
            n_ctx,
            n_batch: N_BATCH,
            whole,
            rollback: 0,
            removable: vec![0; n_sequences],
            destroyed: false,
            next_cell: 0,
            policy,
            set: 0,
            threads: THREADS,
            seen,
        }
    }

    /// The same, with batches of this many tokens.
    pub(super) fn with_batch(self, n_batch: usize) -> MemoryBackend {
        MemoryBackend { n_batch, ..self }
    }

    /// The same, with states from which the last tokens of a decode can be removed.
    pub(super) fn with_rollback(self, rollback: usize) -> MemoryBackend {
        MemoryBackend { rollback, ..self }
    }

    /// Notes which tokens of a decode can be removed. A draft must be one of them.
    fn note_removable(&mut self, batch: &[BatchEntry]) {
        let count = |sequence| batch.iter().filter(|entry| entry.sequence == sequence).count();
        let counts: Vec<usize> = (0..self.sequences.len()).map(count).collect();
        let of_batch: Vec<usize> = counts.iter().copied().filter(|count| *count > 0).collect();
        let computes_apart =
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).computes_apart;
        let is_one_part = of_batch.iter().all(|count| *count == of_batch[0])
            && (of_batch.len() == 1 || !computes_apart);
        let removable = |count: usize| self.rollback.min(count.saturating_sub(1));
        self.removable = counts
            .into_iter()
            .map(|count| if is_one_part { removable(count) } else { 0 })
            .collect();
        for sequence in 0..self.sequences.len() {
            let rows = batch.iter().filter(|entry| entry.sequence == sequence && entry.logits);
            let drafted = rows.count().saturating_sub(1);
            let can_be_removed = drafted <= self.removable[sequence];
            assert!(!self.whole || can_be_removed, "{drafted} in {batch:?}");
        }
    }
}

impl Backend for MemoryBackend {
    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn n_batch(&self) -> usize {
        self.n_batch
    }

    fn n_sequences(&self) -> usize {
        self.sequences.len()
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn threads(&self) -> ThreadLimits {
        ThreadLimits { most: THREADS, processors: THREADS, policy: self.policy }
    }

    fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    fn waited(&self, _: usize) -> Option<Duration> {
        None
    }

    fn set_adapters(&mut self, scales: &AdapterScales) -> Result<()> {
        self.set = scales.0.first().map_or(0, |scale| *scale as TokenId) * SET;
        Ok(())
    }

    fn decode(
        &mut self,
        batch: &[BatchEntry],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        assert!(!batch.is_empty() && batch.len() <= self.n_batch);
        assert!(!self.destroyed, "no sequence may be used before the backend is cleared");
        self.note_removable(batch);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.decodes += 1;
        let number = seen.decodes;
        seen.sets.push(self.set);
        seen.orders.push(batch.iter().map(|entry| entry.sequence).collect());
        self.rows.clear();
        self.hidden.clear();
        let stalls = self.threads > 1 && seen.stalls.contains(&number);
        let begun = Instant::now();
        while stalls && !abort() && !(self.whole && begun.elapsed() > STALL) {
            std::hint::spin_loop();
        }
        for (place, entry) in batch.iter().enumerate() {
            if place == batch.len() / 2 {
                seen.cancels
                    .iter()
                    .filter(|(at, _)| *at == number)
                    .for_each(|(_, flag)| flag.store(true, Ordering::Relaxed));
                if abort() {
                    self.destroyed = self.whole;
                    return Ok(Decoded::Aborted);
                }
            }
            let sequence = &mut self.sequences[entry.sequence];
            assert_eq!(entry.position, sequence.len(), "positions of a sequence leave nothing out");
            sequence.push((entry.token + self.set, self.next_cell));
            self.next_cell += 1;
            let tokens: Vec<TokenId> = sequence.iter().map(|(token, _)| *token).collect();
            self.hidden.extend(hidden_of(tokens.iter().copied().fold(EMPTY, after)));
            let row = match seen.model {
                Some(model) => model(&tokens),
                None => one_letter(&tokens),
            };
            self.rows.push(if entry.logits { row } else { Vec::new() });
        }
        seen.decoded += batch.len();
        seen.threads.push((number, self.threads));
        let mut cells: Vec<usize> =
            self.sequences.iter().flatten().map(|(_, cell)| *cell).collect();
        cells.sort_unstable();
        cells.dedup();
        assert!(cells.len() <= self.n_ctx, "{} cells of {}", cells.len(), self.n_ctx);
        Ok(Decoded::Done)
    }

    /// An embedding is one number, which stands for a token.
    fn decode_embeddings(
        &mut self,
        batch: &EmbeddingBatch,
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded> {
        assert!(batch.rows.len() == batch.count && batch.count <= self.n_batch);
        if abort() {
            return Ok(Decoded::Aborted);
        }
        self.removable.fill(0);
        let sequence = &mut self.sequences[batch.sequence];
        assert_eq!(batch.position, sequence.len(), "positions of a sequence leave nothing out");
        for number in batch.rows {
            sequence.push((*number as TokenId, self.next_cell));
            self.next_cell += 1;
        }
        Ok(Decoded::Done)
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> bool {
        let held = self.sequences[sequence].len();
        let is_part = length > 0 && length < held;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if length == 0 {
            self.removable.fill(0);
        }
        if is_part && self.whole && held - length <= self.removable[sequence] {
            self.removable[sequence] = 0;
            seen.taken_back += 1;
        } else if is_part && (self.whole || seen.refuses_removals) {
            seen.refused_removals += 1;
            return false;
        }
        self.sequences[sequence].truncate(length);
        true
    }

    fn clear(&mut self) {
        self.sequences.iter_mut().for_each(Vec::clear);
        self.removable.fill(0);
        self.destroyed = false;
    }

    fn is_divisible(&self) -> bool {
        !self.whole
    }

    fn max_rollback(&self) -> usize {
        if self.whole { self.rollback } else { usize::MAX }
    }

    fn can_roll_back_together(&self, sequences: &[usize]) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(sequences.is_sorted(), "{sequences:?}");
        !seen.computes_apart
    }

    fn checkpoint(&self, sequence: usize) -> Option<Vec<u8>> {
        assert!(self.whole && !self.destroyed, "only a state that is whole is saved");
        self.save(sequence).ok()
    }

    fn rewind(&mut self, sequence: usize, length: usize, state: &[u8]) -> bool {
        self.removable.fill(0);
        let kept = &mut self.sequences[sequence];
        assert!(self.whole && length == state.len() && length < kept.len());
        let same = kept.iter().zip(state).all(|((token, _), byte)| *token as u8 == *byte);
        assert!(same, "the state is of the same tokens");
        kept.truncate(length);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).rewound += 1;
        true
    }

    fn shortest(&self, _: usize, length: usize) -> usize {
        if self.whole { length } else { 1 }
    }

    fn shift(&mut self, sequence: usize, kept: usize, count: usize) -> Option<usize> {
        assert!(!self.whole && count > 0 && kept + count < self.sequences[sequence].len());
        let moved: Vec<usize> =
            self.sequences[sequence][kept..].iter().map(|(_, cell)| *cell).collect();
        let others = self.sequences.iter().enumerate().filter(|(other, _)| *other != sequence);
        let shared = others.flat_map(|(_, cells)| cells).any(|(_, cell)| moved.contains(cell));
        assert!(!shared, "a cell that moves, moves for all");
        self.sequences[sequence].drain(kept..kept + count);
        Some(kept)
    }

    fn save(&self, sequence: usize) -> Result<Vec<u8>> {
        Ok(self.sequences[sequence].iter().map(|(token, _)| *token as u8).collect())
    }

    fn restore(&mut self, sequence: usize, data: &[u8], n_tokens: usize) -> Result<()> {
        assert!(self.sequences[sequence].is_empty() && data.len() == n_tokens);
        self.removable.fill(0);
        let cells = self.next_cell..self.next_cell + n_tokens;
        self.next_cell = cells.end;
        self.sequences[sequence] =
            data.iter().map(|byte| TokenId::from(*byte)).zip(cells).collect();
        Ok(())
    }

    fn copy(&mut self, from: usize, to: usize, length: usize) -> bool {
        assert!(from != to && length > 0);
        assert!(!self.whole || length == self.sequences[from].len(), "a state is not divided");
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.refuses_copies {
            self.sequences[to].clear();
            return false;
        }
        self.removable.fill(0);
        seen.copied += length;
        self.sequences[to] = self.sequences[from][..length].to_vec();
        true
    }

    fn hidden(&self) -> Option<&[f32]> {
        Some(&self.hidden)
    }

    fn logits(&self, row: usize) -> Result<&[f32]> {
        Ok(&self.rows[row])
    }
}
