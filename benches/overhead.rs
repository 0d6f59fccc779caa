//! Measures the cost of a call in addition to the model's time, and the memory of further chats and
//! requests.
//!
//! - The cost of a call: the wall time of `llb_chat_infer` minus the time that the engine reports
//!   from admission to the end. The conversation has 20 messages, all but the last token are
//!   cached, and the reply is one token. The remaining time is spent on reading the request,
//!   rendering, tokenizing, waking the engine and writing the reply. The lower bound is the same
//!   figure for the shortest loop over llama.cpp on a separate thread with two channels, which
//!   decodes the same tokens: two threads that wake each other. It alternates with llb, and the
//!   difference is the cost of the ABI. Further rows are the processor time of the calling thread,
//!   which depends less on other processes, the same with ten tools, and the stages of that thread.
//! - Memory: the resident size after one chat, after eight, and over 1,000 requests after a warm-up
//!   of 200.
//! - The time to the first token of a second turn after a prompt of about 1,000 tokens, compared
//!   with that of the first turn.
//!
//! `LLB_ROUNDS` is the number of calls for the first figure, `LLB_THREADS` the number of threads.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "measure/mod.rs"]
mod measure;
#[path = "measure/peer.rs"]
mod peer;
#[path = "overhead/stages.rs"]
mod stages;

use std::sync::mpsc::{Receiver, Sender, channel};

use chat::Chat;
use llb::ffi;
use measure::{Figures, heading, row, target, timed};
use peer::{Peer, Run, Sampling};
use serde_json::{Value, json};

const MESSAGES: usize = 20;
const N_CTX: u32 = 8192;
const MAX_MICROSECONDS: f64 = 100.0;
const MAX_GROWTH_MIB: f64 = 1.0;
const MIN_TURN_RATIO: f64 = 20.0;

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 300);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let options = json!({ "model": path, "n_threads": threads, "n_ctx": N_CTX, "n_parallel": 8 });
    println!("{rounds} calls, {}, {threads} threads", measure::file_name(&path));
    let before = resident_mib();
    let chat = Chat::open(&options);
    let explained = chat.call(ffi::llb_chat_explain, &request(MESSAGES));
    let floor = Floor::open(
        &path,
        threads,
        explained["prompt"].as_str().expect("an explanation has the prompt"),
    );
    calls(&chat, &floor, rounds);
    drop(floor);
    stages::stages(&path, &request(MESSAGES), rounds);
    turns(&chat);
    memory(&chat, &options, before);
}

/// The cost of a call in addition to the model's time.
fn calls(chat: &Chat, floor: &Floor, rounds: usize) {
    let request = request(MESSAGES);
    let (mut outside, mut own) = (Figures::default(), Figures::default());
    let (mut bare, mut above) = (Figures::default(), Figures::default());
    let (mut explained, mut explained_own) = (Figures::default(), Figures::default());
    for round in 0..=rounds {
        let (took, reply) = chat.timed(ffi::llb_chat_infer, &request);
        let inside = milliseconds(&reply, "prompt_ms") + milliseconds(&reply, "predicted_ms");
        let floor = floor.outside();
        let (alone, explanation) = chat.timed(ffi::llb_chat_explain, &request);
        if round > 0 {
            let (prompt, cached) =
                (count(&reply["usage"], "prompt_tokens"), &reply["usage"]["prompt_tokens_details"]);
            assert_eq!(
                count(cached, "cached_tokens") + 1,
                prompt,
                "all but the last token is cached"
            );
            assert_eq!(explanation["prompt_tokens"], prompt);
            outside.push(took.wall * 1e6 - inside * 1e3);
            bare.push(floor);
            above.push(took.wall * 1e6 - inside * 1e3 - floor);
            own.push(took.thread * 1e6);
            explained.push(alone.wall * 1e6);
            explained_own.push(alone.thread * 1e6);
        }
    }
    heading(&format!("a call of {MESSAGES} messages, microseconds"));
    row("infer, without the model", &outside);
    row("  processor time of the calling thread", &own);
    row("explain, the whole call", &explained);
    row("  processor time of the calling thread", &explained_own);
    row("infer with ten tools, without the model", &tooled(chat, rounds));
    row("a loop over llama.cpp and two channels", &bare);
    row("infer minus that loop, by round", &above);
    let median = above.median();
    target(&format!("at most {MAX_MICROSECONDS}: {median:.1}"), median <= MAX_MICROSECONDS);
}

/// The cost of a call with tools, which agents send with every request.
fn tooled(chat: &Chat, rounds: usize) -> Figures {
    let argument = |about: &str| json!({ "type": "string", "description": format!("{about}, told in a sentence or so.") });
    let tool = |index: usize| {
        let properties = json!({ "path": argument("The file to look at"), "query": argument("What to look for") });
        let parameters =
            json!({ "type": "object", "properties": properties, "required": ["path"] });
        let description = "Looks for something and returns the places where it is, the best first.";
        json!({ "type": "function", "function": { "name": format!("tool_{index}"), "description": description, "parameters": parameters } })
    };
    let mut request: Value = serde_json::from_str(&request(MESSAGES)).expect("JSON");
    request["tools"] = (0..10).map(tool).collect();
    let request = request.to_string();
    let mut figures = Figures::default();
    for round in 0..=rounds {
        let (took, reply) = chat.timed(ffi::llb_chat_infer, &request);
        let inside = milliseconds(&reply, "prompt_ms") + milliseconds(&reply, "predicted_ms");
        if round > 0 {
            figures.push(took.wall * 1e6 - inside * 1e3);
        }
    }
    figures
}

