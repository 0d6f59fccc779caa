//! The sequences of the KV cache: changes the backend's sequences and the record of their content
//! together.

use super::Scheduler;
use super::batch::BatchShare;
use crate::engine::media::is_media;
use crate::engine::prefix_cache::{CacheKey, CacheLookup, CacheRequest, SavedSequence};
use crate::error::{Code, Error, Result};

impl Scheduler {
    /// Looks up what a request of this chat would find in the KV cache.
    pub(crate) fn look_up(&mut self, chat: u64, prompt: CacheKey) -> CacheLookup {
        self.update_shortest();
        self.cache.look_up(chat, prompt)
    }

    /// Saves the last sequence of a chat. `None` if it is no longer cached, if it has media, or if a
    /// job that is not cancelled runs on it.
    pub(crate) fn save(&mut self, chat: u64) -> Result<Option<SavedSequence>> {
        self.drop_ended();
        let Some(sequence) = self.cache.last_of(chat) else { return Ok(None) };
        let tokens = self.cache.tokens(sequence).to_vec();
        if tokens.iter().any(|token| is_media(*token)) {
            // The numbers of media mean nothing in another process.
            return Ok(None);
        }
        let adapters = self.cache.adapters(sequence).clone();
        Ok(Some(SavedSequence { tokens, adapters, data: self.backend.save(sequence)? }))
    }

    /// Restores a saved sequence as the last one of this chat.
    pub(crate) fn restore(&mut self, chat: u64, kept: &SavedSequence) -> Result<()> {
        let wish = CacheRequest {
            prompt: CacheKey { tokens: &kept.tokens, adapters: &kept.adapters },
            reserve: kept.tokens.len(),
            chat,
            reuse: false,
            copy: true,
        };
        let no_room = || {
            Error::new(
                Code::Busy,
                "the KV cache has no room for it next to the running requests; try again later",
            )
        };
        let sequence = self.cache.claim(wish).ok_or_else(no_room)?.sequence;
        self.forget_from(sequence, 0);
        for idle in self.cache.evictions() {
            self.forget_from(idle, 0);
        }
        let restored = self.backend.restore(sequence, &kept.data, kept.tokens.len());
        if restored.is_ok() {
            self.cache.push(sequence, &kept.tokens);
        }
        self.cache.release(sequence);
        restored
    }

    /// Asks the backend for the shortest usable prefix of each sequence.
    pub(super) fn update_shortest(&mut self) {
        for sequence in 0..self.backend.n_sequences() {
            self.cache
                .set_shortest(sequence, self.backend.shortest(sequence, self.cache.len(sequence)));
        }
    }

    /// Replaces `to` by the tokens of `from` up to `length`.
    pub(super) fn copy(&mut self, from: usize, to: usize, length: usize) -> bool {
        let whole = self.cache.len(from);
        let end = if self.backend.is_divisible() { length } else { whole };
        if !self.backend.copy(from, to, end) {
            self.cache.truncate(to, 0);
            return false;
        }
        self.cache.copy(from, to, end);
        self.forget_from(to, length);
        self.cache.len(to) == length
    }

    /// Removes a sequence from `length` on, or all of it if the model cannot remove a part of it.
    pub(super) fn forget_from(&mut self, sequence: usize, length: usize) {
        if self.cache.len(sequence) <= length {
            return;
        }
        let kept = if self.backend.truncate(sequence, length) || self.rewind(sequence, length) {
            length
        } else {
            self.backend.truncate(sequence, 0);
            0
        };
        self.cache.truncate(sequence, kept);
    }

    /// Cuts a sequence at a checkpoint. Returns false if there is no checkpoint at `length`, or if
    /// the backend fails.
    fn rewind(&mut self, sequence: usize, length: usize) -> bool {
        let state = self.cache.checkpoint(sequence, length);
        state.is_some_and(|state| self.backend.rewind(sequence, length, &state))
    }

    /// Saves or copies the state of each sequence whose prefill has reached a length at which that
    /// is wanted.
    pub(super) fn keep_checkpoints(&mut self, shares: &[BatchShare]) {
        for share in shares.iter().filter(|share| share.row.is_none()) {
            let active = &self.active[share.active];
            let sequence = active.sequence;
            if active.checkpoints.contains(&self.cache.len(sequence)) {
                self.keep_checkpoint(sequence);
            }
            self.copy_prefix(share.active);
        }
    }

    /// Sends a copy of a sequence to its job, if the job wants one at the current length. If saving
    /// fails, no copy is sent.
    pub(super) fn copy_prefix(&mut self, index: usize) {
        let active = &mut self.active[index];
        let (sequence, length) = (active.sequence, self.cache.len(active.sequence));
        let lengths = &mut active.job.copied_lengths;
        if !lengths.contains(&length) || self.cache.inexact_from(sequence).is_some() {
            return;
        }
        // A job that restarts must not send the copy again.
        lengths.retain(|other| *other != length);
        if let Ok(data) = self.backend.save(sequence) {
            let tokens = self.cache.tokens(sequence).to_vec();
            active.send_prefix(SavedSequence {
                tokens,
                adapters: active.job.adapters.clone(),
                data,
            });
        }
    }

    pub(super) fn keep_checkpoint(&mut self, sequence: usize) {
        if let Some(state) = self.backend.checkpoint(sequence) {
            self.cache.keep_checkpoint(sequence, state);
        }
    }

    /// Ends the request on a sequence. Tokens that a shift has moved do not stay cached.
    pub(super) fn release(&mut self, sequence: usize) {
        if let Some(exact) = self.cache.inexact_from(sequence) {
            self.forget_from(sequence, exact);
        }
        self.cache.release(sequence);
    }
}
