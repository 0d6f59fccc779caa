//! Measures the reply parser: nanoseconds per token of about four characters, how they grow with
//! the length of a reply, and the cost of creating a parser.
//!
//! Replies are fed token by token. The time is the thread's processor time on Unix, and wall time
//! elsewhere. Nothing is asserted. `LLB_ROUNDS` is the number of rounds.
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

#[allow(dead_code, reason = "no model is used here")]
#[path = "measure/mod.rs"]
mod measure;

use llb::output::{Format, ReplyParser, ReplyParserInput, families};
use measure::Figures;
use serde_json::{Value, json};
use std::sync::Arc;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// The target: nanoseconds per token.
const TARGET: f64 = 2_000.0;

/// A kind of reply: the family that writes it, and a function that makes one of a given size.
struct Kind {
    name: &'static str,
    family: &'static str,
    reply: fn(usize) -> String,
}

const KINDS: [Kind; 7] = [
    Kind { name: "plain text", family: "hermes", reply: prose },
    Kind { name: "text without a format", family: "", reply: prose },
    Kind {
        name: "reasoning, text",
        family: "hermes",
        reply: |bytes| format!("<think>\n{}\n</think>\n\n{}", prose(bytes / 2), prose(bytes / 2)),
    },
    Kind {
        name: "hermes, one call",
        family: "hermes",
        reply: |bytes| {
            format!(
                "<tool_call>\n{{\"name\": \"write\", \"arguments\": {{\"text\": {}}}}}\n</tool_call>",
                Value::from(prose(bytes))
            )
        },
    },
    Kind {
        name: "qwen-xml, long string",
        family: "qwen-xml",
        reply: |bytes| {
            format!(
                "<tool_call>\n<function=write>\n<parameter=text>\n{}\n</parameter>\n</function>\n</tool_call>",
                code(bytes)
            )
        },
    },
    Kind {
        name: "gemma4, pairs",
        family: "gemma4",
        reply: |bytes| {
            let pairs: Vec<String> =
                (0..bytes / 24).map(|n| format!("key{n}:<|\"|>value {n}<|\"|>")).collect();
            format!("<|tool_call>call:write{{{}}}<tool_call|>", pairs.join(","))
        },
    },
    Kind {
        name: "harmony",
        family: "harmony",
        reply: |bytes| {
            let third = bytes / 3;
            format!(
                "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|end|><|start|>assistant<|channel|>commentary to=functions.write <|constrain|>json<|message|>{{\"text\": {}}}<|call|>",
                prose(third),
                prose(third),
                Value::from(prose(third))
            )
        },
    },
];

fn prose(bytes: usize) -> String {
    "It was a bright cold day in April, and the clocks were striking thirteen; 3 < 4, said \"he\".\n"
        .chars()
        .cycle()
        .take(bytes)
        .collect()
}

fn code(bytes: usize) -> String {
    "if (a < b && c > d) {\n    print(\"<b>\" + x + \"</b>\");\n}\n"
        .chars()
        .cycle()
        .take(bytes)
        .collect()
}

fn main() {
    let rounds = measure::number("LLB_ROUNDS", 9);
    let families = families();
    let parameters = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let tools = Arc::new(vec![
        json!({ "type": "function", "function": { "name": "write", "parameters": parameters } }),
    ]);
    measure::heading("per token, ns");
    let mut worst: f64 = 0.0;
    for kind in KINDS {
        let format = families.iter().find(|format| format.family == kind.family);
        assert!(format.is_some() || kind.family.is_empty(), "unknown family {}", kind.family);
        let mut sizes: [Figures; 3] = Default::default();
        for (figures, tokens) in sizes.iter_mut().zip(SIZES) {
            let reply = (kind.reply)(tokens * 4);
            for _ in 0..rounds {
                let (time, count) = timed(|| run(format, &tools, &reply));
                figures.push(time * 1e9 / count as f64);
            }
            measure::row(&format!("{}, {tokens} tokens", kind.name), figures);
            worst = worst.max(figures.median());
        }
        measure::row("  100,000 tokens over 1,000", &sizes[2].over(&sizes[0]));
    }
    measure::target(&format!("every token under {TARGET} ns"), worst < TARGET);
    measure::heading("ReplyParser::new, us");
    for family in ["hermes", "qwen-xml", "gemma4", "harmony", "kimi-k2"] {
        let format = families.iter().find(|format| format.family == family);
        let mut figures = Figures::default();
        for _ in 0..rounds {
            let (time, ()) = timed(|| (0..100).for_each(|_| drop(reply_parser(format, &tools))));
            figures.push(time * 1e6 / 100.0);
        }
        measure::row(family, &figures);
    }
}

fn reply_parser(format: Option<&Format>, tools: &Arc<Vec<Value>>) -> ReplyParser {
    ReplyParser::new(ReplyParserInput {
        format,
        tools: Arc::clone(tools),
        calls_allowed: true,
        reasoning: true,
        json: false,
        parallel: true,
        new_id: Box::new(|| "id".to_owned()),
    })
}

/// Returns the processor seconds of a call, and its result.
#[cfg(unix)]
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    use rustix::time::{ClockId, clock_gettime};
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    };
    let start = now();
    let result = run();
    (now() - start, result)
}

#[cfg(not(unix))]
fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let (time, result) = measure::timed(run);
    (time.as_secs_f64(), result)
}

/// Feeds a reply in tokens of four characters. Returns the number of tokens.
fn run(format: Option<&Format>, tools: &Arc<Vec<Value>>, reply: &str) -> usize {
    let mut parser = reply_parser(format, tools);
    let mut tokens = 0;
    let mut rest = reply;
    while !rest.is_empty() {
        let (token, after) = rest
            .split_at((4..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len()));
        std::hint::black_box(parser.push(token));
        rest = after;
        tokens += 1;
    }
    std::hint::black_box(parser.finish());
    tokens
}
