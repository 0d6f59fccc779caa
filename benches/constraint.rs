//! Measures the cost of a grammar: decode speed with tools, with a forced call, and with the same
//! prompt without tools.
//!
//! The request without tools has a system message that makes its prompt the same, byte for byte, as
//! that of the request with tools. Both give the same reply, with greedy sampling and with the
//! default sampler; the benchmark asserts this. The forced call writes one long string. Every round
//! measures all requests in rotating order. Speeds are not asserted; the output reports whether
//! targets are met.
//!
//! Environment variables: `LLB_ROUNDS` is the number of rounds, `LLB_THREADS` the number of
//! threads.
#![allow(unsafe_code, reason = "calls the C ABI")]
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[path = "measure/chat.rs"]
mod chat;
#[path = "measure/mod.rs"]
mod measure;

use chat::{Chat, cpu_seconds};
use llb::ffi;
use measure::{Figures, heading, row, target, timed};
use serde_json::{Value, json};

/// The number of tokens that are decoded after the first.
const DECODED: usize = 96;
const QUESTION: &str =
    "Tell me a long story about a lighthouse, a storm and a cat. At least 500 words.";
const MIN_AUTO: f64 = 0.98;
const MIN_REQUIRED: f64 = 0.97;

const NAMES: [&str; 5] = [
    "plain, greedy",
    "tools and auto, greedy",
    "plain, default sampler",
    "tools and auto, default",
    "required, greedy",
];

fn main() {
    let Some(path) = measure::model_path() else { return };
    let rounds = measure::number("LLB_ROUNDS", 9);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = measure::number("LLB_THREADS", cores);
    let (opened, chat) =
        timed(|| Chat::open(&json!({ "model": path, "n_ctx": 4096, "n_threads": threads })));
    println!(
        "a grammar's cost: {rounds} rounds, {}, {threads} threads, {DECODED} decoded; opened in {:.2} s",
        measure::file_name(&path),
        opened.as_secs_f64()
    );
    let requests = requests(&chat);
    let mut speeds: [Measured; 5] = Default::default();
    // The round before the first is a warm-up.
    for round in 0..=rounds {
        let mut texts: [String; 5] = Default::default();
        let mut order = [0, 1, 2, 3, 4];
        order.rotate_left(round % 5);
        if round % 2 == 1 {
            order.reverse();
        }
        for which in order {
            let [short, long] = [1, 1 + DECODED].map(|n| run(&chat, &requests[which], n));
            assert_eq!(
                long.generated,
                1 + DECODED,
                "{} reaches max_tokens: {}",
                NAMES[which],
                long.text
            );
            texts[which].clone_from(&long.text);
            if round > 0 {
                speeds[which].wall.push(DECODED as f64 / long.predicted);
                speeds[which].cpu.push(DECODED as f64 / (long.cpu - short.cpu));
            }
        }
        assert_eq!(
            (&texts[0], &texts[2]),
            (&texts[1], &texts[3]),
            "tools that are not called do not change the text"
        );
        if round > 0 {
            let last: Vec<_> = speeds
                .iter()
                .map(|speed| format!("{:.1}", speed.wall.0.last().unwrap_or(&f64::NAN)))
                .collect();
            println!("{round:>5} {}", last.join("  "));
        }
    }
    heading("decode, tokens/s");
    NAMES.iter().zip(&speeds).for_each(|(name, speed)| row(name, &speed.wall));
    heading("decode, tokens/s of processor time");
    NAMES.iter().zip(&speeds).for_each(|(name, speed)| row(name, &speed.cpu));
    heading("ratio to the request without tools, by round");
    for (which, plain, least) in [(1, 0, MIN_AUTO), (3, 2, MIN_AUTO), (4, 0, MIN_REQUIRED)] {
        let wall = speeds[which].wall.over(&speeds[plain].wall);
        let cpu = speeds[which].cpu.over(&speeds[plain].cpu);
        row(NAMES[which], &wall);
        row("  by processor time", &cpu);
        let median = wall.median();
        target(
            &format!(
                "{}: at least {least}: {median:.3} (processor time {:.3})",
                NAMES[which],
                cpu.median()
            ),
            median >= least,
        );
    }
}

#[derive(Default)]
struct Measured {
    wall: Figures,
    /// Tokens per second of processor time, over all threads.
    cpu: Figures,
}

struct Run {
    cpu: f64,
    /// The time from the first token to the last, in seconds.
    predicted: f64,
    generated: usize,
    text: String,
}

fn tools() -> Value {
    let place = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "latitude": { "type": "number", "minimum": -90, "maximum": 90 },
            "longitude": { "type": "number", "minimum": -180, "maximum": 180 },
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let tool = |name: &str, properties: Value, required: Value| {
        let parameters = json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
    };
    json!([
        tool(
            "get_weather",
            json!({ "place": place, "unit": { "enum": ["celsius", "fahrenheit"] } }),
            json!(["place"])
        ),
        tool(
            "plan_route",
            json!({ "stops": { "type": "array", "items": place, "minItems": 2 } }),
            json!(["stops"])
        ),
        tool("tell_story", json!({ "story": { "type": "string" } }), json!(["story"])),
    ])
}

/// In the order of [`NAMES`].
fn requests(chat: &Chat) -> [Value; 5] {
    let user = json!({ "role": "user", "content": QUESTION });
    let greedy = json!({ "messages": [user], "tools": tools(), "temperature": 0, "parse_special_in_messages": true });
    let explained = chat.call(ffi::llb_chat_explain, &greedy.to_string());
    let prompt = explained["prompt"].as_str().expect("an explanation has the prompt");
    let system = prompt
        .split_once("<|im_start|>system\n")
        .and_then(|(_, rest)| rest.split_once("<|im_end|>"));
    let system = system.expect("Qwen's template puts the tools into a system message").0;
    let mut plain = greedy.clone();
    plain["messages"] = json!([{ "role": "system", "content": system }, user]);
    plain["tools"] = json!([]);
    assert_eq!(
        chat.call(ffi::llb_chat_explain, &plain.to_string())["prompt"],
        prompt,
        "the same prompt"
    );
    let sampled = |request: &Value| {
        let mut request = request.clone();
        request["temperature"] = Value::from(0.7);
        request["seed"] = 7.into();
        request
    };
    let mut required = greedy.clone();
    required["tool_choice"] = json!({ "type": "function", "function": { "name": "tell_story" } });
    required["parallel_tool_calls"] = false.into();
    let [sampled_plain, sampled_auto] = [&plain, &greedy].map(sampled);
    [plain, greedy, sampled_plain, sampled_auto, required]
}

fn run(chat: &Chat, request: &Value, max_tokens: usize) -> Run {
    let mut request = request.clone();
    request["max_tokens"] = max_tokens.into();
    let cpu = cpu_seconds();
    let reply = chat.call(ffi::llb_chat_infer, &request.to_string());
    let cpu = cpu_seconds() - cpu;
    Run {
        cpu,
        predicted: reply["timings"]["predicted_ms"].as_f64().expect("a reply has timings") / 1000.0,
        generated: reply["usage"]["completion_tokens"].as_u64().expect("a reply has usage")
            as usize,
        text: reply["text"].as_str().unwrap_or_default().to_owned(),
    }
}
