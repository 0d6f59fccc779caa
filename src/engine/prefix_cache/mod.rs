//! Records the content of each sequence in the KV cache, chooses a sequence for a new prompt, and
//! counts the used cells.
//!
//! A prompt can begin with the content of any sequence, busy or idle. Copying the common prefix
//! shares its cells and computes nothing, so the choice of a sequence depends only on what
//! overwriting it would lose. Content that was computed with other adapters is never reused.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::backend::TokenId;
use super::checkpoints::{Checkpoints, MAX_BYTES};
use crate::api::AdapterScales;

/// The maximum number of tokens at the end of the last prompt in which a continued conversation may
/// differ from it. A prompt ends with the opening of a turn, which a template may render
/// differently once the turn is complete.
pub(crate) const OPENING: usize = 16;

/// One sequence of the KV cache.
#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<TokenId>,
    /// The adapters that the sequence was computed with.
    adapters: AdapterScales,
    /// The cell of each token, as a unique number. A copied token has the same number as the
    /// original.
    cells: Vec<u64>,
    /// The first token whose cell a context shift has moved. Tokens from there on are never reused.
    inexact_from: Option<usize>,
    busy: bool,
    /// The length of the shortest usable prefix ([`super::Backend::shortest`]).
    shortest: usize,
    /// Shorter lengths that are usable as well.
    checkpoints: Checkpoints,
    /// Cells reserved for the running request, including those already filled.
    reserved: usize,
    /// Whether the running request waits for its cells.
    held: bool,
    last_used: u64,
    /// The chat of the last request, and the length of its prompt in tokens.
    chat: u64,
    prompt: usize,
}

impl Sequence {
    /// Cells that its request may still fill.
    fn cells_to_fill(&self) -> usize {
        if self.held { 0 } else { self.reserved.saturating_sub(self.cells.len()) }
    }
}

/// The content of all sequences of a backend.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    sequences: Vec<Sequence>,
    n_cells: usize,
    clock: u64,
    cells: u64,
}

/// A prompt to look up. A sequence is reused up to the first token that differs, and not at all if
/// it was computed with other adapters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheKey<'a> {
    pub(crate) tokens: &'a [TokenId],
    pub(crate) adapters: &'a AdapterScales,
}

/// The needs of a request: its prompt, its cells, and what it may reuse.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheRequest<'a> {
    pub(crate) prompt: CacheKey<'a>,
    /// The maximum number of cells that the request fills, including its prompt.
    pub(crate) reserve: usize,
    pub(crate) chat: u64,
    /// Whether the request may reuse a cached prefix.
    pub(crate) reuse: bool,
    /// Whether the request may copy a prefix from another sequence. False once a copy has failed.
    pub(crate) copy: bool,
}

/// The sequence that a request has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheClaim {
    pub(crate) sequence: usize,
    /// How many tokens of the sequence to keep.
    pub(crate) kept: usize,
    /// The sequence to copy a prefix from, and the length of that prefix.
    pub(crate) copy: Option<(usize, usize)>,
}

/// The result of a cache lookup for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLookup {
    /// The number of prompt tokens that need not be computed.
    pub cached: usize,
    /// The chat's own sequence that shares the longest prefix with the prompt: its length, and the
    /// shared length. `None` if the chat has no sequence left.
    pub own: Option<(usize, usize)>,
}

/// The content of a sequence, saved for a later restore.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedSequence {
    /// The tokens of the sequence.
    pub tokens: Vec<TokenId>,
    /// The adapters that it was computed with.
    pub adapters: AdapterScales,
    /// The data of [`super::Backend::save`]. Its format belongs to the backend.
    pub data: Vec<u8>,
}

impl PrefixCache {
    pub(crate) fn new(n_sequences: usize, n_cells: usize) -> Self {
        let sequences = (0..n_sequences).map(|_| Sequence::default()).collect();
        PrefixCache { sequences, n_cells, clock: 0, cells: 0 }
    }

    /// Sets the length of the shortest usable prefix of a sequence. The backend is asked for it
    /// before every choice.
    pub(crate) fn set_shortest(&mut self, sequence: usize, shortest: usize) {
        self.sequences[sequence].shortest = shortest;
    }

