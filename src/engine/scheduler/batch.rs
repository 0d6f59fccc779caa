//! Chooses what the next decode computes: the adapters whose turn it is, then first tokens and
//! drafts of the jobs that decode, then prefill.
//!
//! Prompts that fit whole come first, the shortest one first. What is left is shared by the long
//! ones. Beside a whole prompt they get no more than its length, so that they at most double the
//! time to its first token. `prompt_room` says how many tokens prompts have.

use std::collections::VecDeque;

use super::prompt_room::{MIN_BESIDE, PromptPace, PromptRoom};
use crate::api::AdapterScales;
use crate::engine::active_job::ActiveJob;
use crate::engine::backend::{BatchEntry, TokenId};
use crate::engine::prefix_cache::PrefixCache;
use crate::engine::speculate::Draft;

/// The maximum number of decodes in a turn. After each change of adapters llama.cpp plans the
/// memory of a decode again, which takes a part of the time of a decode.
pub(super) const MAX_DECODES: usize = 4;

/// The sets of adapters of the running jobs, and whose turn it is. A decode has one set of adapters,
/// so jobs with different ones take turns.
#[derive(Default)]
pub(super) struct Turns {
    /// The sets in the order of their turns. The first one has the turn.
    sets: VecDeque<AdapterScales>,
    /// The number of decodes in the current turn.
    decodes: usize,
}

impl Turns {
    /// Chooses the adapters of the next decode; `None` without jobs. A turn that computes a prompt
    /// ends earlier, because a prompt takes longer than a token.
    pub(super) fn next(&mut self, active: &[&ActiveJob]) -> Option<AdapterScales> {
        let had_turn = self.sets.front().cloned();
        self.sets.retain(|set| active.iter().any(|active| active.job.adapters == *set));
        for active in active {
            if !self.sets.contains(&active.job.adapters) {
                self.sets.push_back(active.job.adapters.clone());
            }
        }
        if self.sets.front() != had_turn.as_ref() {
            self.decodes = 0;
        }
        let computes_prompt = |set: &AdapterScales| {
            active.iter().any(|active| active.next.is_none() && active.job.adapters == *set)
        };
        let is_over = self.decodes >= MAX_DECODES
            || self.decodes > 0 && self.sets.front().is_some_and(computes_prompt);
        if is_over && self.sets.len() > 1 {
            self.sets.rotate_left(1);
            self.decodes = 0;
        }
        self.decodes += 1;
        self.sets.front().cloned()
    }
}

/// The entries of one job in the batch.
pub(super) struct BatchShare {
    pub(super) active: usize,
    /// The length of the job's sequence before the batch.
    pub(super) before: usize,
    /// The first row whose logits are needed; `None` if none are.
    pub(super) row: Option<usize>,
    /// The drafted tokens. Their rows follow `row`.
    pub(super) draft: Draft,
}

/// The tokens of one decode.
#[derive(Default)]
pub(super) struct NextBatch {
    pub(super) entries: Vec<BatchEntry>,
    pub(super) shares: Vec<BatchShare>,
    /// How many of the entries are those of replies. They come first.
    pub(super) n_reply: usize,
}

impl NextBatch {
    /// Fills a batch of at most `n_batch` entries with the jobs that use these adapters. `drafts`
    /// has one draft for each active job, or is empty. Jobs that decode are in the order of their
    /// sequences: if each has its own cells, llama.cpp computes only consecutive sequences
    /// together.
    pub(super) fn fill(
        active: &[ActiveJob],
        cache: &PrefixCache,
        (n_batch, pace): (usize, &PromptPace),
        adapters: &AdapterScales,
        mut drafts: Vec<Draft>,
    ) -> NextBatch {
        let mut batch = NextBatch::default();
        let jobs = active.iter().enumerate().filter(|(_, active)| active.job.adapters == *adapters);
        let (mut decoding, mut prefilling): (Vec<_>, Vec<_>) =
            jobs.partition(|(_, active)| active.next.is_some());
        decoding.sort_by_key(|(_, active)| active.sequence);
        let mut draft =
            |index: usize| drafts.get_mut(index).map(std::mem::take).unwrap_or_default();
        for (index, active) in decoding {
            let draft: Draft = draft(index);
            let before = cache.len(active.sequence);
            let row = Some(batch.entries.len());
            batch.push(active.sequence, before, active.next.iter().chain(&draft.tokens), 0);
            batch.shares.push(BatchShare { active: index, before, row, draft });
        }
        // Media have batches of their own.
        let is_at_media =
            |active: &ActiveJob| active.media_at(cache.len(active.sequence)).is_some();
        prefilling.retain(|(_, active)| !cache.is_held(active.sequence) && !is_at_media(active));
        let length = |active: &ActiveJob| active.job.prompt.len() - cache.len(active.sequence);
        prefilling.sort_by_key(|(_, active)| length(active));
        let lengths: Vec<usize> = prefilling.iter().map(|(_, active)| length(active)).collect();
        batch.n_reply = batch.entries.len();
        let n_free = n_batch - batch.n_reply;
        let room = pace.room(n_free, batch.n_reply > 0);
        let chunks = prefill_chunks(&lengths, n_free, room);
        for ((index, active), most) in prefilling.into_iter().zip(chunks) {
            let before = cache.len(active.sequence);
            let rest = &active.job.prompt[before..];
            // The drafts of other jobs may have taken some of the room.
            let most = most.min(n_batch - batch.entries.len());
            let most = active.next_stop(before).map_or(most, |due| most.min(due - before));
            let chunk = &rest[..rest.len().min(most)];
            if chunk.is_empty() {
                continue;
            }
            let is_last = chunk.len() == rest.len();
            let n_without = chunk.len() - usize::from(is_last);
            let mut draft = if is_last { draft(index) } else { Draft::default() };
            draft.tokens.truncate(n_batch - batch.entries.len() - chunk.len());
            let row = is_last.then(|| batch.entries.len() + n_without);
            batch.push(active.sequence, before, chunk.iter().chain(&draft.tokens), n_without);
            batch.shares.push(BatchShare { active: index, before, row, draft });
        }
        batch
    }

