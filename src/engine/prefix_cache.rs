//! The content of each sequence in the KV cache, the choice of a sequence for a new prompt, and the
//! count of used cells.
//!
//! A prompt can begin with the content of any sequence, busy or idle: the common prefix is copied,
//! which shares cells and computes nothing. So the choice of a sequence depends only on what is
//! lost by overwriting it.

use super::backend::TokenId;

/// A prompt of the same chat continues its last one if they differ only in this many tokens at the
/// end: a prompt ends with the opening of a turn, which may be rendered differently once the turn
/// is complete.
const OPENING: usize = 16;

/// One sequence of the KV cache.
#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<TokenId>,
    /// The cell of each token, as a unique number. Copied tokens share the number.
    cells: Vec<u64>,
    busy: bool,
    /// The fewest tokens that are usable without the rest ([`super::Backend::shortest`]).
    shortest: usize,
    /// Cells reserved for the running request, including those that are filled.
    reserved: usize,
    last_used: u64,
    /// The chat of the last request, and the number of its prompt tokens.
    chat: u64,
    prompt: usize,
}

/// All sequences.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    sequences: Vec<Sequence>,
    n_ctx: usize,
    clock: u64,
    cells: u64,
    /// Whether a part of a sequence can be copied to another.
    copies: bool,
}

/// What a request needs from the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheRequest<'a> {
    pub(crate) prompt: &'a [TokenId],
    /// Cells that the request may fill, including its prompt.
    pub(crate) reserve: usize,
    pub(crate) chat: u64,
    /// Whether it may reuse a cached prefix.
    pub(crate) reuse: bool,
    /// Whether it may copy a prefix from another sequence; false once a copy has failed.
    pub(crate) copy: bool,
}

/// A sequence for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheClaim {
    pub(crate) sequence: usize,
    /// Tokens of it to keep.
    pub(crate) kept: usize,
    /// The sequence to copy from, and the end of the copied range.
    pub(crate) copy: Option<(usize, usize)>,
}

/// What the cache has for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLookup {
    /// Tokens of the prompt that need not be computed.
    pub cached: usize,
    /// Of the chat's own sequences, the one that shares most with the prompt: its length, and the
    /// shared length. `None` if nothing is left.
    pub own: Option<(usize, usize)>,
}

/// A saved sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSequence {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// The backend's data, which only the backend understands.
    pub data: Vec<u8>,
}

impl PrefixCache {
    pub(crate) fn new(n_sequences: usize, n_ctx: usize, copies: bool) -> Self {
        let sequences = (0..n_sequences).map(|_| Sequence::default()).collect();
        PrefixCache { sequences, n_ctx, clock: 0, cells: 0, copies }
    }

    /// Sets the fewest tokens of a sequence that are usable without the rest. The backend is asked
    /// before every choice.
    pub(crate) fn set_shortest(&mut self, sequence: usize, shortest: usize) {
        self.sequences[sequence].shortest = shortest;
    }

    /// Whether a prefix can be copied from one sequence to another.
    pub(crate) fn copies(&self) -> bool {
        self.copies
    }

    /// Claims a free sequence for a request. `None` if all are busy, or the running requests leave
    /// too few cells.
    ///
    /// In this order: a sequence whose conversation continues with this prompt; an empty one; one
    /// of the same chat that shares half of its last prompt; the least recently used one. If copies
    /// are impossible, the one that shares most.
    pub(crate) fn claim(&mut self, wish: CacheRequest) -> Option<CacheClaim> {
        let free = |index: &usize| !self.sequences[*index].busy;
        let sequence =
            (0..self.sequences.len()).filter(free).max_by_key(|index| self.rank(*index, wish))?;
        let kept = if wish.reuse { self.reusable(sequence, wish.prompt) } else { 0 };
        let longest =
            (0..self.sequences.len()).map(|index| (self.reusable(index, wish.prompt), index)).max();
        let copy =
            longest.filter(|(shared, _)| self.copies && wish.copy && wish.reuse && *shared > kept);
        let copy = copy.map(|(shared, from)| (from, shared));
        // A sequence that has lost its beginning is copied as a whole. After the beginning of
        // another sequence it would leave a hole.
        let kept =
            if copy.is_some_and(|(from, _)| self.sequences[from].shortest > 1) { 0 } else { kept };
        let (holder, shared) = copy.unwrap_or((sequence, kept));
        let begun = &self.sequences[holder].cells[..shared];
        let running = self.sequences.iter().filter(|s| s.busy);
        let taken = distinct(running.map(|s| s.cells.as_slice()).chain([begun]).collect());
        if taken + self.cells_to_fill() + wish.reserve.saturating_sub(shared) > self.n_ctx {
            return None;
        }
        self.clock += 1;
        let claimed = &mut self.sequences[sequence];
        (claimed.busy, claimed.reserved, claimed.last_used) = (true, wish.reserve, self.clock);
        (claimed.chat, claimed.prompt) = (wish.chat, wish.prompt.len());
        Some(CacheClaim { sequence, kept, copy })
    }

