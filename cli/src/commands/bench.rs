//! `llb bench`: the speed of prefill and decode, for one chat and for several at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};

use crate::abi::{self, Chat};
use crate::arguments::Loading;
use crate::failure::{Failure, Result};
use crate::input::{print, print_json};
use crate::model_source::{HELP, model_file};
use crate::terminal::{columns, counted, spinner};
use crate::{interrupt, terminal};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    model: String,
    /// Number of words in the prompt; about as many tokens
    #[arg(long, value_name = "N", default_value_t = 256)]
    prompt_words: usize,
    /// Number of tokens in each reply
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    max_tokens: u32,
    /// Numbers of concurrent chats
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u8).range(1..=64))]
    chats: Vec<u8>,
    /// Number of runs for each; the best one counts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: Loading,
}

/// The chats to cancel on Ctrl-C.
type Running = Arc<Mutex<Vec<Arc<Chat>>>>;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let most = arguments.chats.iter().copied().max().unwrap_or(1);
    let path = model_file(&arguments.model)?;
    let mut options = arguments.loading.options(&path)?;
    options["n_parallel"] = most.into();
    let started = Instant::now();
    let chats: Vec<Arc<Chat>> = (0..most)
        .map(|_| Chat::open(&options, terminal::progress(&arguments.model)).map(Arc::new))
        .collect::<Result<_>>()?;
    let load = started.elapsed().as_secs_f64();
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let running: Running = Arc::new(Mutex::new(chats.clone()));
    let flag = Arc::clone(&is_cancelled);
    let cancel = move || {
        flag.store(true, Ordering::Relaxed);
        let chats = running.lock().unwrap_or_else(PoisonError::into_inner);
        chats.iter().for_each(|chat| chat.cancel());
    };
    let rows = interrupt::cancellable(cancel, || measure_all(arguments, &chats, &is_cancelled))?;
    let report = json!({
        "model": path, "version": abi::version(), "load_s": load, "results": rows,
    });
    if arguments.json {
        print_json(&report);
    } else {
        print(&table(&report));
    }
    Ok(())
}

fn measure_all(
    arguments: &Arguments,
    chats: &[Arc<Chat>],
    is_cancelled: &AtomicBool,
) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for &count in &arguments.chats {
        let bar = spinner(&counted(count.into(), "chat"));
        let mut best: Option<Value> = None;
        for _ in 0..arguments.runs {
            let row = measure(arguments, &chats[..count.into()])?;
            if is_cancelled.load(Ordering::Relaxed) {
                let mut failure = Failure::new("ended by Ctrl-C");
                failure.code = Some("CANCELLED".to_owned());
                return Err(failure);
            }
            let speed = |row: &Value| row["decode_per_second"].as_f64().unwrap_or_default();
            if best.as_ref().is_none_or(|best| speed(best) < speed(&row)) {
                best = Some(row);
            }
        }
        bar.finish_and_clear();
        rows.extend(best);
    }
    Ok(rows)
}

/// Runs one request on each chat at the same time.
fn measure(arguments: &Arguments, chats: &[Arc<Chat>]) -> Result<Value> {
    let started = Instant::now();
    let replies: Vec<Result<Value>> = thread::scope(|scope| {
        let calls: Vec<_> = chats
            .iter()
            .enumerate()
            .map(|(index, chat)| {
                scope.spawn(move || chat.infer(&request(arguments, index), |_| ()))
            })
            .collect();
        calls
            .into_iter()
            .map(|call| call.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked"))))
            .collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let replies: Vec<Value> = replies.into_iter().collect::<Result<_>>()?;
    let sum = |group: &str, name: &str| -> f64 {
        replies.iter().filter_map(|reply| reply[group][name].as_f64()).sum()
    };
    let (prompt, predicted) = (sum("usage", "prompt_tokens"), sum("usage", "completion_tokens"));
    let (prompt_ms, predicted_ms) = (sum("timings", "prompt_ms"), sum("timings", "predicted_ms"));
    let per_second = |tokens: f64, ms: f64| if ms > 0.0 { tokens / ms * 1000.0 } else { 0.0 };
    Ok(json!({
        "chats": chats.len(),
        "prompt_tokens": prompt,
        "completion_tokens": predicted,
        "seconds": seconds,
        "prefill_per_second": per_second(prompt, prompt_ms) * chats.len() as f64,
        "decode_per_second": per_second(predicted, predicted_ms) * chats.len() as f64,
        "decode_per_second_of_a_chat": per_second(predicted, predicted_ms),
    }))
}

/// Each chat gets a different prompt, so that none finds another's prompt in the cache.
fn request(arguments: &Arguments, index: usize) -> Value {
    const WORDS: [&str; 8] =
        ["river", "stone", "light", "number", "garden", "window", "paper", "north"];
    let word = |at: usize| WORDS[(at * (index + 1) + index) % WORDS.len()];
    let words: Vec<&str> = (0..arguments.prompt_words).map(word).collect();
    let text = format!("{index}. Write a long story with these words: {}", words.join(" "));
    json!({
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": arguments.max_tokens, "temperature": 0, "cache_prompt": false,
    })
}

fn table(report: &Value) -> String {
    let heading = ["chats", "prompt", "reply", "prefill t/s", "decode t/s", "each t/s", "seconds"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let number =
        |value: &Value, digits: usize| format!("{:.digits$}", value.as_f64().unwrap_or_default());
    for row in report["results"].as_array().into_iter().flatten() {
        rows.push(vec![
            row["chats"].to_string(),
            number(&row["prompt_tokens"], 0),
            number(&row["completion_tokens"], 0),
            number(&row["prefill_per_second"], 1),
            number(&row["decode_per_second"], 1),
            number(&row["decode_per_second_of_a_chat"], 1),
            number(&row["seconds"], 2),
        ]);
    }
    format!("{}load {} s\n", columns(&rows), number(&report["load_s"], 2))
}