/// The shortest loop over llama.cpp on a separate thread. One channel starts it, and another
/// returns the result. Every engine with a thread takes at least as long.
struct Floor {
    start: Sender<()>,
    results: Receiver<Option<Run>>,
}

impl Floor {
    /// Creates a loop for this prompt, with all but the last token cached.
    fn open(path: &str, threads: usize, prompt: &str) -> Floor {
        let (start, starts) = channel();
        let (result, results) = channel();
        let (path, prompt) = (path.to_owned(), prompt.to_owned());
        std::thread::spawn(move || {
            let mut peer = Peer::open(&path, threads as u32, N_CTX, 512, false);
            let tokens = peer.tokenize(&prompt);
            let mut kept = false;
            for () in starts {
                let run =
                    peer.stream(&tokens, Sampling::Greedy, 1, kept, |_| drop(result.send(None)));
                kept = true;
                drop(result.send(Some(run)));
            }
        });
        Floor { start, results }
    }

    /// The time of one token in microseconds, without the model's share.
    fn outside(&self) -> f64 {
        let (wall, run) = timed(|| {
            self.start.send(()).expect("the thread lives");
            self.results.iter().flatten().next().expect("a reply")
        });
        (wall.as_secs_f64() - run.prompt - run.predicted) * 1e6
    }
}

/// Measures the time to the first token of a second turn.
fn turns(chat: &Chat) {
    let (mut first, mut second) = (Figures::default(), Figures::default());
    for round in 0..5 {
        let shelves: String = (1..=60)
            .map(|shelf| format!("Shelf {shelf} of hall {round}: {} boxes.\n", shelf * 7 % 41))
            .collect();
        let mut messages = vec![
            json!({ "role": "user", "content": format!("{shelves}How many shelves are there?") }),
        ];
        let ask = |messages: &[Value]| {
            let request = json!({ "messages": messages, "max_tokens": 8, "temperature": 0 });
            chat.call(ffi::llb_chat_infer, &request.to_string())
        };
        let reply = ask(&messages);
        messages.push(reply["message"].clone());
        messages.push(json!({ "role": "user", "content": "And boxes?" }));
        let next = ask(&messages);
        if round > 0 {
            let times = [&reply, &next].map(|reply| milliseconds(reply, "prompt_ms"));
            first.push(times[0]);
            second.push(times[1]);
        }
    }
    heading("the first token after 1,000 tokens, ms");
    row("of a first turn", &first);
    row("of a second one", &second);
    let ratios = first.over(&second);
    row("ratio, by round", &ratios);
    let median = ratios.median();
    target(&format!("at least {MIN_TURN_RATIO}: {median:.1}"), median >= MIN_TURN_RATIO);
}

/// Measures resident memory after more chats, and after many requests.
fn memory(chat: &Chat, options: &Value, before: f64) {
    let one = resident_mib();
    let more: Vec<Chat> = (0..7).map(|_| Chat::open(options)).collect();
    let eight = resident_mib();
    // A request that uses every path of the pipeline, with few tokens.
    let request = |index: usize| {
        let mut request = json!({ "messages": [{ "role": "user", "content": format!("Say {index}.") }], "max_tokens": 2, "seed": index });
        match index % 4 {
            1 => request["response_format"] = json!({ "type": "json_object" }),
            2 => request["logprobs"] = true.into(),
            3 => request["temperature"] = 0.into(),
            _ => {}
        }
        request.to_string()
    };
    let run = |from: usize, to: usize| {
        for index in from..to {
            let chat = more.get(index % 8).unwrap_or(chat);
            chat.call(ffi::llb_chat_infer, &request(index));
        }
    };
    run(0, 200);
    let warm = resident_mib();
    run(200, 1200);
    let after = resident_mib();
    println!(
        "\nresident, MiB: {before:.1} at first, {one:.1} after one chat and its calls, {eight:.1} with eight, {warm:.1} after 200 requests, {after:.1} after 1,200"
    );
    target(
        &format!("1,000 requests add at most {MAX_GROWTH_MIB} MiB: {:.2}", after - warm),
        after - warm <= MAX_GROWTH_MIB,
    );
}

fn request(messages: usize) -> String {
    let say = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "role": role, "content": format!("Message {index}: what was said here is about as long as people write.") })
    };
    let messages: Vec<Value> = (0..messages - 1)
        .map(say)
        .chain([json!({ "role": "user", "content": "Go on." })])
        .collect();
    json!({ "messages": messages, "max_tokens": 1, "temperature": 0 }).to_string()
}

fn milliseconds(reply: &Value, name: &str) -> f64 {
    reply["timings"][name].as_f64().expect("a reply has timings")
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().expect("a count")
}

/// The resident size of this process, in MiB.
fn resident_mib() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages =
        pages.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok()).unwrap_or(f64::NAN);
    // SAFETY: a query that touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * size as f64 / f64::from(1 << 20)
}