    /// Appends tokens of a sequence of `before` tokens. The first `n_without` need no logits.
    fn push<'a>(
        &mut self,
        sequence: usize,
        before: usize,
        tokens: impl Iterator<Item = &'a TokenId>,
        n_without: usize,
    ) {
        self.entries.extend(tokens.enumerate().map(|(offset, token)| BatchEntry {
            token: *token,
            position: before + offset,
            sequence,
            logits: offset >= n_without,
        }));
    }
}

/// How many tokens of each prompt to compute, `n_free` at most, for the lengths that are left of
/// them, in ascending order.
fn prefill_chunks(lengths: &[usize], n_free: usize, room: PromptRoom) -> Vec<usize> {
    let mut chunks = Vec::new();
    let mut taken = 0;
    for length in lengths {
        if taken + length > room.whole {
            break;
        }
        taken += length;
        chunks.push(*length);
    }
    let mut beside = room.parts.min(n_free - taken);
    if taken > 0 {
        beside = beside.min(taken.max(MIN_BESIDE));
    }
    for others in (1..=lengths.len() - chunks.len()).rev() {
        let chunk = beside / others;
        beside -= chunk;
        chunks.push(chunk);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lengths: &[usize], n_free: usize, expected: &[usize]) {
        check_room(lengths, n_free, (n_free, n_free), expected);
    }

    #[track_caller]
    fn check_room(
        lengths: &[usize],
        n_free: usize,
        (whole, parts): (usize, usize),
        expected: &[usize],
    ) {
        let chunks = prefill_chunks(lengths, n_free, PromptRoom { whole, parts });
        assert_eq!(chunks, expected, "{lengths:?} in {whole}, {parts} of {n_free}");
    }

    #[test]
    fn long_prompts_are_bounded_beside_short_ones() {
        check(&[], 512, &[]);
        check(&[8000], 512, &[512]);
        check(&[30, 8000], 512, &[30, 32]);
        check(&[100, 8000, 9000], 512, &[100, 50, 50]);
        check(&[400, 8000], 512, &[400, 112]);
    }

    #[test]
    fn a_batch_is_filled_with_prompts_of_about_one_length() {
        check(&[50; 12], 512, &[[50; 10].as_slice(), &[6, 6]].concat());
        check(&[300, 300, 300, 300], 512, &[300, 70, 71, 71]);
        check(&[600, 5000], 512, &[256, 256]);
        // Decoding jobs may leave no room.
        check(&[1, 2], 0, &[0, 0]);
    }

    #[test]
    fn a_slow_processor_takes_less_than_a_batch() {
        check_room(&[8000], 500, (100, 32), &[32]);
        check_room(&[40, 8000, 9000], 500, (100, 32), &[40, 16, 16]);
        check_room(&[40, 50, 60, 8000], 500, (100, 32), &[40, 50, 16, 16]);
        check_room(&[4000, 4000], 512, (100, 100), &[50, 50]);
        // Long prompts have room beside short ones, as long as there is any.
        check_room(&[100, 8000], 500, (100, 32), &[100, 32]);
        check_room(&[100, 8000], 110, (100, 32), &[100, 10]);
    }
}
