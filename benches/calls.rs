//! Measures replies whose text is partly certain: tool calls and JSON, with drafts ("auto") and
//! without ("off"), and replies that must not become slower.
//!
//! Both chats run in this process and answer the same requests, in alternating order. The prompts
//! are cached, so a call computes little more than its reply. A step is a decode: the reply's tokens
//! without the accepted drafts. Nothing is asserted about times; the output reports whether targets
//! are met. Replies must be equal.
//!
//! Environment variables: `LLB_ROUNDS` is the number of rounds, `LLB_THREADS` the number of threads,
//! `LLB_CASES` a part of the names of the cases to run.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]
#![allow(dead_code, reason = "uses a part of what the benches share")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "measure/mod.rs"]
mod measure;

use chat::Chat;
use llb::ffi;
use measure::{Figures, target};
use serde_json::{Value, json};

/// A request, and the greatest share of the time of "off" that it may take.
struct Case {
    name: &'static str,
    request: Value,
    most: Option<f64>,
}

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 7);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let only = std::env::var("LLB_CASES").unwrap_or_default();
    let open = |speculative: &str| {
        Chat::open(&json!({
            "model": path,
            "n_ctx": 4096,
            "n_parallel": 1,
            "n_threads": threads,
            "speculative": speculative,
        }))
    };
    let chats = [open("off"), open("auto")];
    println!("{}: {rounds} rounds, {threads} threads\n", measure::file_name(&path));
    println!(
        "{:28}{:>7}{:>11}{:>8}{:>10}{:>10}{:>8}{:>8}{:>8}",
        "", "tokens", "steps off", "auto", "ms off", "ms auto", "ratio", "min", "max"
    );
    let cases = cases();
    for case in cases.iter().filter(|case| case.name.contains(&only)) {
        run(case, &chats, rounds);
    }
}

fn run(case: &Case, chats: &[Chat; 2], rounds: usize) {
    let request = case.request.to_string();
    let mut times = [Figures::default(), Figures::default()];
    let mut replies = [Value::Null, Value::Null];
    // The round before the first is a warm-up, and computes the prompt.
    for round in 0..=rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for arm in order {
            let (took, reply) = chats[arm].timed(ffi::llb_chat_infer, &request);
            if round > 0 {
                times[arm].push(took.wall * 1000.0);
            }
            replies[arm] = reply;
        }
    }
    let tokens = |reply: &Value| reply["usage"]["completion_tokens"].as_u64().unwrap_or_default();
    let steps = |reply: &Value| {
        tokens(reply) - reply["timings"]["draft_n_accepted"].as_u64().unwrap_or_default()
    };
    let ratio = times[1].over(&times[0]);
    println!(
        "{:28}{:>7}{:>11}{:>8}{:>10.1}{:>10.1}{:>8.3}{:>8.3}{:>8.3}",
        case.name,
        tokens(&replies[1]),
        steps(&replies[0]),
        steps(&replies[1]),
        times[0].median(),
        times[1].median(),
        measure::counted(case.name, ratio.median()),
        ratio.min(),
        ratio.max()
    );
    if written(&replies[0]) != written(&replies[1]) {
        println!("  the replies differ: {}\n  {}", written(&replies[0]), written(&replies[1]));
    }
    if let Some(most) = case.most {
        let text = format!("at most {most} of off: {:.3}", ratio.median());
        target(&text, ratio.median() <= most);
    }
}

/// What the model wrote, without the ids of calls, which are new in every reply.
fn written(reply: &Value) -> Value {
    let calls = reply["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<Value> = calls.map(|call| json!([call["name"], call["arguments"]])).collect();
    json!([reply["text"], calls])
}

fn cases() -> Vec<Case> {
    let forced = |count| json!({ "tools": [tool("book_trip", count)], "tool_choice": "required" });
    let auto = |count: usize| {
        let tools: Vec<Value> = (0..count).map(|at| tool(&format!("book_trip_{at}"), 3)).collect();
        json!({ "tools": tools })
    };
    let trip = "Book a trip for Ann Lee from Paris to Rome on 2026-05-04: two adults, one child, \
                second class, a window seat, by train, no pets, and send it to ann@example.com.";
    let hello = "Write a short story about a lighthouse keeper and a storm.";
    let edit = format!("{}\nWrite this code again, with `total` renamed to `sum`.", code());
    let json_reply = json!({ "response_format": { "type": "json_schema", "json_schema": {
        "name": "trip", "schema": parameters(10) } } });
    let case = |name, content: &str, members: Value, most| Case {
        name,
        request: request(content, &members),
        most,
    };
    vec![
        case("forced call, 1 parameter", trip, forced(1), None),
        case("forced call, 3 parameters", trip, forced(3), Some(0.5)),
        case("forced call, 10 parameters", trip, forced(10), None),
        case("auto, 1 tool, a call", trip, auto(1), None),
        case("auto, 20 tools, a call", trip, auto(20), None),
        case("auto, 1 tool, text", hello, auto(1), Some(1.01)),
        case("JSON, 10 properties", trip, json_reply, Some(0.6)),
        case("text", hello, json!({}), Some(1.01)),
        case("edit of 60 lines", &edit, json!({ "max_tokens": 300 }), None),
    ]
}

fn request(content: &str, members: &Value) -> Value {
    let mut request = json!({
        "messages": [{ "role": "user", "content": content }],
        "temperature": 0,
        "max_tokens": 160,
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request
}

/// A tool with this many required parameters.
fn tool(name: &str, count: usize) -> Value {
    json!({ "type": "function", "function": {
        "name": name,
        "description": "Books a trip.",
        "parameters": parameters(count),
    } })
}

fn parameters(count: usize) -> Value {
    let all = [
        ("destination", json!({ "type": "string" })),
        ("departure_date", json!({ "type": "string", "format": "date" })),
        ("travel_class", json!({ "enum": ["first class", "second class"] })),
        ("origin", json!({ "type": "string" })),
        ("passenger_name", json!({ "type": "string" })),
        ("number_of_adults", json!({ "type": "integer" })),
        ("number_of_children", json!({ "type": "integer" })),
        ("seat_preference", json!({ "enum": ["window", "aisle", "any"] })),
        ("has_pets", json!({ "type": "boolean" })),
        ("confirmation_email", json!({ "type": "string" })),
    ];
    let required: Vec<&str> = all[..count].iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        all[..count].iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Sixty lines of code.
fn code() -> String {
    let mut text = String::new();
    for at in 0..12 {
        text += &format!(
            "def add_{at}(values):\n    total = {at}\n    for value in values:\n        total += value\n    return total\n"
        );
    }
    text
}
