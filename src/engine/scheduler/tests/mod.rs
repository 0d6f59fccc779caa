//! Tests the scheduler with a backend in memory. Its next token depends on every token before it,
//! so a reply is right only if its sequence held exactly the prompt at the right positions. This is
//! one file because all tests check replies in the same world.

mod call_drafts;
mod media;
mod memory_backend;
mod predicting;
mod rollback;
mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::backend::{ThreadPolicy, TokenId};
use super::super::job::ShiftCounts;
use super::super::prefix_cache::CacheLookup;
use super::batch::MAX_DECODES;
use super::*;
use crate::error::Code;
use memory_backend::{N_BATCH, SET, THREADS};
use world::{FinishedJob, OracleDrafter, SubmittedJob, World, random};

/// `length` tokens that depend on the seed.
fn part(seed: TokenId, length: usize) -> Vec<TokenId> {
    (0..length as TokenId)
        .map(|index| (seed * 31 + index * 7) % 251)
        .chain([seed])
        .take(length)
        .collect()
}

fn prompt(system: &[TokenId], seed: TokenId) -> Vec<TokenId> {
    [system, &part(seed, 20)].concat()
}

#[test]
fn a_common_prefix_is_computed_once() {
    let system = part(1, 500);
    for (whole, decoded, copied, cached) in
        [(false, 500 + 4 * 20, 3 * 500, 3 * 500), (true, 4 * 520, 0, 0)]
    {
        let mut world = World::new(4, 4096, whole);
        let asked: Vec<SubmittedJob> =
            (0..4).map(|chat| world.ask(chat, &prompt(&system, chat as TokenId + 2), 8)).collect();
        world.run();
        let sum: usize = asked.iter().map(|asked| asked.ended().outcome.cached_tokens).sum();
        // The last token of a reply is never decoded.
        let seen = world.seen(|seen| (seen.decoded, seen.copied));
        assert_eq!((sum, seen), (cached, (decoded + 4 * 7, copied)), "whole: {whole}");
    }
}

#[test]
fn a_new_chat_does_not_overwrite_a_cached_conversation() {
    let system = part(1, 100);
    let mut world = World::new(2, 4096, false);
    let first = prompt(&system, 2);
    let asked = world.ask(1, &first, 8);
    world.run();
    let reply: Vec<TokenId> = asked.ended().text.bytes().map(TokenId::from).collect();
    let other = world.ask(2, &prompt(&system, 3), 8);
    world.run();
    assert_eq!(other.ended().outcome.cached_tokens, 100);
    let again = world.ask(1, &[&first[..], &reply, &part(4, 10)].concat(), 8);
    world.run();
    // The whole prompt, and the reply except its last token, which was never decoded.
    assert_eq!(again.ended().outcome.cached_tokens, 120 + 7);
    let held = world.look_up(2, &prompt(&system, 5));
    assert_eq!(held, CacheLookup { cached: 100, own: Some((120 + 7, 100)) });
}

#[test]
fn a_job_does_not_wait_for_a_cancelled_one() {
    let system = part(1, 500);
    let mut world = World::new(3, 4096, false);
    let first = world.ask(1, &prompt(&system, 2), 8);
    let second = world.ask(2, &prompt(&system, 3), 8);
    world.scheduler.step();
    world.scheduler.step();
    assert_eq!(world.scheduler.waiting.len(), 1, "the second one waits");
    first.cancel.store(true, Ordering::Relaxed);
    world.run();
    assert_eq!(first.ended().outcome.finish, Finish::Cancelled);
    // The part that the first job computed is reused.
    assert_eq!(second.ended().outcome.cached_tokens, 2 * N_BATCH);
}

#[test]
fn jobs_that_decode_are_in_the_order_of_their_sequences() {
    let mut world = World::new(3, 4096, false);
    let _asked: Vec<SubmittedJob> =
        (1..=3).map(|chat| world.ask(chat, &part(chat as TokenId, 10), 8)).collect();
    world.run();
    let orders = world.seen(|seen| seen.orders.clone());
    // The first job takes the last sequence. Prefill of equal prompts is in the order of admission.
    assert!(!orders[0].is_sorted(), "{orders:?}");
    assert_eq!(orders[1..], vec![[0, 1, 2]; 7]);
}

#[test]
fn a_cancel_takes_one_step() {
    let mut world = World::new(2, 4096, false);
    let (long, short) = (world.ask(1, &part(1, 2000), 8), world.ask(2, &part(2, 10), 100));
    world.scheduler.step();
    long.cancel.store(true, Ordering::Relaxed);
    let before = world.seen(|seen| seen.decodes);
    world.scheduler.step();
    assert_eq!(long.ended().outcome.finish, Finish::Cancelled);
    assert_eq!(world.seen(|seen| seen.decodes), before + 1, "of the other job");
    // Cancelled during a decode: the batch is undone, and the reply of the other job does not
    // change.
    let third = world.ask(3, &part(3, 500), 8);
    let number = world.seen(|seen| {
        seen.cancels.push((seen.decodes + 3, Arc::clone(&third.cancel)));
        seen.decodes
    });
    world.run();
    assert_eq!(third.ended().outcome.finish, Finish::Cancelled);
    assert_eq!(short.ended().outcome.finish, Finish::Length);
    assert!(world.seen(|seen| seen.decodes) > number + 3);
    // A deadline that has passed cancels.
    let late = world.ask(4, &part(4, 500), 8);
    world
        .scheduler
        .waiting
        .iter_mut()
        .for_each(|job| job.interrupt.deadline = Some(Instant::now()));
    let before = world.seen(|seen| seen.decodes);
    world.scheduler.step();
    assert_eq!(
        (late.ended().outcome.finish, world.seen(|seen| seen.decodes)),
        (Finish::Cancelled, before)
    );
}

