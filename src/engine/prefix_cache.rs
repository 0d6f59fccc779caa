//! What each sequence of the KV cache holds, and which of them a new prompt should continue.

use super::backend::Token;

/// One sequence of the KV cache.
#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<Token>,
    busy: bool,
    /// Cells set aside while a request runs on it.
    reserved: usize,
    last_used: u64,
}

/// All sequences.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    sequences: Vec<Sequence>,
    n_ctx: usize,
    clock: u64,
}

impl PrefixCache {
    pub(crate) fn new(n_sequences: usize, n_ctx: usize) -> Self {
        let sequences = (0..n_sequences).map(|_| Sequence::default()).collect();
        PrefixCache { sequences, n_ctx, clock: 0 }
    }

    /// The free sequence that shares the longest prefix with `prompt`, and the length of that prefix; among equals the one
    /// unused for longest. None when all are busy, or the running requests leave fewer than `reserve` cells.
    pub(crate) fn claim(&mut self, prompt: &[Token], reserve: usize) -> Option<(usize, usize)> {
        let running: usize = self.sequences.iter().filter(|s| s.busy).map(|s| s.reserved).sum();
        if running + reserve > self.n_ctx {
            return None;
        }
        let free = self.sequences.iter().enumerate().filter(|(_, s)| !s.busy);
        let shared = free.map(|(index, s)| (common_prefix(&s.tokens, prompt), std::cmp::Reverse(s.last_used), index));
        let (shared, _, index) = shared.max()?;
        self.clock += 1;
        let sequence = &mut self.sequences[index];
        (sequence.busy, sequence.reserved, sequence.last_used) = (true, reserve, self.clock);
        Some((index, shared))
    }

    /// The request on a sequence has ended; its tokens stay for the next one.
    pub(crate) fn release(&mut self, sequence: usize) {
        self.sequences[sequence].busy = false;
        self.sequences[sequence].reserved = 0;
    }

    /// Tokens of a sequence that are in the KV cache.
    pub(crate) fn len(&self, sequence: usize) -> usize {
        self.sequences[sequence].tokens.len()
    }

    /// The tokens themselves.
    pub(crate) fn tokens(&self, sequence: usize) -> &[Token] {
        &self.sequences[sequence].tokens
    }

    pub(crate) fn push(&mut self, sequence: usize, tokens: &[Token]) {
        self.sequences[sequence].tokens.extend_from_slice(tokens);
    }

    pub(crate) fn truncate(&mut self, sequence: usize, length: usize) {
        self.sequences[sequence].tokens.truncate(length);
    }

    /// The idle sequences to forget, least recently used first, until all that is kept fits beside what running requests
    /// have set aside.
    pub(crate) fn evictions(&self) -> Vec<usize> {
        let running: usize = self.sequences.iter().filter(|s| s.busy).map(|s| s.reserved).sum();
        let mut idle: Vec<usize> = (0..self.sequences.len()).filter(|i| !self.sequences[*i].busy).collect();
        idle.sort_by_key(|i| self.sequences[*i].last_used);
        let mut kept: usize = idle.iter().map(|i| self.sequences[*i].tokens.len()).sum();
        let mut evicted = Vec::new();
        for index in idle {
            if running + kept <= self.n_ctx {
                break;
            }
            kept -= self.sequences[index].tokens.len();
            evicted.push(index);
        }
        evicted
    }
}

fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_shared_prefix_wins_and_a_busy_one_is_left_alone() {
        let mut cache = PrefixCache::new(3, 100);
        cache.push(0, &[1, 2]);
        cache.push(1, &[1, 2, 3]);
        assert_eq!(cache.claim(&[1, 2, 3, 4], 10), Some((1, 3)));
        assert_eq!(cache.claim(&[1, 2, 3, 4], 10), Some((0, 2)));
        assert_eq!(cache.claim(&[1, 2, 3, 4], 10), Some((2, 0)));
        assert_eq!(cache.claim(&[1], 10), None);
        cache.release(1);
        assert_eq!(cache.claim(&[9], 10), Some((1, 0)));
    }

    #[test]
    fn a_request_waits_until_its_cells_are_free() {
        let mut cache = PrefixCache::new(2, 100);
        let (first, _) = cache.claim(&[1], 60).expect("room");
        assert_eq!(cache.claim(&[1], 50), None);
        cache.release(first);
        assert!(cache.claim(&[1], 50).is_some());
    }

    #[test]
    fn idle_sequences_make_room_oldest_first() {
        let mut cache = PrefixCache::new(3, 100);
        for expected in [0, 1] {
            let (index, _) = cache.claim(&[7], 10).expect("room");
            cache.push(index, &[expected; 40]);
            assert_eq!(index, 2 - expected as usize);
        }
        cache.release(2);
        cache.release(1);
        cache.claim(&[5], 50).expect("room");
        assert_eq!(cache.evictions(), [2]);
    }
}
