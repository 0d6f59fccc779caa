//! Drafts with a small model that has the same vocabulary.

use super::drafter::{DraftRequest, Drafter};
use super::guesses::{Guesses, shared, to_empty};
use crate::engine::{Backend, BatchEntry, Decoded, TokenId};

/// The draft model. It has one sequence for each sequence of the main model.
pub struct ModelDrafter {
    backend: Box<dyn Backend>,
    /// The tokens in each sequence of the draft model's cache.
    held: Vec<Vec<TokenId>>,
    /// Whether a decode has failed. Nothing is drafted after that, and replies do not change.
    failed: bool,
}

impl ModelDrafter {
    /// `backend` has as many sequences as the main model's.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        let held = vec![Vec::new(); backend.n_sequences()];
        ModelDrafter { backend, held, failed: false }
    }

    /// Decodes the batch and records its tokens. Returns false if it was not decoded.
    fn decode(&mut self, batch: &[BatchEntry], abort: &(dyn Fn() -> bool + Sync)) -> bool {
        match self.backend.decode(batch, abort) {
            Ok(Decoded::Done) => {
                batch.iter().for_each(|entry| self.held[entry.sequence].push(entry.token));
                return true;
            }
            // The cache may hold a part of the batch, so each sequence is cut to its previous
            // length.
            Ok(Decoded::Aborted) => batch.iter().for_each(|entry| {
                self.forget_from(entry.sequence, self.held[entry.sequence].len())
            }),
            Err(_) => self.failed = true,
        }
        false
    }

    fn forget_from(&mut self, sequence: usize, length: usize) {
        let kept = if self.backend.truncate(sequence, length) { length } else { 0 };
        if kept < length {
            self.backend.truncate(sequence, 0);
        }
        self.held[sequence].truncate(kept);
    }

    /// Cuts each sequence to a prefix of the requested one, and makes room for the rest. Sequences
    /// without a request are emptied first. Returns false if there is no room.
    fn make_room(&mut self, wanted: &[DraftRequest]) -> bool {
        for DraftRequest { sequence, tokens, next, .. } in wanted {
            // The logits of the last token are needed again.
            let shared =
                shared(&self.held[*sequence], tokens.iter().chain([next])).min(tokens.len());
            if shared < self.held[*sequence].len() {
                self.forget_from(*sequence, shared);
            }
        }
        let held: Vec<usize> = self.held.iter().map(Vec::len).collect();
        let lacking = |wanted: &DraftRequest| {
            wanted.tokens.len() + 1 + wanted.most - self.held[wanted.sequence].len()
        };
        let needed = wanted.iter().map(lacking).sum();
        let is_wanted = |sequence| wanted.iter().any(|wanted| wanted.sequence == sequence);
        let emptied = to_empty(&held, needed, self.backend.n_cells(), is_wanted);
        emptied.map(|all| all.into_iter().for_each(|it| self.forget_from(it, 0))).is_some()
    }

    /// Decodes missing tokens, at most one batch, and returns the drafts that can begin.
    fn catch_up(&mut self, wanted: &[DraftRequest], abort: &(dyn Fn() -> bool + Sync)) -> Guesses {
        let mut batch = Vec::new();
        let mut guesses = Guesses::new(wanted.len());
        for (place, wanted) in wanted.iter().enumerate() {
            let DraftRequest { sequence, tokens, next, .. } = *wanted;
            let before = self.held[sequence].len();
            let room = self.backend.n_batch() - batch.len();
            let lacking = tokens[before..].iter().chain([&next]).take(room);
            let entries = (before..).zip(lacking).map(|(position, token)| BatchEntry {
                token: *token,
                position,
                sequence,
                logits: position == tokens.len(),
            });
            batch.extend(entries);
            if tokens.len() + 1 - before <= room {
                guesses.begin(place, wanted, batch.len() - 1);
            }
        }
        if self.decode(&batch, abort) { guesses } else { Guesses::new(wanted.len()) }
    }
}

impl Drafter for ModelDrafter {
    fn set_threads(&mut self, threads: usize) {
        self.backend.set_threads(threads.min(self.backend.threads().most));
    }

    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        if self.failed || !self.make_room(wanted) {
            return vec![Vec::new(); wanted.len()];
        }
        let mut guesses = self.catch_up(wanted, abort);
        loop {
            let (batch, _) = guesses.grow(|row| self.backend.logits(row));
            if batch.is_empty() || !self.decode(&batch, abort) {
                return guesses.drafts;
            }
        }
    }
}