#[test]
fn a_copy_that_fails_is_computed() {
    let system = part(1, 200);
    let mut world = World::new(2, 480, false);
    world.seen(|seen| seen.refuses_copies = true);
    // With a shared prefix both would fit at once. Without it, the second waits for the first and
    // takes its sequence.
    let asked: Vec<SubmittedJob> =
        (0..2).map(|chat| world.ask(chat, &prompt(&system, chat as TokenId + 2), 40)).collect();
    world.run();
    assert_eq!(
        asked.iter().map(|asked| asked.ended().outcome.cached_tokens).collect::<Vec<_>>(),
        [0, 200]
    );
    assert_eq!(world.seen(|seen| seen.copied), 0);
}

/// Two jobs continue one conversation and share its cells. A cancel during a decode empties all
/// sequences of a model with a state: both compute their prompts again, and no longer share anything.
#[test]
fn jobs_that_restart_share_too_few_cells() {
    let begun = part(1, 250);
    let mut world = World::new(4, 480, true);
    let first = world.ask(1, &begun, 8);
    world.run();
    let reply: Vec<TokenId> = first.ended().text.bytes().map(TokenId::from).collect();
    let history = [&begun[..], &reply].concat();
    let asked: Vec<SubmittedJob> =
        (2..4).map(|chat| world.ask(chat, &prompt(&history, chat as TokenId), 40)).collect();
    let cancelled = world.ask(4, &part(9, 20), 10);
    world.scheduler.step();
    assert_eq!(world.scheduler.active.len(), 3, "they fit next to each other");
    let now = world.seen(|seen| seen.decodes);
    world.seen(|seen| seen.cancels.push((now + 3, Arc::clone(&cancelled.cancel))));
    while !world.scheduler.has_restarted {
        world.scheduler.step();
    }
    // Short ones that come later overtake the one that waits, but not always.
    let late: Vec<SubmittedJob> = (5..45).map(|chat| world.ask(chat, &part(10, 20), 10)).collect();
    world.scheduler.step();
    assert_eq!(world.scheduler.active.len(), 4);
    (0..1_000).find(|_| {
        world.scheduler.step();
        !world.scheduler.has_restarted
    });
    assert!(world.scheduler.waiting.len() >= 24, "{}", world.scheduler.waiting.len());
    world.run();
    assert_eq!(cancelled.ended().outcome.finish, Finish::Cancelled);
    for job in asked.iter().chain(&late) {
        assert_eq!(job.ended().outcome.finish, Finish::Length);
    }
}

#[test]
fn replies_do_not_depend_on_other_jobs() {
    let (mut rewound, mut shifted) = (0, 0);
    for seed in 0..60 {
        let mut state = seed;
        let whole = seed % 5 == 4;
        let guesses =
            (seed % 2 == 1).then(|| Speculation::new(Box::new(OracleDrafter { state: seed }), 8));
        // Six jobs are enough for text to be sent during a decode.
        let (policy, sequences, cells) = match seed % 3 {
            0 => (ThreadPolicy::Device, 8, 900),
            _ => (ThreadPolicy::Pinned, 1 + random(&mut state) % 4, 300),
        };
        let n_ctx = cells + random(&mut state) % 300;
        let mut world = World::with_threads(sequences, n_ctx, whole, guesses, policy);
        let mut asked: Vec<SubmittedJob> = Vec::new();
        for _ in 0..30 {
            // One of a few beginnings, or sometimes a continued conversation.
            let mut tokens = part(random(&mut state) as TokenId % 3, 10 + random(&mut state) % 150);
            if let Some(before) = asked.last().filter(|_| random(&mut state).is_multiple_of(3)) {
                tokens = before.prompt[..before.prompt.len().min(180)].to_vec();
            }
            tokens.extend(part(random(&mut state) as TokenId % 200, 1 + random(&mut state) % 20));
            let chat = random(&mut state) as u64 % 9;
            let stop = (random(&mut state) as u8).checked_sub(128).map(|one| b'a' + one % 26);
            world.stop = stop.map(|letter| char::from(letter).to_string());
            let job = if !whole && random(&mut state).is_multiple_of(8) {
                let (keeps, most) = (random(&mut state) % 400, random(&mut state) % 900);
                world.ask_shifting(chat, &tokens, 1 + most, Some(keeps))
            } else {
                world.ask(chat, &tokens, 1 + random(&mut state) % 40)
            };
            if random(&mut state).is_multiple_of(4) {
                let at = world.seen(|seen| seen.decodes) + random(&mut state) % 12;
                world.seen(|seen| seen.cancels.push((at, Arc::clone(&job.cancel))));
            }
            asked.push(job);
            for _ in 0..random(&mut state) % 8 {
                world.scheduler.step();
            }
        }
        world.run();
        let outcomes: Vec<JobOutcome> = asked.iter().map(|asked| asked.ended().outcome).collect();
        let drafted = outcomes.iter().filter_map(|outcome| outcome.drafted);
        let accepted: usize = drafted.map(|drafted| drafted.accepted).sum();
        shifted += outcomes.iter().map(|outcome| outcome.shifts.times).sum::<usize>();
        assert_eq!(accepted > 0, seed % 2 == 1 && !whole);
        rewound += world.seen(|seen| seen.rewound);
    }
    assert!(rewound > 50, "{rewound} sequences were cut by a checkpoint");
    assert!(shifted > 50, "{shifted} full contexts were shifted");
}

