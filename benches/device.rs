//! Checks and measures llb on a device (a GPU): `make gpu-check MODEL=FILE`, with the file of the
//! device's backend (docs/backends.md). `device/random_model.py` writes a model for it.
//!
//! First the checks: placing layers by the memory that is free, settings, creations one after
//! another, a cancel and a time-out in a long prefill. Then a table of tokens per second over all
//! chats, with llama.cpp alone in the same run: `llama_decode` with fixed tokens, which is the
//! floor, and a loop over its samplers.
//!
//! Without a device it prints a line and ends. `LLB_ON_CPU=1` runs everything but the memory of the
//! device on the processor, to try the program itself. `LLB_CHATS` (1,16,64), `LLB_PROMPT` (700),
//! `LLB_DECODED` (128) and `LLB_LONG_PROMPT` (25000) set the sizes; `LLB_CHECKS=0` prints the table
//! alone. With `LLB_KV_UNIFIED=0`, each chat has cells of its own.
#![allow(unsafe_code, reason = "calls the C ABI and llama.cpp")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "device/chats.rs"]
mod chats;
#[path = "measure/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod measure;
#[path = "device/memory.rs"]
mod memory;
#[path = "measure/peer.rs"]
mod peer;
#[path = "device/sequences.rs"]
mod sequences;

use std::collections::BTreeMap;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use chat::Chat;
use chats::{Chats, prompt_of};
use llb::ffi;
use measure::{number, target, timed};
use memory::{Device, MIB};
use peer::Sampling;
use sequences::{NextToken, Sequences};
use serde_json::{Value, json};

/// The free memory in MiB on the device before a model is opened.
const FREE: [usize; 4] = [4000, 2500, 1200, 300];
const CREATIONS: usize = 20;
/// How many choices for a token are compared with the processor's.
const LIKELIEST: usize = 20;
/// The maximum memory in MiB that creations may leave behind on the device. The driver keeps some.
const LEFT_BEHIND: usize = 64;

fn main() {
    let device = Device::first();
    let on_cpu = std::env::var_os("LLB_ON_CPU").is_some();
    if device.is_none() && !on_cpu {
        println!("skipped: no device was found (LLB_ON_CPU=1 tries the program without one)");
        return;
    }
    let Some(model) = measure::model_path() else { return };
    match &device {
        Some(device) => println!("{}, {} MiB free", device.description(), device.free() / MIB),
        None => println!("no device: the processor"),
    }
    println!("{model}\n");
    if std::env::var("LLB_CHECKS").as_deref() != Ok("0") {
        if let Some(device) = &device {
            place(device, &model);
        }
        reply_with_each_setting(&model, device.is_some());
        create_often(device.as_ref(), &model);
        stop_a_prefill(&model);
    }
    print_rates(&model, device.as_ref().filter(|_| !on_cpu));
}

/// Opens the model with less and less free memory on the device.
fn place(device: &Device, model: &str) {
    println!("layers by free memory");
    for free in FREE {
        let Some(_held) = device.leave(free * MIB) else {
            println!("  {free} MiB: not checked, the device has less");
            continue;
        };
        let mut placed = "the processor alone".to_owned();
        let options = json!({ "model": model, "n_ctx": 4096, "tool_policy": "any", "log": "info" });
        let chat = Chat::open_with(&options, |event| {
            if let Some(text) = event.strip_prefix("log:info:n_gpu_layers: ") {
                placed = text.to_owned();
            }
        });
        let reply = chat.call(ffi::llb_chat_infer, &greedy("Name three rivers.", 16).to_string());
        target(&format!("{free} MiB: {placed}"), reply["finish_reason"].is_string());
    }
}

/// Compares the greedy text with that of the processor.
fn reply_with_each_setting(model: &str, has_device: bool) {
    println!("\nsettings");
    let mut request = greedy("Count from one to thirty in words.", 64);
    request["logprobs"] = json!(true);
    request["top_logprobs"] = json!(LIKELIEST);
    let request = request.to_string();
    let reply = |options: Value| {
        let mut all = json!({ "model": model, "n_ctx": 2048, "tool_policy": "any" });
        let more = options.as_object().expect("an object").clone();
        all.as_object_mut().expect("an object").extend(more);
        let reply = Chat::open(&all).call(ffi::llb_chat_infer, &request);
        (reply["text"].as_str().unwrap_or_default().to_owned(), first_token(&reply))
    };
    let (expected, likeliest) = reply(json!({ "n_gpu_layers": 0 }));
    let settings = [
        ("all on the device", json!({})),
        ("half of the layers", json!({ "n_gpu_layers": 12 })),
        ("no mmap", json!({ "use_mmap": false })),
        ("q8_0 cache", json!({ "cache_type_k": "q8_0", "cache_type_v": "q8_0" })),
    ];
    for (name, options) in settings {
        let (got, others) = reply(options);
        let common = got.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
        let whole = expected.chars().count();
        let differences: Vec<f64> = likeliest
            .iter()
            .filter_map(|(token, of_processor)| Some((others.get(token)? - of_processor).abs()))
            .collect();
        let largest = differences.iter().copied().fold(0.0, f64::max);
        // A different order of summation may change the choice of a token.
        let same = format!(
            "{name}: the first {common} of {whole} characters of the processor's; at the first token, \
             {} of its {LIKELIEST} likeliest, log probabilities within {largest:.3}",
            differences.len(),
        );
        target(&same, !has_device || differences.len() * 2 > LIKELIEST && largest < 0.5);
    }
}