    /// Claims a free sequence for a request. `None` if all are busy, or if the running requests
    /// leave too few cells.
    ///
    /// The order of preference: a sequence whose conversation continues with this prompt; an empty
    /// sequence; a sequence of the same chat that shares half of its last prompt; the least
    /// recently used sequence. Without copies, the sequence that shares the longest prefix.
    pub(crate) fn claim(&mut self, wish: CacheRequest) -> Option<CacheClaim> {
        let free = |index: &usize| !self.sequences[*index].busy;
        let sequence =
            (0..self.sequences.len()).filter(free).max_by_key(|index| self.rank(*index, wish))?;
        let kept = if wish.reuse { self.reusable(sequence, wish.prompt) } else { 0 };
        let longest =
            (0..self.sequences.len()).map(|index| (self.reusable(index, wish.prompt), index)).max();
        let copy = longest.filter(|(shared, _)| wish.copy && wish.reuse && *shared > kept);
        let copy = copy.map(|(shared, from)| (from, shared));
        // A copy replaces the whole sequence. If it kept a beginning of its own, that would take
        // cells beside those of the other one.
        let kept = if copy.is_some() { 0 } else { kept };
        let (holder, shared) = copy.unwrap_or((sequence, kept));
        let begun = &self.sequences[holder].cells[..shared];
        let running = self.sequences.iter().filter(|s| s.busy);
        let taken = distinct(running.map(|s| s.cells.as_slice()).chain([begun]).collect());
        if taken + self.cells_to_fill() + wish.reserve.saturating_sub(shared) > self.n_cells {
            return None;
        }
        self.clock += 1;
        let claimed = &mut self.sequences[sequence];
        (claimed.busy, claimed.reserved, claimed.last_used) = (true, wish.reserve, self.clock);
        (claimed.chat, claimed.prompt) = (wish.chat, wish.prompt.tokens.len());
        claimed.adapters.clone_from(wish.prompt.adapters);
        Some(CacheClaim { sequence, kept, copy })
    }

    /// How well a sequence suits a request; the greatest value wins.
    fn rank(&self, index: usize, wish: CacheRequest) -> (u8, usize, std::cmp::Reverse<u64>) {
        let sequence = &self.sequences[index];
        let shared = self.reusable(index, wish.prompt);
        let unused = std::cmp::Reverse(sequence.last_used);
        let kept_prompt = sequence.prompt.min(sequence.tokens.len());
        if !wish.copy {
            return (0, shared, unused);
        }
        let same = sequence.chat == wish.chat && shared * 2 >= kept_prompt;
        if shared > 0
            && (shared == sequence.tokens.len() || same && shared + OPENING >= sequence.prompt)
        {
            return (3, shared, unused);
        }
        if sequence.tokens.is_empty() {
            return (2, 0, unused);
        }
        if same {
            return (1, shared, unused);
        }
        (0, 0, unused)
    }

    /// The length of the common prefix of the prompt and a sequence; 0 if the adapters differ. The
    /// last token of the prompt never counts, because it must be decoded to get its logits.
    fn common(&self, index: usize, prompt: CacheKey) -> usize {
        let Sequence { tokens, adapters, inexact_from, .. } = &self.sequences[index];
        if adapters != prompt.adapters {
            return 0;
        }
        let exact = &tokens[..inexact_from.unwrap_or(tokens.len())];
        common_prefix(exact, &prompt.tokens[..prompt.tokens.len().saturating_sub(1)])
    }

    /// The length of the common prefix, limited to where the sequence can be continued.
    fn reusable(&self, index: usize, prompt: CacheKey) -> usize {
        let Sequence { tokens, shortest, checkpoints, .. } = &self.sequences[index];
        let common = self.common(index, prompt);
        if common == tokens.len() || common >= *shortest {
            common
        } else {
            checkpoints.longest_within(common)
        }
    }

    /// The longest prefix of the prompt that any sequence holds, usable or not.
    pub(crate) fn longest_common(&self, prompt: CacheKey) -> usize {
        (0..self.sequences.len()).map(|index| self.common(index, prompt)).max().unwrap_or(0)
    }

    /// Keeps the current state of a sequence as a checkpoint. If all checkpoints together are too
    /// large, those of the least recently used sequences are freed.
    pub(crate) fn keep_checkpoint(&mut self, sequence: usize, state: Vec<u8>) {
        if state.len() > MAX_BYTES {
            return;
        }
        let length = self.len(sequence);
        self.sequences[sequence].checkpoints.push(length, state);
        while self.sequences.iter().map(|s| s.checkpoints.bytes()).sum::<usize>() > MAX_BYTES {
            let kept = self.sequences.iter_mut().filter(|s| !s.checkpoints.is_empty());
            let Some(oldest) = kept.min_by_key(|s| s.last_used) else { return };
            oldest.checkpoints.remove_one();
        }
    }

    /// The length of the last checkpoint of a sequence; 0 without one.
    pub(crate) fn last_checkpoint(&self, sequence: usize) -> usize {
        self.sequences[sequence].checkpoints.longest_within(usize::MAX)
    }