/// A grammar with text that is certain, text that the model chooses, and a choice.
const CALL: &str = r#"start: "<call>" /[a-z]{3}/ "</call><city>" /[a-z]{2,5}/ "</city>" ("<unit>" /[fc]/ "</unit>")? "end""#;

#[test]
fn text_that_a_grammar_forces_is_drafted_and_no_reply_changes() {
    let run = |temperature: f32, speculation: Option<Speculation>, policy: ThreadPolicy| {
        let mut world = World::with_threads(8, 4096, false, speculation, policy);
        let free = world.ask(0, &part(9, 30), 10);
        world.grammar = Some(CALL.to_owned());
        world.sampling = json!({ "temperature": temperature });
        let mut asked: Vec<SubmittedJob> = (1..6)
            .map(|chat| world.ask(chat, &part(chat as TokenId, 10 + 30 * chat as usize), 100))
            .collect();
        // One ends inside text that is forced, at its limit or at a stop string.
        asked.push(world.ask(6, &part(6, 200), 12));
        world.stop = Some("ty>".to_owned());
        asked.push(world.ask(7, &part(7, 20), 100));
        world.run();
        free.ended();
        let ended: Vec<(String, JobOutcome)> =
            asked.iter().map(SubmittedJob::constrained).collect();
        (ended, world.seen(|seen| seen.decodes))
    };
    for temperature in [0.0, 1.0, 2.0] {
        for policy in [ThreadPolicy::Pinned, ThreadPolicy::Device] {
            let (plain, decodes) = run(temperature, None, policy);
            assert!(plain[0].0.starts_with("<call>") && plain[0].0.ends_with("end"), "{plain:?}");
            let oracle = || Speculation::new(Box::new(OracleDrafter { state: 4 }), 4);
            for (speculation, has_drafter) in [(Speculation::default(), false), (oracle(), true)] {
                let (drafted, fewer) = run(temperature, Some(speculation), policy);
                for ((text, plain), (same, outcome)) in plain.iter().zip(&drafted) {
                    assert_eq!(text, same);
                    assert_eq!((plain.finish, plain.stop), (outcome.finish, outcome.stop));
                    assert_eq!(plain.completion_tokens, outcome.completion_tokens);
                    assert_eq!(plain.drafted, None);
                    let counts = outcome.drafted.expect("text is forced");
                    assert!(counts.accepted > 6, "{counts:?} of {same}");
                    // After a stop string, the rest of a draft is in vain. The last token of a reply
                    // needs no logits.
                    let is_certain = !has_drafter && outcome.stop.is_none();
                    assert!(!is_certain || counts.accepted + 1 >= counts.tokens, "{counts:?}");
                }
                assert!(fewer < decodes, "{fewer} decodes instead of {decodes}");
            }
        }
    }
}

#[test]
fn forced_text_takes_few_decodes() {
    let run = |speculation: Option<Speculation>, drafts: bool| {
        let mut world = World::with(1, 4096, false, speculation);
        (world.grammar, world.drafts) = (Some(CALL.to_owned()), drafts);
        let asked = world.ask(1, &part(1, 20), 100);
        world.run();
        (asked.constrained().0, world.seen(|seen| seen.decodes))
    };
    let (text, plain) = run(None, true);
    let (same, drafted) = run(Some(Speculation::default()), true);
    assert_eq!(text, same);
    assert_eq!(
        run(Some(Speculation::auto()), false),
        (text.clone(), plain),
        "a request may say no"
    );
    // The prompt is the first decode, and the last token needs none.
    assert_eq!(plain, text.len());
    assert!(drafted * 3 < plain, "{drafted} decodes instead of {plain}");
}

#[test]
fn a_job_whose_rejected_draft_cannot_be_removed_computes_its_tokens_again() {
    let drafts = Speculation::new(Box::new(OracleDrafter { state: 2 }), 8);
    let mut world = World::with(1, 1024, false, Some(drafts));
    world.seen(|seen| seen.refuses_removals = true);
    let asked = world.ask(1, &part(1, 50), 100);
    world.run();
    assert_eq!(asked.ended().outcome.completion_tokens, 100);
    let (refused, decoded) = world.seen(|seen| (seen.refused_removals, seen.decoded));
    assert!(refused > 0 && decoded > refused * 50, "{refused} refused, {decoded} decoded");
}

