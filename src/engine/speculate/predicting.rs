//! Drafts with layers of the model itself that predict further tokens ("multi-token prediction").
//!
//! Such a layer computes with a token and the hidden state that the model had after the token
//! before it. It predicts the token after the next one. Its own hidden state then takes the place of
//! the model's, for one more token.
//!
//! The layer attends to earlier tokens, so it computes each token that the model computes, at once:
//! hidden states are not kept. Tokens that the model has in its cache without computing them, such
//! as a copied prefix, are missing here, which can only make a draft worse.

use super::drafter::{DecodedTokens, DraftRequest, Drafter};
use super::guesses::{Guesses, shared, to_empty};
use crate::engine::backend::{BatchEntry, Decoded, TokenId};
use crate::error::Result;

/// The hidden states that are kept of each sequence: after a draft of the maximum length, the last
/// token of the reply may be any of the last ones.
const KEPT_STATES: usize = 33;

/// The layers of a model that predict further tokens, with a cache of their own.
pub trait PredictingLayers {
    /// The number of elements of a hidden state.
    fn hidden_length(&self) -> usize;

    /// The maximum number of entries in a batch.
    fn n_batch(&self) -> usize;

    /// The number of cells in the cache, which all sequences may share.
    fn n_cells(&self) -> usize;

    /// The number of sequences. They are numbered from 0.
    fn n_sequences(&self) -> usize;

    /// Sets the number of threads for the following decodes.
    fn set_threads(&mut self, threads: usize);

    /// Computes a batch. `hidden` has, for each entry, the state after the token before it. `abort`
    /// is polled. After an abort or an error, the cache may hold a part of the batch.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        hidden: &[f32],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Result<Decoded>;

    /// Removes the positions of a sequence from `length` on. Returns false if that is impossible.
    fn truncate(&mut self, sequence: usize, length: usize) -> bool;

    /// The logits of an entry of the last batch.
    fn logits(&self, entry: usize) -> Result<&[f32]>;

    /// The hidden state of an entry of the last batch, in which all entries have logits.
    fn hidden(&self, entry: usize) -> Result<&[f32]>;
}

/// Drafts with [`PredictingLayers`].
pub struct LayerDrafter {
    layers: Box<dyn PredictingLayers>,
    sequences: Vec<HeldSequence>,
    /// Whether a decode has failed. Nothing is drafted after that, and replies do not change.
    failed: bool,
}

/// What is known of a sequence.
#[derive(Default)]
struct HeldSequence {
    /// The tokens that the model had computed.
    tokens: Vec<TokenId>,
    /// The position of the first of them that is in the cache of the layers. The later ones are too.
    start: usize,
    /// The model's hidden states after its last tokens, and the position of the first of them.
    states: Vec<f32>,
    first_state: usize,
}

impl HeldSequence {
    /// The number of tokens in the cache of the layers.
    fn cells(&self) -> usize {
        self.tokens.len().saturating_sub(self.start)
    }

    /// The model's hidden state after the token before this position.
    fn state_before(&self, position: usize, length: usize) -> Option<&[f32]> {
        let index = position.checked_sub(1)?.checked_sub(self.first_state)?;
        self.states.chunks_exact(length).nth(index)
    }

    /// Keeps the last ones of the states after the tokens up to `end`.
    fn keep(&mut self, states: &[f32], end: usize, length: usize) {
        let kept = (states.len() / length).min(KEPT_STATES);
        self.states.clear();
        self.states.extend_from_slice(&states[states.len() - kept * length..]);
        self.first_state = end - kept;
    }
}

impl LayerDrafter {
    /// `layers` have as many sequences as the model.
    pub fn new(layers: Box<dyn PredictingLayers>) -> Self {
        let sequences = (0..layers.n_sequences()).map(|_| HeldSequence::default()).collect();
        LayerDrafter { layers, sequences, failed: false }
    }

    /// Forgets the tokens of a sequence from `length` on.
    fn cut(&mut self, sequence: usize, length: usize) {
        let held = &mut self.sequences[sequence];
        if held.tokens.len() <= length {
            return;
        }
        held.tokens.truncate(length);
        if length <= held.start || !self.layers.truncate(sequence, length) {
            self.layers.truncate(sequence, 0);
            held.start = length;
        }
    }

    /// Makes room for this many tokens of some sequences by emptying others. Returns false if there
    /// is no room.
    fn make_room(&mut self, needed: usize, is_used: impl Fn(usize) -> bool) -> bool {
        let held: Vec<usize> = self.sequences.iter().map(HeldSequence::cells).collect();
        let emptied = to_empty(&held, needed, self.layers.n_cells(), is_used);
        emptied.map(|all| all.into_iter().for_each(|sequence| self.cut(sequence, 0))).is_some()
    }

