//! What each sequence of the KV cache holds, which of them a new prompt goes on with, and how many
//! cells all of it takes.
//!
//! A prompt begins with what any sequence holds, busy or idle: the part that another one has is
//! copied, which shares cells and computes nothing. So the choice of a sequence is only about what
//! is lost by it.

use super::backend::TokenId;

/// A prompt of the same chat that leaves its last one so few tokens before the end goes on with it:
/// templates end a prompt with the opening of a turn, which may read otherwise once the turn is
/// complete.
const OPENING: usize = 16;

/// One sequence of the KV cache.
#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<TokenId>,
    /// The cell of each token, by a number of its own; those that were copied have the same.
    cells: Vec<u64>,
    busy: bool,
    /// The fewest tokens of it that are of use without the rest ([`super::Backend::shortest`]).
    shortest: usize,
    /// Cells set aside while a request runs on it, those that hold something already included.
    reserved: usize,
    last_used: u64,
    /// The chat whose request used it last, and the tokens of that prompt.
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

/// What a request asks of the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheRequest<'a> {
    pub(crate) prompt: &'a [TokenId],
    /// Cells that the request may fill, its prompt included.
    pub(crate) reserve: usize,
    pub(crate) chat: u64,
    /// Whether it may begin with what is there.
    pub(crate) reuse: bool,
    /// Whether it may begin with a copy of what another sequence has; false once a copy has failed.
    pub(crate) copy: bool,
}

/// A sequence for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheClaim {
    pub(crate) sequence: usize,
    /// Tokens of it to keep.
    pub(crate) kept: usize,
    /// A sequence to copy from, and up to where.
    pub(crate) copy: Option<(usize, usize)>,
}

/// What the cache has for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLookup {
    /// Tokens of the prompt that a request would not have to compute.
    pub cached: usize,
    /// What is left of the chat's own requests: the tokens of the sequence that shares most with
    /// the prompt, and how many it shares. None where nothing is left.
    pub own: Option<(usize, usize)>,
}

/// The content of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSequence {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// What the backend knows of them; a secret between it and itself.
    pub data: Vec<u8>,
}

impl PrefixCache {
    pub(crate) fn new(n_sequences: usize, n_ctx: usize, copies: bool) -> Self {
        let sequences = (0..n_sequences).map(|_| Sequence::default()).collect();
        PrefixCache { sequences, n_ctx, clock: 0, cells: 0, copies }
    }

    /// Notes how few tokens of a sequence are of use without the rest. Asked of the backend before
    /// every choice.
    pub(crate) fn set_shortest(&mut self, sequence: usize, shortest: usize) {
        self.sequences[sequence].shortest = shortest;
    }

    /// Whether a prefix can be copied from one sequence to another.
    pub(crate) fn copies(&self) -> bool {
        self.copies
    }

    /// A free sequence for a request. None when all are busy, or the running requests leave too few
    /// cells.
    ///
    /// In this order: one whose conversation goes on with this prompt; an empty one; one of the
    /// same chat that shares half of its last prompt; the one unused for longest. Where nothing may
    /// be copied, the one that shares most.
    pub(crate) fn claim(&mut self, wish: CacheRequest) -> Option<CacheClaim> {
        let free = |index: &usize| !self.sequences[*index].busy;
        let sequence =
            (0..self.sequences.len()).filter(free).max_by_key(|index| self.rank(*index, wish))?;
        let kept = if wish.reuse { self.shared(sequence, wish.prompt) } else { 0 };
        let longest =
            (0..self.sequences.len()).map(|index| (self.shared(index, wish.prompt), index)).max();
        let copy =
            longest.filter(|(shared, _)| self.copies && wish.copy && wish.reuse && *shared > kept);
        let copy = copy.map(|(shared, from)| (from, shared));
        // What has lost a part is copied as it is: behind the beginning of another one it would
        // leave a hole.
        let kept =
            if copy.is_some_and(|(from, _)| self.sequences[from].shortest > 1) { 0 } else { kept };
        let (holder, shared) = copy.unwrap_or((sequence, kept));
        let begun = &self.sequences[holder].cells[..shared];
        let running = self.sequences.iter().filter(|s| s.busy);
        let taken = distinct(running.map(|s| s.cells.as_slice()).chain([begun]).collect());
        if taken + self.to_come() + wish.reserve.saturating_sub(shared) > self.n_ctx {
            return None;
        }
        self.clock += 1;
        let claimed = &mut self.sequences[sequence];
        (claimed.busy, claimed.reserved, claimed.last_used) = (true, wish.reserve, self.clock);
        (claimed.chat, claimed.prompt) = (wish.chat, wish.prompt.len());
        Some(CacheClaim { sequence, kept, copy })
    }