/// The likeliest choices for the first token, with their log probabilities.
fn first_token(reply: &Value) -> BTreeMap<String, f64> {
    let listed = reply["logprobs"]["content"][0]["top_logprobs"].as_array();
    let each = |token: &Value| Some((token["bytes"].to_string(), token["logprob"].as_f64()?));
    listed.into_iter().flatten().filter_map(each).collect()
}

/// Opens and closes the model, and compares the free memory.
fn create_often(device: Option<&Device>, model: &str) {
    println!("\n{CREATIONS} creations");
    let free = || device.map_or(0, Device::free);
    let options = json!({ "model": model, "n_ctx": 2048, "tool_policy": "any" });
    let open = || drop(Chat::open(&options));
    // The first open loads the driver's code.
    open();
    let before = free();
    (0..CREATIONS).for_each(|_| open());
    let lost = before.saturating_sub(free()) / MIB;
    target(&format!("{lost} MiB of the device are not free again"), lost <= LEFT_BEHIND);
}

/// Cancels a long prefill, and ends another one by its time-out.
fn stop_a_prefill(model: &str) {
    let tokens = number("LLB_LONG_PROMPT", 25_000);
    println!("\na prefill of {tokens} tokens");
    let options = json!({ "model": model, "n_ctx": tokens + 512, "tool_policy": "any" });
    let chat = Chat::open(&options);
    let mut request = greedy(&prompt_of(&chat, tokens, 0), 1);
    let (cancelled, after) = scope(|scope| {
        let canceller = scope.spawn(|| {
            sleep(Duration::from_millis(100));
            let at = Instant::now();
            chat.cancel();
            at
        });
        let reply = chat.call(ffi::llb_chat_infer, &request.to_string());
        let ended = Instant::now();
        (reply, ended.saturating_duration_since(canceller.join().expect("no panic")))
    });
    let was_cancelled = cancelled["finish_reason"] == "cancelled";
    target(&format!("a cancel ends it within {} ms", after.as_millis()), was_cancelled);
    request["timeout_ms"] = json!(300);
    let (took, reply) = timed(|| chat.call(ffi::llb_chat_infer, &request.to_string()));
    let was_ended = reply["finish_reason"] == "cancelled";
    target(&format!("a time-out of 300 ms ends it after {} ms", took.as_millis()), was_ended);
}

fn greedy(text: &str, max_tokens: usize) -> Value {
    json!({
        "messages": [{ "role": "user", "content": text }],
        "temperature": 0, "max_tokens": max_tokens, "cache_prompt": false,
    })
}

/// Tokens per second over all chats.
fn print_rates(model: &str, device: Option<&Device>) {
    let (prompt, decoded) = (number("LLB_PROMPT", 700), number("LLB_DECODED", 128));
    let counts = std::env::var("LLB_CHATS").unwrap_or("1,16,64".into());
    let counts: Vec<usize> = counts.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    println!("\ntokens/s over all chats; prompts of about {prompt} tokens, {decoded} decoded");
    let show = |name: &str, rate| println!("  {name:<28}{:>9.1}", measure::counted(name, rate));
    for count in counts {
        println!("{count} chats");
        // Leaves room for the chat template and the tools.
        let n_ctx = count * (prompt + decoded + 256);
        {
            let mut peer = Sequences::open(model, count, n_ctx, device);
            peer.rate(prompt, 8, NextToken::Fixed);
            for (name, next) in [
                ("llama_decode alone", NextToken::Fixed),
                ("llama_decode, one by one", NextToken::FixedAfterLogits),
                ("llama.cpp, greedy", NextToken::Sampled(Sampling::Greedy)),
                ("llama.cpp, default sampler", NextToken::Sampled(Sampling::Default { seed: 7 })),
            ] {
                show(name, peer.rate(prompt, decoded, next));
            }
        }
        let layers = if device.is_some() { json!("auto") } else { json!(0) };
        let n_ctx = if kv_unified() { n_ctx } else { n_ctx / count };
        let chats = Chats::open(model, count, n_ctx, &layers);
        chats.rate(prompt, 8, &json!({ "temperature": 0 }));
        for (name, members) in [
            ("llb, temperature 0", json!({ "temperature": 0 })),
            ("llb, default sampler", json!({})),
            ("llb, tools and auto", json!({ "temperature": 0, "tools": tools() })),
        ] {
            show(name, chats.rate(prompt, decoded, &members));
        }
    }
}

/// Whether the chats share the cells of the KV cache, those of llama.cpp alone too.
fn kv_unified() -> bool {
    std::env::var("LLB_KV_UNIFIED").as_deref() != Ok("0")
}

fn tools() -> Value {
    json!([{ "type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.",
        "parameters": {
            "type": "object", "properties": { "city": { "type": "string" } },
            "required": ["city"],
        },
    } }])
}
