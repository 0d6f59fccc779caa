//! Measures decode and prefill on a busy machine: the number of threads that llb chooses against
//! each fixed number.
//!
//! At the same time 0, 1, 2 or 4 other processes compute without a pause. For each of these loads,
//! every round measures all numbers of threads in rotating order. A turn is one reply that is
//! cancelled after a fixed time, because some numbers of threads decode almost nothing. Then replies
//! are generated while the load changes. Their speed is measured from one second after the change.
//! Nothing is asserted; the output reports whether targets are met.
//!
//! Environment variables: `LLB_ROUNDS` is the number of rounds, `LLB_SECONDS` the time of a turn,
//! `LLB_BUSY` the loads (`0,4`), and `LLB_PREFILL` the number of rounds of prefill (0 for none).
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[allow(dead_code, reason = "nothing is timed here")]
#[path = "measure/mod.rs"]
mod measure;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use chat::Chat;
use llb::ffi;
use measure::{Figures, heading, row, target};
use serde_json::{Value, json};

const N_CTX: u32 = 4096;
/// The targets, as shares of the speed of the best fixed number: next to busy processes, and on a
/// quiet machine.
const MIN: f64 = 0.9;
const MIN_QUIET: f64 = 0.99;
/// The times in seconds before a change of the load, after it without measuring, and of the
/// measurement.
const BEFORE: f64 = 1.0;
const SETTLE: f64 = 1.0;
const COUNTED: f64 = 3.0;
/// How often each change is measured.
const CHANGES: usize = 5;
/// If this variable is set, the program becomes a busy process.
const SPIN: &str = "LLB_BENCH_SPIN";

fn main() {
    if std::env::var_os(SPIN).is_some() {
        spin();
    }
    let Some(path) = measure::model_path() else { return };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut fixed: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores).collect();
    fixed.push(cores);
    let loads = std::env::var("LLB_BUSY").unwrap_or("0,1,2,4".into());
    let loads: Vec<usize> = loads.split(',').filter_map(|load| load.parse().ok()).collect();
    let rounds = measure::number("LLB_ROUNDS", 7);
    let seconds = measure::number("LLB_SECONDS", 3);
    println!("threads on a busy machine: {path}, {cores} cores, {rounds} rounds of {seconds} s");

    let mut contestants = vec![Contestant::open("auto".into(), &path, json!("auto"))];
    let numbers = fixed.iter().map(|n| Contestant::open(format!("{n} threads"), &path, json!(n)));
    contestants.extend(numbers);
    let mut best = Vec::new();
    for &load in &loads {
        let _busy = Busy::start(load);
        let measure = |one: &Contestant| one.decode(seconds as f64);
        best.push(compare(
            &format!("decode beside {load} busy processes"),
            load,
            &contestants,
            rounds,
            &measure,
        ));
    }
    for &load in &loads {
        let rounds = std::env::var("LLB_PREFILL").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
        if rounds > 0 {
            let _busy = Busy::start(load);
            compare(
                &format!("prefill beside {load} busy processes"),
                load,
                &contestants,
                rounds,
                &Contestant::prefill,
            );
        }
    }
    changes(&contestants[0], &loads, &best);
}

/// A chat with a certain number of threads.
struct Contestant {
    name: String,
    chat: Chat,
}

impl Contestant {
    fn open(name: String, path: &str, n_threads: Value) -> Contestant {
        let options = json!({
            "model": path, "n_ctx": N_CTX, "n_parallel": 1, "n_threads": n_threads, "tool_policy": "any",
        });
        let chat = Chat::open(&options);
        // Computes the prompt, so that the turns of decode find it in the cache.
        chat.call(ffi::llb_chat_infer, &request(600.0, 1, true));
        Contestant { name, chat }
    }

    /// The speed in tokens per second, and the threads, of a reply that is cancelled after this
    /// time.
    fn decode(&self, seconds: f64) -> (f64, f64) {
        let reply = self.chat.call(ffi::llb_chat_infer, &request(seconds, 4000, true));
        let tokens = reply["usage"]["completion_tokens"].as_f64().expect("a reply has usage");
        let timings = &reply["timings"];
        let time = |name: &str| timings[name].as_f64().expect("a reply has timings") / 1000.0;
        (
            tokens / (time("prompt_ms") + time("predicted_ms")),
            timings["threads"].as_f64().unwrap_or(f64::NAN),
        )
    }