    /// How well a sequence suits a request, the more the better.
    fn rank(&self, index: usize, wish: CacheRequest) -> (u8, usize, std::cmp::Reverse<u64>) {
        let sequence = &self.sequences[index];
        let shared = self.shared(index, wish.prompt);
        let unused = std::cmp::Reverse(sequence.last_used);
        let lasting = sequence.prompt.min(sequence.tokens.len());
        if !wish.copy {
            return (0, shared, unused);
        }
        let same = sequence.chat == wish.chat && shared * 2 >= lasting;
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

    /// Tokens of the prompt that a sequence begins with. The last one never counts: its logits are
    /// not kept.
    fn common(&self, index: usize, prompt: &[TokenId]) -> usize {
        common_prefix(&self.sequences[index].tokens, &prompt[..prompt.len().saturating_sub(1)])
    }

    /// Those of them that it can go on from.
    fn shared(&self, index: usize, prompt: &[TokenId]) -> usize {
        let Sequence { tokens, shortest, .. } = &self.sequences[index];
        let common = self.common(index, prompt);
        if common == tokens.len() || common >= *shortest { common } else { 0 }
    }

    /// Most tokens of the prompt that any sequence but this one holds.
    pub(crate) fn longest_beside(&self, sequence: usize, prompt: &[TokenId]) -> usize {
        let others = (0..self.sequences.len()).filter(|index| *index != sequence);
        others.map(|index| self.shared(index, prompt)).max().unwrap_or(0)
    }

    /// What a request of this chat would find.
    pub(crate) fn held(&self, chat: u64, prompt: &[TokenId]) -> CacheLookup {
        let of_chat = (0..self.sequences.len()).filter(|index| self.sequences[*index].chat == chat);
        let own =
            of_chat.map(|index| (self.sequences[index].tokens.len(), self.common(index, prompt)));
        // One that is busy is of use only by a copy.
        let of_use =
            (0..self.sequences.len()).filter(|index| self.copies || !self.sequences[*index].busy);
        let cached = of_use.map(|index| self.shared(index, prompt)).max().unwrap_or(0);
        CacheLookup {
            cached,
            own: own.filter(|(tokens, _)| *tokens > 0).max_by_key(|(_, shared)| *shared),
        }
    }

    /// The sequence that a chat used last, if it still holds something and nothing runs on it.
    pub(crate) fn last_of(&self, chat: u64) -> Option<usize> {
        let of_chat = (0..self.sequences.len()).filter(|index| self.sequences[*index].chat == chat);
        let last = of_chat.max_by_key(|index| self.sequences[*index].last_used)?;
        let Sequence { busy, tokens, .. } = &self.sequences[last];
        (!busy && !tokens.is_empty()).then_some(last)
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

    /// A sequence has got, behind what it holds, the tokens of another one up to `length`.
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
    fn to_come(&self) -> usize {
        let running = self.sequences.iter().filter(|s| s.busy);
        running.map(|s| s.reserved.saturating_sub(s.cells.len())).sum()
    }

    /// The idle sequences to forget, least recently used first, until all that is kept fits beside
    /// what running requests may still fill. One that shares all its cells goes last: nothing is
    /// gained without it, unless those it shares them with go too.
    pub(crate) fn evictions(&self) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.sequences.len()).collect();
        let cells = |kept: &[usize]| {
            distinct(kept.iter().map(|index| self.sequences[*index].cells.as_slice()).collect())
        };
        let mut idle: Vec<usize> =
            kept.iter().copied().filter(|index| !self.sequences[*index].busy).collect();
        idle.sort_by_key(|index| self.sequences[*index].last_used);
        let room = self.n_ctx.saturating_sub(self.to_come());
        let mut taken = cells(&kept);
        let mut evicted = Vec::new();
        for only_where_it_helps in [true, false] {
            for index in &idle {
                if taken <= room {
                    return evicted;
                }
                let others: Vec<usize> =
                    kept.iter().copied().filter(|other| other != index).collect();
                let without = cells(&others);
                if others.len() < kept.len() && (without < taken || !only_where_it_helps) {
                    (kept, taken) = (others, without);
                    evicted.push(*index);
                }
            }
        }
        evicted
    }
}