    /// Decodes a batch. Returns false if it was not decoded; the sequences are then cut to what
    /// they held before.
    fn decode(
        &mut self,
        batch: &[BatchEntry],
        hidden: &[f32],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> bool {
        match self.layers.decode(batch, hidden, abort) {
            Ok(Decoded::Done) => return true,
            Ok(Decoded::Aborted) => {}
            Err(_) => self.failed = true,
        }
        for entry in batch {
            let end = self.sequences[entry.sequence].tokens.len();
            self.layers.truncate(entry.sequence, end);
        }
        false
    }
}

impl Drafter for LayerDrafter {
    fn set_threads(&mut self, threads: usize) {
        self.layers.set_threads(threads);
    }

    fn reads_hidden(&self) -> bool {
        !self.failed
    }

    fn decoded(&mut self, parts: &[DecodedTokens]) {
        let length = self.layers.hidden_length();
        let needed = parts.iter().map(|part| part.tokens.len() - part.before).sum();
        let is_used = |sequence| parts.iter().any(|part| part.sequence == sequence);
        if self.failed || !self.make_room(needed, is_used) {
            return;
        }
        let (mut batch, mut hidden) = (Vec::new(), Vec::new());
        for DecodedTokens { sequence, tokens, before, states } in parts {
            let shared = shared(&self.sequences[*sequence].tokens, *tokens).min(*before);
            self.cut(*sequence, shared);
            let held = &mut self.sequences[*sequence];
            let state = held.state_before(*before, length).filter(|_| shared == *before);
            let first = match state {
                Some(state) => {
                    hidden.extend_from_slice(state);
                    *before
                }
                // The state before the first new token is unknown, so the layers begin after it.
                None => {
                    self.layers.truncate(*sequence, 0);
                    held.start = before + 1;
                    before + 1
                }
            };
            held.tokens.extend_from_slice(&tokens[shared..*before]);
            held.keep(states, tokens.len(), length);
            hidden.extend_from_slice(&states[..states.len() - length]);
            batch.extend(tokens[first..].iter().zip(first..).map(|(token, position)| BatchEntry {
                token: *token,
                position,
                sequence: *sequence,
                logits: false,
            }));
        }
        let is_decoded = batch.is_empty() || self.decode(&batch, &hidden, &|| false);
        for DecodedTokens { sequence, tokens, before, .. } in parts {
            let held = &mut self.sequences[*sequence];
            held.tokens.extend_from_slice(&tokens[*before..]);
            if !is_decoded {
                self.layers.truncate(*sequence, 0);
                held.start = tokens.len();
            }
        }
    }

    fn draft(
        &mut self,
        wanted: &[DraftRequest],
        abort: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Vec<TokenId>> {
        let mut guesses = Guesses::new(wanted.len());
        let needed = wanted.iter().map(|wanted| wanted.most).sum();
        let is_used = |sequence| wanted.iter().any(|wanted| wanted.sequence == sequence);
        if self.failed || !self.make_room(needed, is_used) {
            return guesses.drafts;
        }
        let length = self.layers.hidden_length();
        let (mut batch, mut hidden) = (Vec::new(), Vec::new());
        for (place, wanted) in wanted.iter().enumerate() {
            let DraftRequest { sequence, tokens, next, .. } = *wanted;
            let held = &self.sequences[sequence];
            let is_held = shared(&held.tokens, tokens) == tokens.len();
            let has_room = batch.len() < self.layers.n_batch();
            let state = held.state_before(tokens.len(), length);
            let Some(state) = state.filter(|_| is_held && has_room) else { continue };
            hidden.extend_from_slice(state);
            // Rejected drafts of the last decode.
            self.cut(sequence, tokens.len());
            guesses.begin(place, wanted, batch.len());
            batch.push(BatchEntry { token: next, position: tokens.len(), sequence, logits: true });
        }
        let drafted: Vec<usize> = batch.iter().map(|entry| entry.sequence).collect();
        while !batch.is_empty() && self.decode(&batch, &hidden, abort) {
            let rows;
            (batch, rows) = guesses.grow(|row| self.layers.logits(row));
            let states: Result<Vec<&[f32]>> =
                rows.into_iter().map(|row| self.layers.hidden(row)).collect();
            let Ok(states) = states else { break };
            hidden = states.concat();
        }
        // The model computes these tokens again, and the layers then do so with its states.
        for sequence in drafted {
            let end = self.sequences[sequence].tokens.len();
            self.layers.truncate(sequence, end);
        }
        guesses.drafts
    }
}
