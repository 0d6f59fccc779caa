//! Compares the prefill and decode speed of `llb_chat_infer` with a plain loop over llama.cpp, on
//! one model.
//!
//! Both have the same threads, context, batch size, KV types, flash attention, samplers and prompt
//! tokens. The peer is the shortest possible loop (decode, sample, text of the token) with its own
//! context for one sequence. It runs once with its own thread pool and once without, and the faster
//! run is compared. Every round measures everything in rotating order. Nothing is asserted; the
//! output reports whether targets are met.
//!
//! Environment variables: `LLB_ROUNDS` is the number of rounds, `LLB_THREADS` the number of
//! threads, and `LLB_PARALLEL` the number of llb's sequences.
#![allow(unsafe_code, reason = "calls the C ABI and llama.cpp")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "measure/mod.rs"]
mod measure;
#[path = "measure/peer.rs"]
mod peer;

use chat::{Chat, cpu_seconds};
use llb::ffi;
use measure::{Figures, heading, row, target, timed};
use peer::{Peer, Run, Sampling};
use serde_json::json;

/// The number of tokens that are decoded after the first.
const DECODED: usize = 128;
const N_CTX: u32 = 8192;
const N_BATCH: u32 = 512;
const SEED: u32 = 7;
const MIN: f64 = 0.95;

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores) as u32;
    let chat = Chat::open(&json!({
        "model": path,
        "n_ctx": N_CTX,
        "n_batch": N_BATCH,
        "n_threads": threads,
        "n_parallel": measure::number("LLB_PARALLEL", 4),
    }));
    let explained = chat.call(ffi::llb_chat_explain, &request(Sampling::Greedy, 1, false));
    let prompt = explained["prompt"].as_str().expect("an explanation has the prompt");
    let mut peers = [true, false].map(|pool| Peer::open(&path, threads, N_CTX, N_BATCH, pool));
    let tokens = peers[0].tokenize(prompt);
    assert_eq!(explained["prompt_tokens"], tokens.len(), "both have the same tokens");
    println!(
        "llb_chat_infer against a loop over llama.cpp: {rounds} rounds, {}, {threads} threads, {} prompt tokens, {DECODED} decoded",
        measure::file_name(&path),
        tokens.len()
    );

    let mut prefill: [Measured; 3] = Default::default();
    let mut decode: [[Measured; 3]; 2] = Default::default();
    let mut inside: [Figures; 3] = Default::default();
    let samplings = [Sampling::Greedy, Sampling::Default { seed: SEED }];
    // The round before the first is a warm-up.
    for round in 0..=rounds {
        let mut texts: Vec<String> = Vec::new();
        let mut order = [0, 1, 2];
        order.rotate_left(round % 3);
        if round % 2 == 1 {
            order.reverse();
        }
        for contestant in order {
            let keep = |figures: &mut Figures, figure: f64| {
                if round > 0 {
                    figures.push(figure);
                }
            };
            let cold = match contestant {
                0 => run(&chat, samplings[0], 1, false),
                _ => peers[contestant - 1].run(&tokens, samplings[0], 1, false),
            };
            keep(&mut prefill[contestant].wall, tokens.len() as f64 / cold.wall);
            keep(&mut prefill[contestant].cpu, tokens.len() as f64 / cold.cpu);
            keep(&mut prefill[contestant].own, tokens.len() as f64 / cold.prompt);
            for (kind, sampling) in samplings.into_iter().enumerate() {
                let [short, long] = [1, 1 + DECODED].map(|n| match contestant {
                    0 => run(&chat, sampling, n, true),
                    _ => peers[contestant - 1].run(&tokens, sampling, n, true),
                });
                assert!(long.generated > 1, "the model generates more than one token");
                let decoded = (long.generated - 1) as f64;
                keep(&mut decode[kind][contestant].wall, decoded / (long.wall - short.wall));
                keep(&mut decode[kind][contestant].cpu, decoded / (long.cpu - short.cpu));
                keep(&mut decode[kind][contestant].own, decoded / long.predicted);
                if kind == 0 {
                    keep(
                        &mut inside[contestant],
                        (long.wall - long.prompt - long.predicted) * 1000.0,
                    );
                }
                // With the default sampler and the same seed, llb draws other tokens than
                // llama.cpp.
                if kind == 0 {
                    texts.push(long.text);
                }
            }
        }
        if round == 0 {
            let same = texts.iter().all(|text| *text == texts[0]);
            println!("greedy: all wrote {}the same text", if same { "" } else { "NOT " });
            let columns = ["prefill", "decode greedy", "decode default"];
            println!(
                "tokens/s of llb, loop with pool, loop without\nround {:>24}   {:>24}   {:>24}",
                columns[0], columns[1], columns[2]
            );
        } else {
            let last = |measured: &[Measured; 3]| {
                let speeds = measured
                    .each_ref()
                    .map(|one| format!("{:.1}", one.wall.0.last().unwrap_or(&f64::NAN)));
                format!("{:>24}", speeds.join(" "))
            };
            println!("{round:>5} {}   {}   {}", last(&prefill), last(&decode[0]), last(&decode[1]));
        }
    }

    report("prefill, tokens/s (wall of a whole call)", &prefill);
    report("decode greedy, tokens/s", &decode[0]);
    report("decode default sampler, tokens/s", &decode[1]);
    heading("outside prefill and decode, ms per call");
    row("llb", &inside[0]);
}