    /// The state of a sequence after exactly `length` tokens, if there is a checkpoint at that
    /// length.
    pub(crate) fn checkpoint(&self, sequence: usize, length: usize) -> Option<Arc<Vec<u8>>> {
        self.sequences[sequence].checkpoints.state(length)
    }

    /// The longest prefix of the prompt that any other sequence holds.
    pub(crate) fn longest_in_others(&self, sequence: usize, prompt: CacheKey) -> usize {
        let others = (0..self.sequences.len()).filter(|index| *index != sequence);
        others.map(|index| self.reusable(index, prompt)).max().unwrap_or(0)
    }

    /// Looks up what a request of this chat would find in the cache.
    pub(crate) fn look_up(&self, chat: u64, prompt: CacheKey) -> CacheLookup {
        let of_chat = (0..self.sequences.len()).filter(|index| self.sequences[*index].chat == chat);
        let own =
            of_chat.map(|index| (self.sequences[index].tokens.len(), self.common(index, prompt)));
        let all = 0..self.sequences.len();
        let cached = all.map(|index| self.reusable(index, prompt)).max().unwrap_or(0);
        CacheLookup {
            cached,
            own: own.filter(|(tokens, _)| *tokens > 0).max_by_key(|(_, shared)| *shared),
        }
    }

    /// The last sequence of a chat, if it is idle and not empty.
    pub(crate) fn last_of(&self, chat: u64) -> Option<usize> {
        let of_chat = (0..self.sequences.len()).filter(|index| self.sequences[*index].chat == chat);
        let last = of_chat.max_by_key(|index| self.sequences[*index].last_used)?;
        let Sequence { busy, tokens, .. } = &self.sequences[last];
        (!busy && !tokens.is_empty()).then_some(last)
    }

    /// Ends the request on a sequence. Its tokens stay cached.
    pub(crate) fn release(&mut self, sequence: usize) {
        self.sequences[sequence].busy = false;
        self.sequences[sequence].reserved = 0;
        self.sequences[sequence].held = false;
    }

    /// The number of tokens of a sequence in the KV cache.
    pub(crate) fn len(&self, sequence: usize) -> usize {
        self.sequences[sequence].tokens.len()
    }

    /// The adapters that a sequence was computed with.
    pub(crate) fn adapters(&self, sequence: usize) -> &AdapterScales {
        &self.sequences[sequence].adapters
    }

    /// The tokens of a sequence in the KV cache.
    pub(crate) fn tokens(&self, sequence: usize) -> &[TokenId] {
        &self.sequences[sequence].tokens
    }

    pub(crate) fn push(&mut self, sequence: usize, tokens: &[TokenId]) {
        let first = self.cells;
        self.cells += tokens.len() as u64;
        let sequence = &mut self.sequences[sequence];
        sequence.tokens.extend_from_slice(tokens);
        sequence.cells.extend(first..self.cells);
    }

    /// Replaces a sequence by the beginning of another one, whose cells it then shares.
    pub(crate) fn copy(&mut self, from: usize, to: usize, length: usize) {
        let tokens = self.sequences[from].tokens[..length].to_vec();
        let cells = self.sequences[from].cells[..length].to_vec();
        let mut checkpoints = std::mem::take(&mut self.sequences[to].checkpoints);
        checkpoints.copy(&self.sequences[from].checkpoints, length);
        let copied = &mut self.sequences[to];
        (copied.tokens, copied.cells) = (tokens, cells);
        copied.checkpoints = checkpoints;
    }

    pub(crate) fn truncate(&mut self, sequence: usize, length: usize) {
        let sequence = &mut self.sequences[sequence];
        sequence.tokens.truncate(length);
        sequence.cells.truncate(length);
        sequence.checkpoints.truncate(length);
        sequence.inexact_from = sequence.inexact_from.filter(|from| *from < length);
    }

    /// Removes `count` tokens of a sequence after the first `kept`. The tokens after them have
    /// moved. Those before `exact` can still be reused.
    pub(crate) fn shift(&mut self, sequence: usize, kept: usize, count: usize, exact: usize) {
        let sequence = &mut self.sequences[sequence];
        sequence.tokens.drain(kept..kept + count);
        sequence.cells.drain(kept..kept + count);
        sequence.checkpoints.truncate(exact);
        sequence.inexact_from = Some(sequence.inexact_from.map_or(exact, |from| from.min(exact)));
    }

    /// The first token of a sequence that a context shift has moved; `None` without a shift.
    pub(crate) fn inexact_from(&self, sequence: usize) -> Option<usize> {
        self.sequences[sequence].inexact_from
    }

    /// Whether any sequence is not busy.
    pub(crate) fn has_idle(&self) -> bool {
        self.sequences.iter().any(|sequence| !sequence.busy)
    }

    pub(crate) fn is_busy(&self, sequence: usize) -> bool {
        self.sequences[sequence].busy
    }