/// A device computes the next token of each job before the text of the last one is examined.
#[test]
fn a_stop_string_ends_a_job_as_if_its_text_were_sent_before_the_decode() {
    let run = |policy: ThreadPolicy, drafts: bool| {
        let oracle = || Speculation::new(Box::new(OracleDrafter { state: 3 }), 4);
        let mut world = World::with_threads(8, 2048, false, drafts.then(oracle), policy);
        let asked: Vec<SubmittedJob> = (0..8)
            .map(|chat| {
                // Most jobs end at the same step, a few later.
                let lone = world.ask(chat, &part(chat as TokenId, 30), 20);
                let reply = lone.lone(20);
                let at = if chat < 5 { 7 } else { 3 + 2 * chat as usize };
                lone.cancel.store(true, Ordering::Relaxed);
                world.stop = Some(reply[at..at + 2].to_owned());
                let job = world.ask(chat, &part(chat as TokenId, 30), 20);
                world.stop = None;
                job
            })
            .collect();
        world.run();
        let found = asked.iter().map(|asked| {
            let FinishedJob { text, outcome, .. } = asked.ended();
            assert_eq!(outcome.finish, Finish::Stop);
            let reply = asked.lone(20).bytes().map(TokenId::from).collect::<Vec<_>>();
            let next = [&asked.prompt[..], &reply].concat();
            (text, outcome.completion_tokens, next)
        });
        let found: Vec<_> = found.collect();
        let look_up = |(chat, (text, tokens, next)): (usize, (String, usize, Vec<TokenId>))| {
            (text, tokens, world.look_up(chat as u64, &next))
        };
        let ended: Vec<_> = found.into_iter().enumerate().map(look_up).collect();
        (ended, world.seen(|seen| seen.decodes))
    };
    for drafts in [false, true] {
        let (before, decodes) = run(ThreadPolicy::Pinned, drafts);
        let (during, more) = run(ThreadPolicy::Device, drafts);
        assert_eq!(before, during, "drafts: {drafts}");
        // The decode after the last token of the first jobs was submitted before that was known.
        assert!(more >= decodes, "{more} {decodes}");
    }
}

#[test]
fn text_is_received_while_the_device_computes() {
    let mut world = World::with_threads(6, 2048, false, None, ThreadPolicy::Device);
    let asked: Vec<SubmittedJob> =
        (0..6).map(|chat| world.ask(chat, &part(chat as TokenId, 9), 12)).collect();
    world.scheduler.step();
    assert!(asked.iter().all(|asked| asked.updates.try_recv().is_err()), "not sent yet");
    world.scheduler.step();
    for asked in &asked {
        assert!(matches!(asked.updates.try_recv(), Ok(JobUpdate::Piece { .. })));
        assert!(asked.updates.try_recv().is_err(), "of the second token");
    }
    // What was not sent when a job ends is sent first.
    asked[0].cancel.store(true, Ordering::Relaxed);
    world.scheduler.step();
    let last: Vec<JobUpdate> = asked[0].updates.try_iter().collect();
    assert!(matches!(&last[..], [JobUpdate::Piece { .. }, JobUpdate::Done(_)]));
}

/// Replies without a limit run side by side until the cells run out. Then the last ones wait, and
/// compute their tokens again.
#[test]
fn replies_without_a_limit_share_the_context() {
    for (whole, drafts) in [(false, false), (false, true), (true, false)] {
        let oracle = || Speculation::new(Box::new(OracleDrafter { state: 9 }), 8);
        let mut world = World::with(4, 2000, whole, drafts.then(oracle));
        let asked: Vec<SubmittedJob> = (1..=4)
            .map(|chat| world.ask_without_limit(chat, &part(chat as TokenId, 100)))
            .collect();
        let limited = world.ask(5, &part(5, 50), 20);
        world.scheduler.step();
        assert_eq!(world.scheduler.active.len(), 4, "all four fit at first");
        world.run();
        for asked in &asked {
            let ended = asked.ended();
            assert_eq!((ended.outcome.finish, ended.text.len()), (Finish::Length, 1901));
        }
        assert_eq!(limited.ended().text.len(), 20);
        // Each token is computed once, and those of three jobs once more for each wait.
        let decoded = world.seen(|seen| seen.decoded);
        assert!((8_000..24_000).contains(&decoded), "{decoded}");
    }
}

/// A short job goes on while a long one waits, whichever came first. Both end.
#[test]
fn the_longest_job_waits_for_cells() {
    let mut world = World::new(2, 600, false);
    let first = world.ask_without_limit(1, &part(1, 40));
    (0..100).for_each(|_| world.scheduler.step());
    let second = world.ask(2, &part(2, 40), 250);
    let waiting = (0..300).find_map(|_| {
        world.scheduler.step();
        let World { scheduler, .. } = &world;
        let mut waiting =
            scheduler.active.iter().filter(|active| scheduler.cache.is_held(active.sequence));
        waiting.next().map(|active| active.job.chat)
    });
    assert_eq!(waiting, Some(1));
    world.run();
    assert_eq!(first.ended().text.len(), 561);
    assert_eq!(second.ended().text.len(), 250);
}

