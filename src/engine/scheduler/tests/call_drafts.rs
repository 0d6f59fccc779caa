//! Drafts of the texts of calls change nothing that a sampler remembers. The backend computes the
//! same logits for a token in every batch, so replies with and without drafts must have the same
//! tokens. Each sampler here depends on all earlier tokens or draws, so a sampler that accepts a
//! drafted token too early, twice or not at all draws other tokens later.

use serde_json::Value;

use super::*;
use crate::constraint::{self, CompileTime};
use crate::engine::DraftCounts;
use crate::output::families;
use crate::test_support::call_requirements;

/// Calls that the model imitates. Only the first one writes the parameters in the order that
/// drafts expect.
const EXAMPLES: [&str; 3] = [
    "<tool_call>\n<function=book>\n<parameter=city>\nRome\n</parameter>\n\
     <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>\n<function=book>\n<parameter=days>\n12\n</parameter>\n\
     <parameter=note>\nlate\n</parameter>\n<parameter=city>\nOslo\n</parameter>\n\
     </function>\n</tool_call>",
    "<tool_call>\n<function=book>\n<parameter=city>\nLima\n</parameter>\n\
     <parameter=note>\nmany\n</parameter>\n<parameter=days>\n7\n</parameter>\n\
     </function>\n</tool_call>",
];

/// The logits of a model that continues the examples, with numbers added to all letters that depend
/// on every token before.
fn imitate(tokens: &[TokenId]) -> Vec<f32> {
    let mut state = tokens.iter().fold(7, |hash: u64, token| {
        (hash ^ *token as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
    });
    let mut row = vec![-30.0; 256];
    for letter in (b' '..=b'~').chain([b'\n']) {
        row[usize::from(letter)] = (random(&mut state) % 2_000) as f32 / 1_000.0;
    }
    let mut continued = [0; 256];
    for example in EXAMPLES.map(str::as_bytes) {
        for (at, next) in example.iter().enumerate() {
            let before = example[..at].iter().rev().zip(tokens.iter().rev());
            let shared = before.take_while(|(one, other)| TokenId::from(**one) == **other).count();
            let longest = &mut continued[usize::from(*next)];
            *longest = shared.min(8).max(*longest);
        }
    }
    for (logit, shared) in row.iter_mut().zip(continued) {
        *logit += 1.2 * shared as f32;
    }
    row
}

/// The grammar of a forced call, and the texts of calls for it.
fn forced_call(world: &World) -> constraint::CompiledGrammar {
    let family = families::all().into_iter().find(|format| format.family == "qwen-xml");
    let tools = [json!({ "type": "function", "function": { "name": "book", "parameters": {
        "type": "object", "required": ["city", "days"], "additionalProperties": false,
        "properties": { "city": { "type": "string" }, "days": { "type": "integer" },
            "note": { "type": "string" } } } } })];
    let (grammars, time) = (&world.grammars, CompileTime::unlimited());
    constraint::compile(
        grammars,
        family.as_ref(),
        &call_requirements(&tools),
        &|_| Vec::new(),
        &time,
    )
    .expect("a grammar")
}

/// The tokens and the outcome of each of some replies, without drafts, with drafts of forced text,
/// and with drafts of the texts of calls too.
fn replies(sampling: &Value) -> [Vec<(String, JobOutcome)>; 3] {
    [(false, false), (true, false), (true, true)].map(|(drafts, has_texts)| {
        let mut replies = Vec::new();
        for seed in 0..6 {
            let mut world = World::with(3, 4096, false, Some(Speculation::default()));
            world.seen(|seen| seen.model = Some(imitate));
            let grammar = forced_call(&world);
            world.grammar = grammar.lark;
            if has_texts {
                world.call_texts = grammar.call_texts;
            }
            world.drafts = drafts;
            world.sampling = json!({ "seed": seed });
            for (name, value) in sampling.as_object().into_iter().flatten() {
                world.sampling[name] = value.clone();
            }
            let asked: Vec<SubmittedJob> = (0..3)
                .map(|chat| world.ask(chat, &part(seed + chat as TokenId, 20), 250))
                .collect();
            world.run();
            replies.extend(asked.iter().map(SubmittedJob::constrained));
        }
        replies
    })
}

fn drafted(replies: &[(String, JobOutcome)]) -> DraftCounts {
    let counts = replies.iter().filter_map(|(_, outcome)| outcome.drafted);
    counts.fold(DraftCounts::default(), |sum, counts| sum + counts)
}

/// A token is a byte here, so equal texts are equal tokens.
#[track_caller]
fn check(sampling: Value) {
    let [plain, forced, guessed] = replies(&sampling);
    for others in [&forced, &guessed] {
        for ((text, plain), (same, outcome)) in plain.iter().zip(others) {
            assert_eq!(text, same, "{sampling}");
            assert_eq!(plain.finish, outcome.finish, "{sampling}");
            assert_eq!(plain.completion_tokens, outcome.completion_tokens, "{sampling}");
        }
    }
    let [plain, forced, guessed] = [&plain, &forced, &guessed].map(|all| drafted(all));
    assert_eq!(plain.tokens, 0);
    // Texts of calls were drafted, and some of them were right and some wrong.
    let wrong = guessed.tokens - guessed.accepted;
    assert!(guessed.accepted > forced.accepted + 100, "{sampling}: {forced:?} {guessed:?}");
    assert!(wrong > forced.tokens - forced.accepted + 100, "{sampling}: {forced:?} {guessed:?}");
}

#[test]
fn penalties_see_each_token_once_and_in_order() {
    let penalties = json!({ "temperature": 1, "repeat_penalty": 1.05, "presence_penalty": 0.2,
        "frequency_penalty": 0.1, "repeat_last_n": 50 });
    check(penalties.clone());
    let mut greedy = penalties;
    greedy["temperature"] = 0.into();
    check(greedy);
}

#[test]
fn dry_sees_each_token_once_and_in_order() {
    check(json!({ "temperature": 1, "dry_multiplier": 0.1, "dry_base": 1.05,
        "dry_allowed_length": 3, "dry_penalty_last_n": -1 }));
}

#[test]
fn mirostat_learns_from_each_token_once() {
    check(json!({ "temperature": 1, "mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 0.3 }));
}

#[test]
fn adaptive_p_learns_from_each_token_once() {
    check(json!({ "temperature": 1, "adaptive_target": 0.6, "adaptive_decay": 0.8,
        "samplers": ["min_p", "adaptive_p"], "min_p": 0.02 }));
}

/// XTC draws a further number for each token, so a draw for a rejected draft would be seen.
#[test]
fn each_token_takes_the_next_random_numbers() {
    check(json!({ "temperature": 1.1, "top_k": 0, "top_p": 1, "min_p": 0 }));
    check(json!({ "temperature": 1, "xtc_probability": 0.3, "xtc_threshold": 0.3 }));
}