    /// How well a sequence suits a request; greater is better.
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

    /// The length of the common prefix of the prompt and a sequence. The prompt's last token never
    /// counts, because its logits are not kept.
    fn common(&self, index: usize, prompt: &[TokenId]) -> usize {
        common_prefix(&self.sequences[index].tokens, &prompt[..prompt.len().saturating_sub(1)])
    }

    /// The part of the common prefix that the sequence can continue from.
    fn reusable(&self, index: usize, prompt: &[TokenId]) -> usize {
        let Sequence { tokens, shortest, .. } = &self.sequences[index];
        let common = self.common(index, prompt);
        if common == tokens.len() || common >= *shortest { common } else { 0 }
    }

    /// The most tokens of the prompt that another sequence shares.
    pub(crate) fn longest_in_others(&self, sequence: usize, prompt: &[TokenId]) -> usize {
        let others = (0..self.sequences.len()).filter(|index| *index != sequence);
        others.map(|index| self.reusable(index, prompt)).max().unwrap_or(0)
    }

    /// What a request of this chat would find.
    pub(crate) fn look_up(&self, chat: u64, prompt: &[TokenId]) -> CacheLookup {
        let of_chat = (0..self.sequences.len()).filter(|index| self.sequences[*index].chat == chat);
        let own =
            of_chat.map(|index| (self.sequences[index].tokens.len(), self.common(index, prompt)));
        // A busy sequence is usable only by a copy.
        let of_use =
            (0..self.sequences.len()).filter(|index| self.copies || !self.sequences[*index].busy);
        let cached = of_use.map(|index| self.reusable(index, prompt)).max().unwrap_or(0);
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
    }

