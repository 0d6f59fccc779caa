//! Drafts with a small model that has the same vocabulary.

use super::confident::confident;
use super::drafter::{DraftRequest, Drafter};
use crate::engine::{Backend, BatchEntry, Decoded, TokenId};

/// The draft model. It has one sequence for each sequence of the main model.
pub struct ModelDrafter {
    backend: Box<dyn Backend>,
    /// The tokens in each sequence of the draft model's cache.
    held: Vec<Vec<TokenId>>,
    /// Whether a decode has failed. Nothing is drafted after that, and replies do not change.
    failed: bool,
}

/// A draft in progress.
struct Guess {
    /// The index of the job among the requests.
    place: usize,
    sequence: usize,
    most: usize,
    /// The row of the last batch that has the logits of the next token.
    row: usize,
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
            let truth = tokens.iter().chain([next]);
            let shared = self.held[*sequence]
                .iter()
                .zip(truth)
                .take_while(|(held, truth)| held == truth)
                .count();
            // The logits of the last token are needed again.
            let shared = shared.min(tokens.len());
            if shared < self.held[*sequence].len() {
                self.forget_from(*sequence, shared);
            }
        }
        let is_wanted = |sequence: usize| wanted.iter().any(|wanted| wanted.sequence == sequence);
        let needed: usize = wanted.iter().map(|wanted| wanted.tokens.len() + 1 + wanted.most).sum();
        for sequence in 0..self.held.len() {
            let others: usize = (0..self.held.len())
                .filter(|other| !is_wanted(*other))
                .map(|other| self.held[other].len())
                .sum();
            if needed + others <= self.backend.n_cells() {
                return true;
            }
            if !is_wanted(sequence) && !self.held[sequence].is_empty() {
                self.forget_from(sequence, 0);
            }
        }
        needed <= self.backend.n_cells()
    }

    /// Decodes missing tokens, at most one batch, and returns the drafts that can begin.
    fn catch_up(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Guess> {
        let mut batch = Vec::new();
        let mut guesses = Vec::new();
        for (place, DraftRequest { sequence, tokens, next, most, .. }) in wanted.iter().enumerate()
        {
            let before = self.held[*sequence].len();
            let lacking = tokens[before..].iter().chain([next]);
            let room = self.backend.n_batch() - batch.len();
            let whole = tokens.len() + 1 - before <= room;
            let entries = lacking.take(room).enumerate().map(|(offset, token)| {
                let position = before + offset;
                BatchEntry {
                    token: *token,
                    position,
                    sequence: *sequence,
                    logits: position == tokens.len(),
                }
            });
            batch.extend(entries);
            if whole {
                guesses.push(Guess {
                    place,
                    sequence: *sequence,
                    most: *most,
                    row: batch.len() - 1,
                });
            }
        }
        if self.decode(&batch, abort) { guesses } else { Vec::new() }
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
        let mut drafts = vec![Vec::new(); wanted.len()];
        if self.failed || !self.make_room(wanted) {
            return drafts;
        }
        let mut guesses = self.catch_up(wanted, abort);
        while !guesses.is_empty() {
            let mut batch = Vec::new();
            guesses.retain_mut(|guess| {
                let Some(token) = self.backend.logits(guess.row).ok().and_then(confident) else {
                    return false;
                };
                drafts[guess.place].push(token);
                if drafts[guess.place].len() == guess.most {
                    return false;
                }
                guess.row = batch.len();
                let position = self.held[guess.sequence].len();
                batch.push(BatchEntry { token, position, sequence: guess.sequence, logits: true });
                true
            });
            if batch.is_empty() || !self.decode(&batch, abort) {
                break;
            }
        }
        drafts
    }
}