#[test]
fn a_large_max_tokens_does_not_keep_others_out() {
    let mut world = World::new(3, 1000, false);
    let asked: Vec<SubmittedJob> =
        (1..=3).map(|chat| world.ask(chat, &part(chat as TokenId, 20), 900)).collect();
    world.scheduler.step();
    assert_eq!(world.scheduler.active.len(), 3);
    world.run();
    asked.iter().for_each(|asked| assert_eq!(asked.ended().text.len(), 900));
}

/// The steps until a job of this chat has its first token.
fn steps_to_first_token(world: &mut World, chat: u64) -> usize {
    let steps = (1..=1_000).find(|_| {
        world.scheduler.step();
        let mut active = world.scheduler.active.iter();
        active.any(|active| active.job.chat == chat && active.next.is_some())
    });
    steps.expect("it has a token")
}

/// A reply that never ends has all cells. A short job gets some when the reply has run for as many
/// steps as it waited for the last one.
#[test]
fn short_jobs_do_not_wait_for_a_long_one_that_has_all_cells() {
    const SHORTS: u64 = 40;
    let mut world = World::new(2, 600, false);
    let long = world.ask_shifting(1, &part(1, 40), 3_000, Some(0));
    (0..1_000).for_each(|_| world.scheduler.step());
    for chat in 2..2 + SHORTS {
        let short = world.ask(chat, &part(chat as TokenId, 30), 10);
        let steps = steps_to_first_token(&mut world, chat);
        assert!(steps <= 12, "{steps} steps of the long one before that of the short one");
        while world.scheduler.active.iter().any(|active| active.job.chat == chat) {
            world.scheduler.step();
        }
        assert_eq!(short.ended().text.len(), 10);
    }
    world.run();
    assert_eq!(long.ended().text.len(), 3_000);
    // The tokens of all, and at most 40 of the long one again for each short one.
    let decoded = world.seen(|seen| seen.decoded);
    assert!(decoded <= 40 + 3_000 + SHORTS as usize * (40 + 40), "{decoded}");
}

#[test]
fn short_jobs_do_not_wait_for_a_long_prompt_that_has_all_cells() {
    let mut world = World::new(3, 4096, false);
    let long = world.ask(1, &part(1, 3900), 100);
    (0..4).for_each(|_| world.scheduler.step());
    let short = world.ask(2, &part(2, 60), 40);
    assert_eq!(steps_to_first_token(&mut world, 2), 1);
    // Now the long one waits, and loses nothing, because its last cells were not filled.
    world.run();
    assert_eq!((long.ended().text.len(), short.ended().text.len()), (100, 40));
    assert_eq!(world.seen(|seen| seen.decoded), 3900 + 99 + 60 + 39);
}

/// One that is too long for the cells that are left waits for the one before it, and holds up no
/// short ones meanwhile.
#[test]
fn short_jobs_overtake_a_long_one_that_would_wait_anyway() {
    let mut world = World::new(3, 1_000, false);
    let long = world.ask_without_limit(1, &part(1, 40));
    (0..200).for_each(|_| world.scheduler.step());
    let waiting = world.ask(2, &part(2, 900), 10);
    for chat in 3..33 {
        let short = world.ask(chat, &part(chat as TokenId, 30), 10);
        assert_eq!(steps_to_first_token(&mut world, chat), 1);
        (0..10).for_each(|_| world.scheduler.step());
        assert_eq!(short.ended().text.len(), 10);
    }
    world.run();
    assert_eq!((long.ended().text.len(), waiting.ended().text.len()), (961, 10));
}

/// One that waits until another has computed the beginning of its prompt holds up no short ones.
#[test]
fn short_jobs_overtake_a_long_one_that_waits_for_its_beginning() {
    let mut world = World::new(4, 32_768, false);
    let begun = part(1, 12_000);
    let long = world.ask(1, &prompt(&begun, 2), 4);
    world.scheduler.step();
    let waiting = world.ask(2, &prompt(&begun, 3), 4);
    for chat in 3..33 {
        let short = world.ask(chat, &part(chat as TokenId, 30), 2);
        assert_eq!(steps_to_first_token(&mut world, chat), 1);
        (0..2).for_each(|_| world.scheduler.step());
        assert_eq!(short.ended().text.len(), 2);
    }
    assert_eq!(world.scheduler.waiting.len(), 1, "it still waits");
    world.run();
    let waited = waiting.ended();
    assert_eq!((long.ended().text.len(), waited.text.len()), (4, 4));
    assert_eq!(waited.outcome.cached_tokens, begun.len());
}