    /// The number of tokens of a sequence in the KV cache.
    pub(crate) fn len(&self, sequence: usize) -> usize {
        self.sequences[sequence].tokens.len()
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

    /// Appends the tokens of another sequence up to `length`.
    pub(crate) fn copy(&mut self, from: usize, to: usize, length: usize) {
        let kept = self.len(to);
        let tokens = self.sequences[from].tokens[kept..length].to_vec();
        let cells = self.sequences[from].cells[kept..length].to_vec();
        self.sequences[to].tokens.extend(tokens);
        self.sequences[to].cells.extend(cells);
    }

    pub(crate) fn truncate(&mut self, sequence: usize, length: usize) {
        self.sequences[sequence].tokens.truncate(length);
        self.sequences[sequence].cells.truncate(length);
    }

    /// Cells that running requests may still fill.
    fn cells_to_fill(&self) -> usize {
        let running = self.sequences.iter().filter(|s| s.busy);
        running.map(|s| s.reserved.saturating_sub(s.cells.len())).sum()
    }

    /// The idle sequences to remove, least recently used first, until the rest leaves room for what
    /// running requests may still fill. A sequence that shares all its cells goes last: removing it
    /// frees nothing unless the others that share them go too.
    pub(crate) fn evictions(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.sequences.len()).collect();
        let cells = |kept: &[usize]| {
            distinct(kept.iter().map(|index| self.sequences[*index].cells.as_slice()).collect())
        };
        let mut idle: Vec<usize> =
            kept.iter().copied().filter(|index| !self.sequences[*index].busy).collect();
        idle.sort_by_key(|index| self.sequences[*index].last_used);
        let room = self.n_ctx.saturating_sub(self.cells_to_fill());
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

/// The number of distinct cells of these sequences. Cells are shared from the first one on, so
/// sequences that share cells are neighbours after sorting.
fn distinct(mut sequences: Vec<&[u64]>) -> usize {
    sequences.sort_unstable();
    let all: usize = sequences.iter().map(|cells| cells.len()).sum();
    let twice = sequences
        .windows(2)
        .map(|pair| pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count());
    all - twice.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache whose sequences hold these prompts, used in this order, by chats with the same
    /// numbers.
    fn cache(held: &[&[TokenId]], n_ctx: usize) -> PrefixCache {
        let mut cache = PrefixCache::new(held.len(), n_ctx, true);
        for (index, tokens) in held.iter().enumerate() {
            cache.push(index, tokens);
            cache.clock += 1;
            let sequence = &mut cache.sequences[index];
            (sequence.last_used, sequence.chat, sequence.prompt) =
                (cache.clock, index as u64, tokens.len());
        }
        cache
    }

    fn wish(prompt: &[TokenId], reserve: usize, chat: u64) -> CacheRequest<'_> {
        CacheRequest { prompt, reserve, chat, reuse: true, copy: true }
    }

    /// 100 consecutive numbers from `from`.
    fn part(from: TokenId) -> Vec<TokenId> {
        (from..from + 100).collect()
    }

    #[track_caller]
    fn check(
        held: &[&[TokenId]],
        prompt: &[TokenId],
        chat: u64,
        sequence: usize,
        kept: usize,
        copy: Option<(usize, usize)>,
    ) {
        let claim = cache(held, 10_000).claim(wish(prompt, 1000, chat));
        assert_eq!(claim, Some(CacheClaim { sequence, kept, copy }));
    }

    #[test]
    fn idle_sequences_that_share_all_cells_are_evicted_together() {
        let mut cache = cache(&[&part(0), &[], &[]], 250);
        cache.copy(0, 1, 100);
        let claim = cache.claim(wish(&[200; 10], 200, 7)).expect("room after evictions");
        assert_eq!(claim.sequence, 2);
        let mut evicted = cache.evictions();
        evicted.sort_unstable();
        assert_eq!(evicted, [0, 1]);
    }

    #[test]
    fn the_sequence_that_loses_least_is_claimed() {
        let system = part(0);
        let of = |parts: &[&[TokenId]]| parts.concat();
        let (first, second) = (of(&[&system, &part(1000)]), of(&[&system, &part(2000)]));
        let third = of(&[&system, &part(3000)]);
        // The conversation continues.
        check(&[&first, &second], &of(&[&second, &[1, 2]]), 9, 1, 200, None);
        // It continues, although the opening of the last turn is rendered differently.
        check(&[&first, &second], &of(&[&second[..190], &[1; 50]]), 1, 1, 190, None);
        // For another chat it is a new conversation.
        check(&[&first, &second], &of(&[&second[..190], &[1; 50]]), 9, 0, 100, Some((1, 190)));
        // A new conversation with the same system prompt takes an empty sequence.
        check(&[&first, &[], &second], &third, 9, 1, 0, Some((2, 100)));
        // Without an empty one it replaces the oldest.
        check(&[&first, &second], &third, 9, 0, 100, None);
        check(&[&part(5000), &first], &third, 9, 0, 0, Some((1, 100)));
        // An edit of an earlier message takes the chat's own sequence.
        check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 1, 1, 150, None);
        check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 9, 0, 0, Some((1, 150)));
        // The last token is always computed.
        check(&[&first, &second], &second, 1, 1, 199, None);
        // With nothing in common, the oldest is taken.
        check(&[&first, &second], &[-1, -2], 9, 0, 0, None);
    }

    #[test]
    fn a_busy_sequence_is_copied_from() {
        let mut cache = cache(&[&[1, 2], &[1, 2, 3]], 100);
        assert_eq!(
            cache.claim(wish(&[1, 2, 3, 4], 10, 7)),
            Some(CacheClaim { sequence: 1, kept: 3, copy: None })
        );
        assert_eq!(
            cache.claim(wish(&[1, 2, 3, 4], 10, 7)),
            Some(CacheClaim { sequence: 0, kept: 2, copy: Some((1, 3)) })
        );
        assert_eq!(cache.claim(wish(&[1], 10, 7)), None, "all are busy");
    }

    #[test]
    fn without_copies_only_whole_sequences_are_reused() {
        let mut cache = cache(&[&[1, 2, 3, 9], &[], &[1, 5], &[7]], 100);
        cache.copies = false;
        (0..4).for_each(|index| cache.set_shortest(index, cache.len(index)));
        assert_eq!(cache.look_up(2, &[1, 5, 6]), CacheLookup { cached: 2, own: Some((2, 2)) });
        assert_eq!(
            cache.look_up(0, &[1, 2, 3, 4, 5]),
            CacheLookup { cached: 0, own: Some((4, 3)) }
        );
        // A partial match is of no use, so that sequence is left alone.
        assert_eq!(
            cache.claim(wish(&[1, 2, 3, 4], 10, 7)),
            Some(CacheClaim { sequence: 1, kept: 0, copy: None })
        );
        assert_eq!(
            cache.claim(wish(&[1, 5, 6], 10, 7)),
            Some(CacheClaim { sequence: 2, kept: 2, copy: None })
        );
        assert_eq!(cache.look_up(2, &[1, 5, 6]), CacheLookup { cached: 0, own: None });
    }

    #[test]
    fn a_sequence_without_its_beginning_is_reused_from_a_length_on() {
        let (held, prompt) = (part(0), [&part(0)[..60], &[-1; 30]].concat());
        let check = |shortest: usize,
                     sequence: usize,
                     kept: usize,
                     copy: Option<(usize, usize)>,
                     cached: usize| {
            let mut cache = cache(&[&held, &part(0)[..20]], 1000);
            cache.sequences[0].busy = true;
            cache.set_shortest(0, shortest);
            assert_eq!(cache.look_up(0, &prompt), CacheLookup { cached, own: Some((100, 60)) });
            assert_eq!(
                cache.claim(wish(&prompt, 200, 1)),
                Some(CacheClaim { sequence, kept, copy }),
                "{shortest}"
            );
        };
        check(1, 1, 20, Some((0, 60)), 60);
        // The whole is copied, to leave no hole.
        check(60, 1, 0, Some((0, 60)), 60);
        check(61, 1, 20, None, 20);
    }

    #[test]
    fn without_reuse_a_prompt_replaces_its_own_sequence() {
        let mut cache = cache(&[&[7, 8], &[1, 2, 3]], 100);
        let wish = CacheRequest { reuse: false, ..wish(&[1, 2, 3, 4], 10, 7) };
        assert_eq!(cache.claim(wish), Some(CacheClaim { sequence: 1, kept: 0, copy: None }));
    }

    #[test]
    fn a_request_waits_until_its_cells_are_free() {
        let mut cache = cache(&[&[], &[]], 100);
        let first = cache.claim(wish(&[1], 60, 0)).expect("room");
        assert_eq!(cache.claim(wish(&[1], 50, 1)), None);
        cache.release(first.sequence);
        assert!(cache.claim(wish(&[1], 50, 1)).is_some());
    }

    #[test]
    fn shared_cells_count_once() {
        let prompt = part(0);
        let mut cache = cache(&[&[], &[], &[]], 150);
        let first = cache.claim(wish(&prompt, 110, 0)).expect("room");
        cache.push(first.sequence, &prompt);
        // 100 cells are filled and 10 reserved. The second request shares 99 and needs 16 more,
        // which leaves 24.
        let second = cache.claim(wish(&prompt, 115, 1)).expect("room");
        assert_eq!(second.copy, Some((first.sequence, 99)));
        cache.copy(first.sequence, second.sequence, 99);
        cache.push(second.sequence, &prompt[99..]);
        assert_eq!(cache.tokens(second.sequence), prompt);
        assert_eq!(distinct(cache.sequences.iter().map(|s| s.cells.as_slice()).collect()), 101);
        assert_eq!(cache.claim(wish(&prompt, 124, 2)), None);
        assert!(cache.claim(wish(&prompt, 123, 2)).is_some());
    }

    #[test]
    fn idle_sequences_make_room_oldest_first() {
        let mut cache = cache(&[&[5; 40], &[6; 40], &[]], 100);
        assert_eq!(cache.claim(wish(&[7], 50, 7)).expect("room").sequence, 2);
        assert_eq!(cache.evictions(), [0]);
    }

    #[test]
    fn sequences_that_free_no_cell_are_kept() {
        let mut cache = cache(&[&[], &[6; 40], &[], &[]], 100);
        cache.copy(1, 0, 40);
        cache.sequences[1].busy = true;
        cache.sequences[1].reserved = 70;
        cache.push(2, &[8; 40]);
        cache.sequences[2].last_used = 99;
        assert_eq!(cache.evictions(), [2]);
    }

    #[test]
    fn a_lookup_reports_the_chats_own_sequence() {
        let cache = cache(&[&[1, 2, 3, 4], &[1, 2], &[1, 2, 3, 4, 5]], 100);
        assert_eq!(cache.look_up(0, &[1, 2, 3, 9]), CacheLookup { cached: 3, own: Some((4, 3)) });
        assert_eq!(
            cache.look_up(1, &[1, 2, 3, 4, 5]),
            CacheLookup { cached: 4, own: Some((2, 2)) }
        );
        assert_eq!(cache.look_up(8, &[1, 2]), CacheLookup { cached: 1, own: None });
    }
}