    /// The other sequences that share cells with this one after its first `kept` tokens.
    pub(crate) fn sharing(&self, sequence: usize, kept: usize) -> Vec<usize> {
        let own = &self.sequences[sequence].cells;
        // Sequences share cells only from their beginning on.
        let shares =
            |other: &Vec<u64>| own.get(kept).is_some_and(|cell| other.get(kept) == Some(cell));
        let others = (0..self.sequences.len()).filter(|other| *other != sequence);
        others.filter(|other| shares(&self.sequences[*other].cells)).collect()
    }

    /// Whether the cells of the running requests, and those that they may still fill, are not more
    /// than there are. False if a request has lost cells that it shared with others.
    pub(crate) fn fits(&self) -> bool {
        self.missing(0) == 0
    }

    /// How many cells are missing for this many more.
    pub(crate) fn missing(&self, cells: usize) -> usize {
        let running = self.sequences.iter().filter(|s| s.busy);
        let taken = distinct(running.map(|s| s.cells.as_slice()).collect());
        (taken + self.cells_to_fill() + cells).saturating_sub(self.n_cells)
    }

    /// Whether there would be this many more cells if only the requests of these sequences ran.
    pub(crate) fn has_room_beside(&self, sequences: &[usize], cells: usize) -> bool {
        let running = || sequences.iter().map(|index| &self.sequences[*index]);
        let taken = distinct(running().map(|s| s.cells.as_slice()).collect());
        let to_fill: usize = running().map(Sequence::cells_to_fill).sum();
        taken + to_fill + cells <= self.n_cells
    }

    /// Cells reserved for the running request of a sequence, including those already filled.
    pub(crate) fn reserved(&self, sequence: usize) -> usize {
        self.sequences[sequence].reserved
    }

    /// Changes the number of cells that are reserved for a running request. Returns false, and
    /// changes nothing, if there are too few.
    pub(crate) fn reserve(&mut self, sequence: usize, cells: usize) -> bool {
        let before = std::mem::replace(&mut self.sequences[sequence].reserved, cells);
        let fits = self.fits();
        if !fits {
            self.sequences[sequence].reserved = before;
        }
        fits
    }

    /// Lets the running request of a sequence wait: it keeps the cells that it has filled, and no
    /// others are reserved for it.
    pub(crate) fn hold(&mut self, sequence: usize) {
        self.sequences[sequence].held = true;
    }

    /// Reserves the cells of a held request again. Returns false if there are too few.
    pub(crate) fn resume(&mut self, sequence: usize) -> bool {
        self.sequences[sequence].held = false;
        self.sequences[sequence].held = !self.fits();
        !self.sequences[sequence].held
    }

    pub(crate) fn is_held(&self, sequence: usize) -> bool {
        self.sequences[sequence].held
    }

    /// Cells that running requests may still fill.
    fn cells_to_fill(&self) -> usize {
        self.sequences.iter().filter(|s| s.busy).map(Sequence::cells_to_fill).sum()
    }

    /// The idle sequences to remove, least recently used first, until there is room for the cells
    /// that running requests may still fill. A sequence that shares all its cells comes last:
    /// removing it frees nothing until the sequences that share them are removed too.
    pub(crate) fn evictions(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.sequences.len()).collect();
        let cells = |kept: &[usize]| {
            distinct(kept.iter().map(|index| self.sequences[*index].cells.as_slice()).collect())
        };
        let mut idle: Vec<usize> =
            kept.iter().copied().filter(|index| !self.sequences[*index].busy).collect();
        idle.sort_by_key(|index| self.sequences[*index].last_used);
        let room = self.n_cells.saturating_sub(self.cells_to_fill());
        let mut taken = cells(&kept);
        let mut evicted = Vec::new();
        for only_if_it_frees_cells in [true, false] {
            for index in &idle {
                if taken <= room {
                    return evicted;
                }
                let others: Vec<usize> =
                    kept.iter().copied().filter(|other| other != index).collect();
                let without = cells(&others);
                if others.len() < kept.len() && (without < taken || !only_if_it_frees_cells) {
                    (kept, taken) = (others, without);
                    evicted.push(*index);
                }
            }
        }
        evicted
    }
}

/// The length of the common prefix of two lists.
pub(crate) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The number of distinct cells of these sequences. Sequences share cells only from their beginning
/// on, so after sorting those that share cells are adjacent.
fn distinct(mut sequences: Vec<&[u64]>) -> usize {
    sequences.sort_unstable();
    let all: usize = sequences.iter().map(|cells| cells.len()).sum();
    let twice = sequences
        .windows(2)
        .map(|pair| pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count());
    all - twice.sum::<usize>()
}