    /// The same figures for prefill.
    fn prefill(&self) -> (f64, f64) {
        let reply = self.chat.call(ffi::llb_chat_infer, &request(600.0, 1, false));
        let tokens = reply["usage"]["prompt_tokens"].as_f64().expect("a reply has usage");
        let ms = reply["timings"]["prompt_ms"].as_f64().expect("a reply has timings");
        (tokens / ms * 1000.0, reply["timings"]["threads"].as_f64().unwrap_or(f64::NAN))
    }
}

/// Prints the speeds of all contestants, and returns that of the best fixed number.
fn compare(
    title: &str,
    load: usize,
    contestants: &[Contestant],
    rounds: usize,
    measure: &dyn Fn(&Contestant) -> (f64, f64),
) -> f64 {
    let figures = || contestants.iter().map(|_| Figures::default()).collect::<Vec<_>>();
    let (mut speeds, mut threads) = (figures(), figures());
    for round in 0..rounds {
        for place in 0..contestants.len() {
            let index = (place + round) % contestants.len();
            let (speed, used) = measure(&contestants[index]);
            speeds[index].push(speed);
            threads[index].push(used);
        }
    }
    heading(&format!("{title}, tokens/s"));
    for (one, speeds) in contestants.iter().zip(&speeds) {
        row(&one.name, speeds);
    }
    row("threads of auto", &threads[0]);
    let best = speeds[1..].iter().max_by(|a, b| a.median().total_cmp(&b.median()));
    let best = best.expect("there are fixed numbers");
    row("auto / the best fixed number, by round", &speeds[0].over(best));
    let ratio = speeds[0].median() / best.median();
    let least = if load == 0 { MIN_QUIET } else { MIN };
    target(&format!("at least {least} of the best fixed number: {ratio:.3}"), ratio >= least);
    best.median()
}

/// Generates replies during which the load changes: between the smallest and each other load, in
/// both directions. A reply is as short as a turn, because decode slows down as the context grows.
fn changes(auto: &Contestant, loads: &[usize], best: &[f64]) {
    let Some((first, others)) = loads.split_first().zip(best.split_first()) else { return };
    let ((&quiet, others), (&best_quiet, best)) = (first, others);
    heading("replies while the load changes, tokens/s of auto from a second after the change");
    for (&load, &best) in others.iter().zip(best) {
        for (before, after, best) in [(quiet, load, best), (load, quiet, best_quiet)] {
            let mut speeds = Figures::default();
            (0..CHANGES).for_each(|_| speeds.push(speed_after(auto, before, after)));
            row(&format!("{before} to {after} busy"), &speeds);
            let ratio = speeds.median() / best;
            target(&format!("at least {MIN} of the best fixed number: {ratio:.3}"), ratio >= MIN);
        }
    }
}

/// The speed of a reply in tokens per second, from a second after the load has changed.
fn speed_after(auto: &Contestant, before: usize, after: usize) -> f64 {
    let earlier = Busy::start(before);
    let mut stamps: Vec<Instant> = Vec::new();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs_f64(BEFORE));
            drop(earlier);
            let _later = Busy::start(after);
            std::thread::sleep(Duration::from_secs_f64(SETTLE + COUNTED));
        });
        let seconds = BEFORE + SETTLE + COUNTED;
        auto.chat.stream(&request(seconds, 3500, true), |_| stamps.push(Instant::now()));
    });
    let from = start + Duration::from_secs_f64(BEFORE + SETTLE);
    let to = from + Duration::from_secs_f64(COUNTED);
    stamps.iter().filter(|stamp| (from..to).contains(stamp)).count() as f64 / COUNTED
}

/// A request for a reply that lasts longer than any turn.
fn request(seconds: f64, max_tokens: usize, cache_prompt: bool) -> String {
    let mut text = String::from("This is the list of a warehouse.\n");
    for shelf in 1..=20 {
        text += &format!("Shelf {shelf}: {} boxes, week {}.\n", shelf * 7 % 41 + 1, shelf % 13 + 1);
    }
    text += "Count from one to five thousand in words, with a comma after each number.";
    json!({
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": max_tokens,
        "cache_prompt": cache_prompt,
        "temperature": 0,
        "timeout_ms": (seconds * 1000.0) as u64,
    })
    .to_string()
}

/// Processes that compute without a pause. They end when this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Busy {
        let program = std::env::current_exe().expect("the path of this program");
        let start = |_| Command::new(&program).env(SPIN, "1").spawn().expect("a process");
        Busy((0..count).map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Computes until the program that started this process has ended.
fn spin() -> ! {
    let parent = std::os::unix::process::parent_id();
    let mut sum = 0_u64;
    while std::os::unix::process::parent_id() == parent {
        for n in 0..10_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
    std::process::exit(0)
}
