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
    name: String,
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
        measure::counted(&case.name, ratio.median()),
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

/// The cases, which `chats.py` reads too.
fn cases() -> Vec<Case> {
    let file: Value = serde_json::from_str(include_str!("calls/cases.json")).expect("JSON");
    let all = file["parameters"].as_array().expect("parameters");
    let cases = file["cases"].as_array().expect("cases");
    let case = |case: &Value| Case {
        name: case["name"].as_str().expect("a name").to_owned(),
        request: request(case, all),
        most: case["most"].as_f64(),
    };
    cases.iter().map(case).collect()
}

fn request(case: &Value, all: &[Value]) -> Value {
    let count = |name: &str| case[name].as_u64().unwrap_or_default() as usize;
    let mut request = json!({
        "messages": [{ "role": "user", "content": case["content"] }],
        "temperature": 0,
        "max_tokens": case.get("max_tokens").unwrap_or(&json!(160)),
    });
    let tools: Vec<Value> =
        (0..count("tools")).map(|at| tool(at, &parameters(&all[..count("parameters")]))).collect();
    if !tools.is_empty() {
        request["tools"] = tools.into();
        request["tool_choice"] = case.get("tool_choice").unwrap_or(&json!("auto")).clone();
    }
    if count("json") > 0 {
        request["response_format"] = json!({ "type": "json_schema", "json_schema": {
            "name": "trip", "schema": parameters(&all[..count("json")]) } });
    }
    request
}

fn tool(at: usize, parameters: &Value) -> Value {
    json!({ "type": "function", "function": {
        "name": format!("book_trip_{at}"),
        "description": "Books a trip.",
        "parameters": parameters,
    } })
}

/// The schema of an object with these properties, all required. Each is a name and a schema.
fn parameters(properties: &[Value]) -> Value {
    let required: Vec<&Value> = properties.iter().map(|property| &property[0]).collect();
    let name = |property: &Value| property[0].as_str().expect("a name").to_owned();
    let properties: serde_json::Map<String, Value> =
        properties.iter().map(|property| (name(property), property[1].clone())).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}
