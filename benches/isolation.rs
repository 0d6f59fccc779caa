//! Compares a chat in a helper process with a chat in this process (`isolation`): decode rate, time
//! to the first token, and create, on one model.
//!
//! Every round measures both in alternating order, and figures are compared within a round. Nothing
//! is asserted; the output reports whether targets are met. `LLB_ROUNDS` is the number of rounds,
//! `LLB_THREADS` the number of threads.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "measure/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;

use std::time::Instant;

use chat::Chat;
use measure::{Figures, timed};
use serde_json::json;

const DECODED: usize = 96;

/// Generates one reply. Returns the milliseconds to the first piece, and the tokens per second
/// after it.
fn reply(chat: &Chat, salt: usize) -> (f64, f64) {
    let request = json!({
        "messages": [{ "role": "user", "content": format!("Story {salt}: tell of the sea.") }],
        "max_tokens": DECODED, "temperature": 0, "logit_bias": { "151645": -100 },
        "cache_prompt": false,
    });
    let (request, mut times) = (request.to_string(), Vec::new());
    let start = Instant::now();
    let reply = chat.stream(&request, |_| times.push(Instant::now()));
    assert!(reply["finish_reason"] == "length" && times.len() > 8, "{reply}");
    let (first, last) = (times[0], times[times.len() - 1]);
    let seconds = (last - first).as_secs_f64();
    ((first - start).as_secs_f64() * 1000.0, (times.len() - 1) as f64 / seconds)
}

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 11);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let open = |isolation: &str| {
        let options = json!({
            "model": path, "n_ctx": 2048, "n_threads": threads, "isolation": isolation,
        });
        let (took, chat) = timed(|| Chat::open(&options));
        (took.as_secs_f64() * 1000.0, chat)
    };
    let [mut rate, mut first, mut create]: [[Figures; 2]; 3] = Default::default();
    for round in 0..rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let (opened, chat) = open(["none", "process"][which]);
            // The first reply also loads pages of the model into memory.
            reply(&chat, 1000 + round);
            let (first_piece, decoded) = reply(&chat, round);
            create[which].push(opened);
            first[which].push(first_piece);
            rate[which].push(decoded);
        }
    }
    let difference = |figures: &[Figures; 2]| {
        Figures(figures[1].0.iter().zip(&figures[0].0).map(|(there, here)| there - here).collect())
    };
    println!(
        "isolation: {rounds} rounds, {}, {threads} threads; medians",
        measure::file_name(&path)
    );
    println!("                    in process    isolated");
    let row = |name: &str, figures: &[Figures; 2], unit: &str| {
        let [here, there] = [0, 1].map(|which| measure::counted(name, figures[which].median()));
        println!("{name:<18} {here:>10.2} {there:>11.2}  {unit}");
    };
    row("decode", &rate, "tokens/s");
    row("first token", &first, "ms");
    row("create", &create, "ms");
    let ratio = rate[1].over(&rate[0]).median();
    let later = difference(&first).median();
    println!("decode ratio by round {ratio:.3} (at least 0.9: {})", met(ratio >= 0.9));
    println!("first token later by {later:.2} ms (at most 5: {})", met(later <= 5.0));
    println!("create later by {:.1} ms", difference(&create).median());
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