#[test]
fn a_long_prompt_does_not_hold_up_the_first_token_of_a_short_one() {
    let mut world = World::new(3, 8192, false);
    let long = world.ask(1, &part(1, 4000), 4);
    world.scheduler.step();
    assert_eq!(world.seen(|seen| seen.decoded), N_BATCH);
    let short = world.ask(2, &part(2, 30), 4);
    world.scheduler.step();
    let decoded = world.seen(|seen| seen.decoded) - N_BATCH;
    assert!((31..=62).contains(&decoded), "{decoded}");
    assert!(world.scheduler.active[1].next.is_some(), "the first token of the short one");
    world.run();
    assert_eq!((long.ended().text.len(), short.ended().text.len()), (4, 4));
}

/// On a slow machine, a decode takes few tokens of a long prompt while another reply is written.
#[test]
fn a_long_prompt_does_not_hold_up_the_next_tokens_of_a_reply() {
    let mut world = World::with_batch(3, 8192, 512);
    let reply = world.ask(1, &part(1, 30), 100);
    world.scheduler.step();
    let long = world.ask(2, &part(2, 4000), 4);
    for (milliseconds, expected) in [(1, 512), (10_000, 1 + 64)] {
        world.scheduler.prompt_pace = PromptPace::default();
        let wall = Duration::from_millis(milliseconds);
        world.scheduler.prompt_pace.record(1000, false, wall);
        let before = world.seen(|seen| seen.decoded);
        world.scheduler.step();
        assert_eq!(world.seen(|seen| seen.decoded) - before, expected);
    }
    world.run();
    assert_eq!((reply.ended().text.len(), long.ended().text.len()), (100, 4));
}

#[test]
fn a_full_context_drops_half_of_what_is_not_kept() {
    for (keeps, shifts) in [
        // Before token 57 the context holds 95 tokens, of which 47 are dropped. The reply has 299
        // decoded tokens.
        (0, ShiftCounts { times: 6, dropped: 6 * 47 }),
        // The whole prompt is kept, which leaves 55 tokens after it.
        (40, ShiftCounts { times: 10, dropped: 10 * 27 }),
        // All but four cells are kept: each shift drops one token.
        (500, ShiftCounts { times: 244, dropped: 244 }),
    ] {
        for drafts in [false, true] {
            let oracle = || Speculation::new(Box::new(OracleDrafter { state: 5 }), 8);
            let mut world = World::with(2, 96, false, drafts.then(oracle));
            let long = world.ask_shifting(1, &part(1, 40), 300, Some(keeps));
            world.run();
            assert_eq!(long.ended().outcome.shifts, shifts, "{keeps} kept, drafts: {drafts}");
            // Only the tokens that were not moved are found again.
            let lookup = world.look_up(1, &part(1, 40));
            assert_eq!(lookup.cached, keeps.min(39), "{keeps} kept");
            let again = world.ask(1, &part(1, 40), 20);
            world.run();
            assert_eq!(again.ended().outcome.cached_tokens, keeps.min(39));
        }
    }
}

/// A job may have to wait when its context is full. It then drops the same tokens as without a wait.
#[test]
fn a_full_context_that_waits_is_shifted() {
    let mut world = World::new(2, 600, false);
    let long = world.ask_shifting(1, &part(1, 40), 700, Some(20));
    world.scheduler.step();
    let sequence = world.scheduler.active[0].sequence;
    while world.scheduler.cache.len(sequence) < 599 {
        world.scheduler.step();
    }
    let short = world.ask(2, &part(2, 30), 10);
    world.scheduler.step();
    assert!(world.scheduler.cache.is_held(sequence), "it makes room for the short one");
    world.run();
    assert_eq!(short.ended().text.len(), 10);
    let ended = long.ended();
    assert_eq!((ended.text.len(), ended.outcome.shifts.times), (700, 1));
}

/// Jobs share prefixes, wait for cells, are cancelled, and have their contexts shifted.
/// `LLB_MIXES` sets the number of mixes.
#[test]
fn mixes_of_jobs_fit_into_the_context() {
    let mixes = std::env::var("LLB_MIXES").ok().and_then(|mixes| mixes.parse().ok());
    let mut shifts = 0;
    for seed in 0..mixes.unwrap_or(8) {
        let shifted = std::panic::catch_unwind(|| mix(seed));
        shifts += shifted.unwrap_or_else(|_| panic!("mix {seed}"));
    }
    assert!(shifts > 50, "{shifts} full contexts were shifted");
}

/// Runs a mix of jobs. Returns the number of context shifts.
fn mix(seed: u64) -> usize {
    let mut state = seed;
    let sequences = 1 + random(&mut state) % 4;
    let mut world = World::new(sequences, 300 + random(&mut state) % 300, false);
    let mut asked: Vec<SubmittedJob> = Vec::new();
    for _ in 0..30 {
        // One of a few beginnings, or sometimes a continued conversation.
        let mut tokens = part(random(&mut state) as TokenId % 3, 10 + random(&mut state) % 150);
        if let Some(before) = asked.last().filter(|_| random(&mut state).is_multiple_of(3)) {
            tokens = before.prompt[..before.prompt.len().min(180)].to_vec();
        }
        tokens.extend(part(random(&mut state) as TokenId % 200, 1 + random(&mut state) % 20));
        let chat = random(&mut state) as u64 % 9;
        let (keeps, most) = (random(&mut state) % 400, 1 + random(&mut state) % 900);
        let job = world.ask_shifting(chat, &tokens, most, Some(keeps));
        if random(&mut state).is_multiple_of(4) {
            let at = world.seen(|seen| seen.decodes) + random(&mut state) % 300;
            world.seen(|seen| seen.cancels.push((at, Arc::clone(&job.cancel))));
        }
        asked.push(job);
        for _ in 0..random(&mut state) % 100 {
            world.scheduler.step();
        }
    }
    world.run();
    asked.iter().map(|asked| asked.ended().outcome.shifts.times).sum()
}