/// The speeds of one contestant, in tokens per second.
#[derive(Default)]
struct Measured {
    /// Measured by wall time.
    wall: Figures,
    /// Tokens per second of processor time, over all threads.
    cpu: Figures,
    /// According to the reply's `timings`.
    own: Figures,
}

fn report(title: &str, [llb, pool, plain]: &[Measured; 3]) {
    heading(title);
    row("llb", &llb.wall);
    row("llb, by its own timings", &llb.own);
    row("llama.cpp loop, thread pool", &pool.wall);
    row("llama.cpp loop, no thread pool", &plain.wall);
    let peer = if pool.wall.median() >= plain.wall.median() { pool } else { plain };
    let ratio = llb.wall.over(&peer.wall);
    row("llb / the better loop, by round", &ratio);
    row("llb / the better loop, processor time", &llb.cpu.over(&peer.cpu));
    let median = ratio.median();
    target(&format!("at least {MIN} of llama.cpp: {median:.3}"), median >= MIN);
}

/// A prompt of about 500 tokens with a reply longer than the decoded part.
fn request(sampling: Sampling, max_tokens: usize, cache_prompt: bool) -> String {
    let goods = ["candles", "rope", "lamp oil", "tin cups", "blankets", "salt"];
    let mut text = String::from("This is the list of a warehouse.\n");
    for shelf in 1..=28 {
        let goods = goods[shelf % goods.len()];
        text += &format!(
            "Shelf {shelf}: {} boxes of {goods}, checked in week {}.\n",
            shelf * 7 % 41 + 1,
            shelf % 13 + 1
        );
    }
    text += "Copy the whole list, line by line. Do not leave any line out.";
    let mut request = json!({
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": max_tokens,
        "cache_prompt": cache_prompt,
        "seed": SEED,
    });
    if let Sampling::Greedy = sampling {
        request["temperature"] = 0.into();
    }
    request.to_string()
}

fn run(chat: &Chat, sampling: Sampling, max_tokens: usize, cache_prompt: bool) -> Run {
    let request = request(sampling, max_tokens, cache_prompt);
    let cpu = cpu_seconds();
    let (wall, reply) = timed(|| chat.call(ffi::llb_chat_infer, &request));
    let cpu = cpu_seconds() - cpu;
    let seconds =
        |name: &str| reply["timings"][name].as_f64().expect("a reply has timings") / 1000.0;
    Run {
        wall: wall.as_secs_f64(),
        cpu,
        prompt: seconds("prompt_ms"),
        predicted: seconds("predicted_ms"),
        generated: reply["usage"]["completion_tokens"].as_u64().expect("a reply has usage")
            as usize,
        text: reply["text"].as_str().unwrap_or_default().to_owned(),
    }
}