/// Tokens that two lists begin with in common.
pub(crate) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// How many different cells these sequences have. Cells are shared from the first one on, so
/// sequences that share some stand beside each other once they are sorted.
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

    /// A cache whose sequences hold the tokens of these prompts, used in this order, by chats of
    /// the same numbers.
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

    /// 100 numbers from `from` on.
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
    fn idle_sequences_that_share_all_they_have_make_room_together() {
        let mut cache = cache(&[&part(0), &[], &[]], 250);
        cache.copy(0, 1, 100);
        let claim = cache.claim(wish(&[200; 10], 200, 7)).expect("room, once the others are gone");
        assert_eq!(claim.sequence, 2);
        let mut evicted = cache.evictions();
        evicted.sort_unstable();
        assert_eq!(evicted, [0, 1]);
    }

    #[test]
    fn a_sequence_is_chosen_by_what_is_lost() {
        let system = part(0);
        let of = |parts: &[&[TokenId]]| parts.concat();
        let (first, second) = (of(&[&system, &part(1000)]), of(&[&system, &part(2000)]));
        let third = of(&[&system, &part(3000)]);
        // The conversation goes on.
        check(&[&first, &second], &of(&[&second, &[1, 2]]), 9, 1, 200, None);
        // It goes on, though the opening of the last turn reads otherwise now.
        check(&[&first, &second], &of(&[&second[..190], &[1; 50]]), 1, 1, 190, None);
        // Of another chat it is a conversation of its own.
        check(&[&first, &second], &of(&[&second[..190], &[1; 50]]), 9, 0, 100, Some((1, 190)));
        // A new one with the same system prompt leaves both alone where there is an empty sequence.
        check(&[&first, &[], &second], &third, 9, 1, 0, Some((2, 100)));
        // And takes the place of the oldest where there is none.
        check(&[&first, &second], &third, 9, 0, 100, None);
        check(&[&part(5000), &first], &third, 9, 0, 0, Some((1, 100)));
        // An edit of an earlier message: the chat's own sequence, not that of another chat.
        check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 1, 1, 150, None);
        check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 9, 0, 0, Some((1, 150)));
        // The last token is always computed.
        check(&[&first, &second], &second, 1, 1, 199, None);
        // Nothing in common: the oldest.
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
    fn what_can_only_be_taken_as_a_whole() {
        let mut cache = cache(&[&[1, 2, 3, 9], &[], &[1, 5], &[7]], 100);
        cache.copies = false;
        (0..4).for_each(|index| cache.set_shortest(index, cache.len(index)));
        assert_eq!(cache.held(2, &[1, 5, 6]), CacheLookup { cached: 2, own: Some((2, 2)) });
        assert_eq!(cache.held(0, &[1, 2, 3, 4, 5]), CacheLookup { cached: 0, own: Some((4, 3)) });
        // Nothing is gained where only a part is shared: that sequence is left alone.
        assert_eq!(
            cache.claim(wish(&[1, 2, 3, 4], 10, 7)),
            Some(CacheClaim { sequence: 1, kept: 0, copy: None })
        );
        assert_eq!(
            cache.claim(wish(&[1, 5, 6], 10, 7)),
            Some(CacheClaim { sequence: 2, kept: 2, copy: None })
        );
        assert_eq!(cache.held(2, &[1, 5, 6]), CacheLookup { cached: 0, own: None });
    }

    #[test]
    fn what_has_lost_its_beginning_is_used_from_a_length_on() {
        let (held, prompt) = (part(0), [&part(0)[..60], &[-1; 30]].concat());
        let check = |shortest: usize,
                     sequence: usize,
                     kept: usize,
                     copy: Option<(usize, usize)>,
                     cached: usize| {
            let mut cache = cache(&[&held, &part(0)[..20]], 1000);
            cache.sequences[0].busy = true;
            cache.set_shortest(0, shortest);
            assert_eq!(cache.held(0, &prompt), CacheLookup { cached, own: Some((100, 60)) });
            assert_eq!(
                cache.claim(wish(&prompt, 200, 1)),
                Some(CacheClaim { sequence, kept, copy }),
                "{shortest}"
            );
        };
        check(1, 1, 20, Some((0, 60)), 60);
        // The whole of it, lest there be a hole.
        check(60, 1, 0, Some((0, 60)), 60);
        check(61, 1, 20, None, 20);
    }

    #[test]
    fn a_prompt_that_is_computed_anew_takes_the_place_of_its_like() {
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
        // 100 cells are full, 10 set aside; the second one shares 99 and needs 16 more, which
        // leaves 24.
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
    fn nothing_is_forgotten_that_frees_no_cell() {
        let mut cache = cache(&[&[], &[6; 40], &[], &[]], 100);
        cache.copy(1, 0, 40);
        cache.sequences[1].busy = true;
        cache.sequences[1].reserved = 70;
        cache.push(2, &[8; 40]);
        cache.sequences[2].last_used = 99;
        assert_eq!(cache.evictions(), [2]);
    }

    #[test]
    fn what_is_held_for_a_chat() {
        let cache = cache(&[&[1, 2, 3, 4], &[1, 2], &[1, 2, 3, 4, 5]], 100);
        assert_eq!(cache.held(0, &[1, 2, 3, 9]), CacheLookup { cached: 3, own: Some((4, 3)) });
        assert_eq!(cache.held(1, &[1, 2, 3, 4, 5]), CacheLookup { cached: 4, own: Some((2, 2)) });
        assert_eq!(cache.held(8, &[1, 2]), CacheLookup { cached: 1, own: None });
    }
}