#[test]
fn what_others_share_does_not_move() {
    let mut world = World::new(3, 96, false);
    let begun = part(1, 50);
    let first = world.ask(1, &begun, 8);
    let second = world.ask(2, &[&begun[..], &part(2, 10)].concat(), 1);
    // The second copies the beginning while the first is cancelled, so both hold it when they end.
    world.seen(|seen| seen.cancels.push((2, Arc::clone(&first.cancel))));
    world.run();
    assert_eq!((first.ended().text.len(), second.ended().text.len()), (1, 1));
    assert_eq!(world.seen(|seen| seen.copied), 50);
    let long = world.ask_shifting(2, &[&begun[..], &part(2, 10), &[7]].concat(), 60, Some(20));
    while world.seen(|seen| seen.decoded) < 60 + 36 {
        world.scheduler.step();
    }
    // While the job runs, moved tokens are not offered, and the first conversation has lost them.
    assert_eq!(world.look_up(1, &begun), CacheLookup { cached: 20, own: Some((20, 20)) });
    world.run();
    assert_eq!(long.ended().outcome.shifts.times, 1);
    let next = world.ask(1, &begun, 8);
    world.run();
    assert_eq!(next.ended().outcome.cached_tokens, 20);
}

/// For example, a reply that is sent back without its reasoning differs from the last prompt after
/// the opening of that reply.
#[test]
fn a_state_is_cut_at_a_checkpoint() {
    let mut world = World::new(2, 600, true);
    let mut asked = world.ask(1, &part(1, 100), 10);
    for turn in 0..8 {
        world.run();
        asked.ended();
        let before = asked.prompt.len();
        let history = &asked.prompt[..before - 5];
        asked = world.ask(1, &[history, &part(50 + turn, 30)].concat(), 10);
        let decoded = world.seen(|seen| std::mem::take(&mut seen.decoded));
        // First the prompt. After that, the opening, the new message, and the reply except its last
        // token.
        assert_eq!(decoded, if turn == 0 { 100 + 9 } else { 11 + 30 + 9 });
    }
    world.run();
    // Another chat begins as the first one did. That prefix has no checkpoint yet.
    let stranger = [&asked.prompt[..60], &part(99, 40)].concat();
    for (cached, chat) in [(0, 2), (60, 3)] {
        let seed = 99 + chat as TokenId;
        let prompt = [&stranger[..60], &part(seed, 40)].concat();
        let asked = world.ask(chat, &prompt, 10);
        world.run();
        assert_eq!(asked.ended().outcome.cached_tokens, cached);
    }
    assert_eq!(world.seen(|seen| (seen.rewound, seen.copied)), (9, 109));
}

#[test]
fn a_chat_is_saved_and_restored() {
    let mut world = World::new(2, 400, false);
    let first = world.ask(1, &part(1, 100), 10);
    world.run();
    let text = first.ended().text;
    // The last token was sampled but not decoded.
    let held: Vec<TokenId> =
        part(1, 100).into_iter().chain(text.bytes().take(9).map(TokenId::from)).collect();
    let kept = world.scheduler.save(1).expect("kept").expect("something");
    assert_eq!(kept.tokens, held);
    assert!(world.scheduler.save(2).expect("kept").is_none(), "a chat that asked nothing");

    let mut other = World::new(1, 200, false);
    other.scheduler.restore(7, &kept).expect("restored");
    let next = other.ask(7, &[held.as_slice(), &part(5, 10)].concat(), 5);
    other.run();
    assert_eq!(next.ended().outcome.cached_tokens, held.len());

    let mut small = World::new(1, 50, false);
    assert_eq!(small.scheduler.restore(7, &kept).expect_err("too long").code(), Code::Busy);
    assert!(small.scheduler.save(7).expect("kept").is_none());
}

#[test]
fn a_decode_that_stalls_is_computed_with_fewer_threads() {
    let mut world = World::with_threads(2, 400, false, None, ThreadPolicy::Adaptive);
    // The numbers of threads that are tried later stall too.
    world.seen(|seen| seen.stalls = 20..usize::MAX);
    let asked = [world.ask(1, &part(1, 100), 30), world.ask(2, &part(2, 30), 60)];
    world.run();
    for asked in asked {
        let threads = asked.ended().outcome.threads.expect("it was decoded");
        assert!((1.0..THREADS as f64).contains(&threads), "{threads}");
    }
    let (decodes, threads) = world.seen(|seen| (seen.decodes, seen.threads.clone()));
    // On a busy machine, one of the first decodes may be given up too.
    let is_expected = |(number, threads): &(usize, usize)| (*number < 20) == (*threads > 1);
    assert!(threads.iter().all(is_expected), "{threads:?}");
    assert!(decodes > threads.len(), "some were given up");
}

