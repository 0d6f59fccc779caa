//! Measures the nanoseconds to draw a token from a row of logits. Compares them with llama.cpp's
//! chain on the same rows, and with the lower bound, a sum over the row.
//!
//! Rows have the shape of a language model's: most logits are close to a normal distribution, and
//! some tokens are far above it. Draws alternate between several rows, so that no row is in the
//! first-level cache. `LLB_ROUNDS` is the number of rounds.
#![allow(unsafe_code, reason = "calls llama.cpp")]
#![allow(clippy::print_stdout, reason = "prints a table")]
#![allow(clippy::unwrap_used, reason = "a bench may fail")]
#![allow(unreachable_pub, missing_docs, reason = "a program")]

#[path = "../tests/samplers/chain.rs"]
mod chain;
#[allow(dead_code, reason = "needs no model")]
#[path = "measure/mod.rs"]
mod measure;
#[path = "../tests/samplers/rows.rs"]
mod rows;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use chain::{LlamaChain, NO_VOCAB};
use llb::api::{ChatRequest, Sampling};
use llb::engine::{LogitRow, SampledLogprobs, Sampler, TokenId, TokenMask};
use rows::{Numbers, language_row};
use serde_json::{Value, json};

/// The number of rows of one vocabulary.
const ROWS: usize = 8;
/// Each figure is the minimum of so many rounds over all rows, because other programs only add time.
fn rounds() -> usize {
    measure::number("LLB_ROUNDS", 25)
}

/// A case to measure: what to draw from, and how.
struct Case {
    name: &'static str,
    members: Value,
    masked: bool,
    logprobs: Option<usize>,
}

fn main() {
    let case = |name, members| Case { name, members, masked: false, logprobs: None };
    let penalties = json!({ "repeat_penalty": 1.1, "presence_penalty": 0.5 });
    let cases = [
        case("greedy", json!({ "temperature": 0 })),
        case("default", json!({})),
        Case { masked: true, ..case("default, mask", json!({})) },
        case("default, penalties", penalties),
        Case { logprobs: Some(20), ..case("default, 20 log probabilities", json!({})) },
        case("temperature only", json!({ "top_k": 0, "top_p": 1, "min_p": 0 })),
        case("top-p only", json!({ "top_k": 0, "min_p": 0 })),
        case("min-p only", json!({ "top_k": 0, "top_p": 1 })),
    ];
    println!("nanoseconds per draw, least of {} rounds over {ROWS} rows", rounds());
    for n in [32_000, 152_064, 262_144] {
        let mut numbers = Numbers::new(7);
        let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| language_row(&mut numbers, n)).collect();
        let mask = mask(&mut numbers, n);
        let floor = least(|row| {
            black_box(sum(&rows[row]));
        });
        println!("\n{n} tokens; floor (sum over a row): {floor:.0}");
        println!("{:32}{:>10}{:>12}{:>9}{:>11}", "", "llb", "llama.cpp", "faster", "x floor");
        for case in &cases {
            let mask = case.masked.then_some(&mask);
            let (ours, theirs) = (time_llb(case, &rows, mask), time_llama(case, &rows, mask));
            let (faster, floors) = (theirs / ours, ours / floor);
            println!("{:32}{ours:>10.0}{theirs:>12.0}{faster:>9.1}{floors:>11.1}", case.name);
        }
    }
}

fn sampling(case: &Case) -> Sampling {
    let mut request = json!({ "messages": [{ "role": "user", "content": "x" }], "seed": 1 });
    let members = case.members.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(members);
    ChatRequest::read(request).unwrap().sampling
}

fn recent() -> impl Iterator<Item = TokenId> {
    (0..64).map(|place| place * 37 % 50)
}

fn time_llb(case: &Case, rows: &[Vec<f32>], mask: Option<&TokenMask>) -> f64 {
    let mut sampler = Sampler::new(&sampling(case), &[], &Arc::default()).unwrap();
    recent().for_each(|token| sampler.accept(token));
    let mut maxima = Vec::new();
    least(|row| {
        let row = LogitRow::read(&rows[row], &mut maxima);
        let token = sampler.draw(&row, mask).unwrap();
        if let Some(n_top) = case.logprobs {
            black_box(SampledLogprobs::of(&row, token, n_top));
        }
        black_box(token);
    })
}

/// Does what `llama_sampler_sample` does: copies all tokens to an array, then runs the chain.
/// llama.cpp has no log probabilities of the whole row.
fn time_llama(case: &Case, rows: &[Vec<f32>], mask: Option<&TokenMask>) -> f64 {
    let mut chain = LlamaChain::new(&sampling(case), rows[0].len(), NO_VOCAB);
    recent().for_each(|token| chain.accept(token));
    least(|row| {
        let tokens = (0..).zip(rows[row].iter().copied());
        let token = match mask {
            None => chain.choose(tokens),
            Some(mask) => chain.choose(tokens.map(|(token, logit)| {
                (token, if mask.get(token as usize) { logit } else { f32::NEG_INFINITY })
            })),
        };
        black_box(token);
    })
}

/// The nanoseconds of one call. Each call gets the index of another row.
fn least(mut call: impl FnMut(usize)) -> f64 {
    (0..ROWS).for_each(&mut call);
    let rounds = (0..rounds()).map(|_| {
        let start = Instant::now();
        (0..ROWS).for_each(&mut call);
        start.elapsed().as_nanos() as f64 / ROWS as f64
    });
    measure::counted("draws", rounds.fold(f64::INFINITY, f64::min))
}

/// Sums in lanes, so that the compiler can use vector instructions.
fn sum(row: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 32];
    let (parts, rest) = row.as_chunks::<32>();
    for part in parts {
        lanes.iter_mut().zip(part).for_each(|(lane, logit)| *lane += logit);
    }
    lanes.iter().chain(rest).sum()
}

/// A mask as for the inside of a string: most tokens are allowed, but not all tokens of any mask
/// word.
fn mask(numbers: &mut Numbers, n: usize) -> TokenMask {
    let mut mask = TokenMask::alloc(n);
    (0..n as u32).filter(|_| numbers.below(10) > 0).for_each(|token| mask.allow_token(token));
    mask
}
