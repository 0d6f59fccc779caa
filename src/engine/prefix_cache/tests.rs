//! Tests the choice of a sequence, and what is evicted.

use super::*;
use std::sync::LazyLock;

/// A cache whose sequences hold these prompts, in order of use. The number of each chat is the
/// index of its prompt.
fn cache(held: &[&[TokenId]], n_ctx: usize) -> PrefixCache {
    let mut cache = PrefixCache::new(held.len(), n_ctx);
    for (index, tokens) in held.iter().enumerate() {
        cache.push(index, tokens);
        cache.clock += 1;
        let sequence = &mut cache.sequences[index];
        (sequence.last_used, sequence.chat, sequence.prompt) =
            (cache.clock, index as u64, tokens.len());
    }
    cache
}

fn key(tokens: &[TokenId]) -> CacheKey<'_> {
    static NONE: LazyLock<AdapterScales> = LazyLock::new(AdapterScales::default);
    CacheKey { tokens, adapters: &NONE }
}

fn wish(prompt: &[TokenId], reserve: usize, chat: u64) -> CacheRequest<'_> {
    CacheRequest { prompt: key(prompt), reserve, chat, reuse: true, copy: true }
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
    // For another chat this is a new conversation.
    check(&[&first, &second], &of(&[&second[..190], &[1; 50]]), 9, 0, 0, Some((1, 190)));
    // A new conversation with the same system prompt takes an empty sequence.
    check(&[&first, &[], &second], &third, 9, 1, 0, Some((2, 100)));
    // Without an empty sequence it replaces the oldest.
    check(&[&first, &second], &third, 9, 0, 100, None);
    check(&[&part(5000), &first], &third, 9, 0, 0, Some((1, 100)));
    // An edit of an earlier message takes the chat's own sequence.
    check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 1, 1, 150, None);
    check(&[&part(5000), &second], &of(&[&second[..150], &[1; 90]]), 9, 0, 0, Some((1, 150)));
    // The last token is always computed.
    check(&[&first, &second], &second, 1, 1, 199, None);
    // With nothing in common, it replaces the oldest.
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
        Some(CacheClaim { sequence: 0, kept: 0, copy: Some((1, 3)) })
    );
    assert_eq!(cache.claim(wish(&[1], 10, 7)), None, "all are busy");
}

#[test]
fn a_state_is_reused_as_a_whole_or_from_a_checkpoint() {
    let mut cache = cache(&[&[1, 2, 3, 9], &[], &[1, 5], &[7]], 100);
    (0..4).for_each(|index| cache.set_shortest(index, cache.len(index)));
    assert_eq!(cache.look_up(2, key(&[1, 5, 6])), CacheLookup { cached: 2, own: Some((2, 2)) });
    assert_eq!(
        cache.look_up(0, key(&[1, 2, 3, 4, 5])),
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
    // The sequence is busy now, but can still be copied.
    assert_eq!(cache.look_up(2, key(&[1, 5, 6])), CacheLookup { cached: 2, own: None });
    cache.sequences[0].checkpoints.push(2, vec![0]);
    assert_eq!(cache.look_up(9, key(&[1, 2, 3, 4, 5])), CacheLookup { cached: 2, own: None });
    assert_eq!(
        cache.claim(wish(&[1, 2, 3, 4], 10, 7)),
        Some(CacheClaim { sequence: 0, kept: 2, copy: None })
    );
    cache.truncate(3, 0);
    cache.copy(0, 3, 4);
    assert!(cache.checkpoint(3, 2).is_some());
    cache.truncate(3, 1);
    assert!(cache.checkpoint(3, 2).is_none());
}

#[test]
fn the_least_recently_used_checkpoints_go_first() {
    let mut cache = cache(&[&part(0), &part(1)], 1000);
    for index in [0, 1] {
        cache.keep_checkpoint(index, vec![0; MAX_BYTES / 2]);
    }
    assert!(cache.checkpoint(0, 100).is_some());
    cache.push(1, &[7]);
    cache.keep_checkpoint(1, vec![0]);
    assert!(cache.checkpoint(0, 100).is_none() && cache.checkpoint(1, 101).is_some());
    cache.push(0, &[7]);
    cache.keep_checkpoint(0, vec![0; MAX_BYTES + 1]);
    assert!(cache.checkpoint(0, 101).is_none() && cache.checkpoint(1, 100).is_some());
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
        assert_eq!(cache.look_up(0, key(&prompt)), CacheLookup { cached, own: Some((100, 60)) });
        assert_eq!(
            cache.claim(wish(&prompt, 200, 1)),
            Some(CacheClaim { sequence, kept, copy }),
            "{shortest}"
        );
    };
    check(1, 1, 0, Some((0, 60)), 60);
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
    assert_eq!(cache.look_up(0, key(&[1, 2, 3, 9])), CacheLookup { cached: 3, own: Some((4, 3)) });
    assert_eq!(
        cache.look_up(1, key(&[1, 2, 3, 4, 5])),
        CacheLookup { cached: 4, own: Some((2, 2)) }
    );
    assert_eq!(cache.look_up(8, key(&[1, 2])), CacheLookup { cached: 1, own: None });
}

#[test]
fn what_was_computed_with_other_adapters_is_not_reused() {
    let scales = |scale: f32| AdapterScales([scale, 0.0].into());
    let [off, on, half] = [0.0, 1.0, 0.5].map(scales);
    let held = part(0);
    let mut cache = cache(&[&held, &held, &[]], 10_000);
    cache.sequences[0].adapters = off.clone();
    cache.sequences[1].adapters = on.clone();
    let prompt = [&held[..], &[7, 8]].concat();
    let cached = |cache: &PrefixCache, adapters: &AdapterScales| {
        cache.look_up(9, CacheKey { tokens: &prompt, adapters }).cached
    };
    assert_eq!([&off, &on, &half].map(|adapters| cached(&cache, adapters)), [100, 100, 0]);
    // Minus zero equals zero.
    assert_eq!(cached(&cache, &AdapterScales([-0.0, 0.0].into())), 100);
    let claim = |cache: &mut PrefixCache, adapters: &AdapterScales| {
        let wish = wish(&prompt, 200, 9);
        cache.claim(CacheRequest { prompt: CacheKey { adapters, ..wish.prompt }, ..wish })
    };
    let claimed = |sequence, kept| Some(CacheClaim { sequence, kept, copy: None });
    assert_eq!(claim(&mut cache, &half), claimed(2, 0));
    assert_eq!(claim(&mut cache, &on), claimed(1, 100));
    // The cached tokens have other adapters, so the sequence is claimed but nothing is kept.
    assert_eq!(claim(&mut cache, &half), claimed(0, 0));
    cache.truncate(0, 0);
    cache.push(0, &prompt);
    assert_eq!([&off, &half].map(|adapters| cached(&cache, adapters)), [0, 101]);
}