#[test]
fn a_stall_does_not_destroy_a_state() {
    let mut world = World::with_threads(1, 400, true, None, ThreadPolicy::Adaptive);
    world.seen(|seen| seen.stalls = 5..6);
    let asked = world.ask(1, &part(1, 30), 10);
    world.run();
    asked.ended();
    let (decodes, ended) = world.seen(|seen| (seen.decodes, seen.threads.len()));
    assert_eq!(decodes, ended, "none was given up");
}

#[test]
fn jobs_with_other_adapters_take_turns_and_share_no_prefix() {
    let system = part(1, 200);
    for (whole, speculates) in [(false, false), (false, true), (true, false)] {
        let drafter = || Speculation::new(Box::new(OracleDrafter { state: 1 }), 4);
        let mut world = World::with(6, 4096, whole, speculates.then(drafter));
        let scales = [0, 1, 2, 1, 0, 2];
        let ask = |world: &mut World, max_tokens| -> Vec<SubmittedJob> {
            let asked = scales.into_iter().zip(0..);
            let one = |(scale, chat)| world.ask_with(scale, chat, &prompt(&system, 2), max_tokens);
            asked.map(one).collect()
        };
        let first = ask(&mut world, 40);
        world.run();
        let cached = |asked: &[SubmittedJob]| -> Vec<usize> {
            asked.iter().map(|asked| asked.ended().outcome.cached_tokens).collect()
        };
        let shared = if whole { 0 } else { system.len() + 20 - 1 };
        assert_eq!(cached(&first), [0, 0, 0, shared, shared, shared], "whole: {whole}");
        // Until the end, no set of adapters waits for more than one turn of each other set.
        let sets = world.seen(|seen| seen.sets.clone());
        for set in [0, SET, 2 * SET] {
            let end = sets.iter().rposition(|other| *other == set).expect("it had a turn");
            let waits = sets[..end].split(|other| *other == set).map(<[TokenId]>::len);
            assert!(waits.max() <= Some(2 * MAX_DECODES), "{set}: {sets:?}");
        }
        // Each set has kept what it computed.
        let again = ask(&mut world, 8);
        world.run();
        let kept = if whole { 200 } else { 219 };
        assert!(cached(&again).iter().all(|cached| *cached >= kept), "{:?}", cached(&again));
    }
}

/// A copy contains exactly the tokens up to its length. Each copy is sent once, even if the cancel
/// of another job makes this one compute its prompt again. A job that starts after a length sends
/// no copy of that length.
#[test]
fn prefixes_are_copied_at_their_lengths() {
    for whole in [false, true] {
        let lengths = |job: &FinishedJob| -> Vec<usize> {
            job.prefixes.iter().map(|prefix| prefix.tokens.len()).collect()
        };
        let mut world = World::new(2, 1024, whole);
        world.copied_lengths = vec![20, 70, 150];
        let prompt = part(1, 200);
        let job = world.ask(1, &prompt, 4);
        world.copied_lengths = Vec::new();
        let neighbour = world.ask(2, &part(2, 300), 4);
        // The cancel arrives in a decode that computes the end of the first prompt and a part of
        // the other.
        world.seen(|seen| seen.cancels.push((4, Arc::clone(&neighbour.cancel))));
        world.run();
        let ended = job.ended();
        assert_eq!(lengths(&ended), [20, 70, 150], "{whole}");
        for prefix in &ended.prefixes {
            assert_eq!(prefix.tokens, prompt[..prefix.tokens.len()]);
            let data: Vec<u8> = prefix.tokens.iter().map(|token| *token as u8).collect();
            assert_eq!((&prefix.data, &prefix.adapters), (&data, &AdapterScales([0.0].into())));
        }
        // A restored copy has the same effect as if it had been computed here.
        for prefix in &ended.prefixes {
            let mut world = World::new(2, 1024, whole);
            world.scheduler.restore(3, prefix).expect("room");
            world.copied_lengths = vec![20, 70, 150];
            let job = world.ask(3, &prompt, 4);
            world.run();
            let again = job.ended();
            let length = prefix.tokens.len();
            assert_eq!((again.outcome.cached_tokens, again.text), (length, ended.text.clone()));
            let later: Vec<usize> = [20, 70, 150].into_iter().filter(|at| *at >= length).collect();
            assert_eq!(lengths(&job_again(&mut world, &prompt)), [0; 0], "nothing is left to copy");
            assert_eq!(again.prefixes.len(), later.len(), "{whole} {length}");
        }
    }
}

/// Runs a job with the same prompt again.
fn job_again(world: &mut World, prompt: &[TokenId]) -> FinishedJob {
    let job = world.ask(3, prompt, 4);
    world.run();
    job.ended()
}
