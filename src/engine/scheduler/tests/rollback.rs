//! Drafts for a model with one state for each sequence, from which a few tokens can be removed. The
//! backend asserts that a draft is alone in its batch, or that all drafts have one length, and that
//! they are no longer than what can be removed.

use super::*;

fn oracle(state: u64) -> Option<Speculation> {
    Some(Speculation::new(Box::new(OracleDrafter { state }), 8))
}

#[test]
fn a_job_that_is_alone_drafts_as_much_as_can_be_removed() {
    let run = |rollback: usize| {
        let mut world = World::with_rollback(2, 1024, rollback, oracle(3));
        let asked = world.ask(1, &part(1, 50), 200);
        world.run();
        let counts = asked.ended().outcome.drafted;
        let (decodes, taken_back, refused) =
            world.seen(|seen| (seen.decodes, seen.taken_back, seen.refused_removals));
        assert_eq!(refused, 0, "no token is computed again");
        (counts.map(|counts| counts.accepted), decodes, taken_back)
    };
    let (accepted, decodes, taken_back) = run(8);
    assert!(accepted > Some(60) && taken_back > 10, "{accepted:?} {taken_back}");
    assert!(decodes < 140, "{decodes} decodes of 200 tokens");
    let (fewer, more, _) = run(1);
    assert!(fewer > Some(20) && fewer < accepted && more > decodes, "{fewer:?} {more}");
    // Two for the prompt.
    assert_eq!(run(0), (None, 201, 0));
}

#[test]
fn text_that_a_grammar_forces_is_drafted_for_a_state() {
    let run = |rollback: usize| {
        let mut world = World::with_rollback(1, 4096, rollback, Some(Speculation::default()));
        world.grammar = Some(CALL.to_owned());
        let asked = world.ask(1, &part(1, 20), 100);
        world.run();
        let (text, outcome) = asked.constrained();
        (text, outcome.drafted.map_or(0, |counts| counts.accepted), world.seen(|seen| seen.decodes))
    };
    let (plain, accepted, decodes) = run(0);
    assert_eq!((accepted, decodes), (0, plain.len()));
    for (rollback, most) in [(2, 2 * decodes / 3), (16, decodes / 3)] {
        let (text, accepted, fewer) = run(rollback);
        assert_eq!((text, accepted + fewer), (plain.clone(), decodes));
        assert!(fewer <= most, "{fewer} decodes instead of {decodes}");
    }
}

/// Each job of such a batch has a draft of the same length, and each removes its own part of it.
#[test]
fn several_jobs_have_drafts_of_one_length() {
    let run = |computes_apart: bool| {
        let mut world = World::with_rollback(3, 2048, 8, oracle(5));
        world.seen(|seen| seen.computes_apart = computes_apart);
        let asked: Vec<SubmittedJob> =
            (1..4).map(|chat| world.ask(chat, &part(chat as TokenId, 40), 150)).collect();
        world.run();
        let counts = asked.iter().map(|asked| asked.ended().outcome.drafted.unwrap_or_default());
        let fewest = counts.map(|counts| counts.accepted).min();
        world.seen(|seen| {
            assert_eq!(seen.refused_removals, 0, "no token is computed again");
            let is_beside = |order: &&Vec<usize>| (0..3).all(|it| order.contains(&it));
            let beside = seen.orders.iter().filter(is_beside).count();
            (fewest, seen.taken_back, beside)
        })
    };
    let (accepted, taken_back, beside) = run(false);
    assert!(accepted > Some(10) && taken_back > 10, "{accepted:?} {taken_back}");
    assert!(beside < 140, "{beside} decodes of 150 tokens of each job");
    let (.., beside) = run(true);
    assert!(beside >= 140, "{beside}");
}

#[test]
fn drafts_of_states_change_no_reply() {
    let [mut taken_back, mut rewound, mut copied, mut beside] = [0; 4];
    for seed in 0..40 {
        let mut state = seed;
        let (sequences, rollback) = (1 + random(&mut state) % 4, 1 + random(&mut state) % 9);
        let n_ctx = 300 + random(&mut state) % 400;
        let mut world = World::with_rollback(sequences, n_ctx, rollback, oracle(seed));
        let mut asked: Vec<SubmittedJob> = Vec::new();
        for _ in 0..20 {
            let mut tokens = part(random(&mut state) as TokenId % 3, 10 + random(&mut state) % 90);
            if let Some(before) = asked.last().filter(|_| random(&mut state).is_multiple_of(3)) {
                tokens = before.prompt[..before.prompt.len().min(180)].to_vec();
            }
            tokens.extend(part(random(&mut state) as TokenId % 200, 1 + random(&mut state) % 20));
            let stop = (random(&mut state) as u8).checked_sub(128).map(|one| b'a' + one % 26);
            world.stop = stop.map(|letter| char::from(letter).to_string());
            let chat = random(&mut state) as u64 % 5;
            let job = world.ask(chat, &tokens, 1 + random(&mut state) % 60);
            if random(&mut state).is_multiple_of(6) {
                let at = world.seen(|seen| seen.decodes) + random(&mut state) % 12;
                world.seen(|seen| seen.cancels.push((at, Arc::clone(&job.cancel))));
            }
            asked.push(job);
            // Often until the job is alone, or has ended.
            for _ in 0..random(&mut state) % 50 {
                world.scheduler.step();
            }
        }
        world.run();
        for asked in &asked {
            asked.ended();
        }
        let has_several = |order: &&Vec<usize>| order.iter().any(|sequence| *sequence != order[0]);
        world.seen(|seen| {
            taken_back += seen.taken_back;
            rewound += seen.rewound;
            copied += seen.copied;
            beside += seen.orders.iter().filter(has_several).count();
        });
    }
    let counts = [taken_back, rewound, copied, beside];
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
}
