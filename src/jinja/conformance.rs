//! Small templates against what the real environment of transformers makes of them (tests/data/jinja).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::time::Duration;

use serde_json::Value as Json;

use super::{Bounds, Context, Template, Text};
use crate::template::{LocalTime, import_for_tests};

const CASES: &str = include_str!("../../tests/data/jinja/cases.jsonl");

fn bounds() -> Bounds {
    let memory_bytes = 32 << 20;
    Bounds { fuel: 50_000_000, output_bytes: 1 << 20, recursion: 500, memory_bytes, time: Duration::from_secs(60) }
}

fn run(case: &Json) -> Result<String, super::Error> {
    let template = Template::compile(case["source"].as_str().unwrap())?;
    let fixed = serde_json::json!({
        "messages": [{ "role": "user", "content": "x" }], "tools": null, "documents": null, "add_generation_prompt": false,
    });
    let given = case["vars"].as_object().into_iter().flatten();
    let variables = fixed.as_object().unwrap().iter().chain(given);
    let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
    let context = Context {
        variables: variables.map(|(name, json)| (Text::outer(name, Vec::new()), import_for_tests(json))).collect(),
        strftime_now: Some(Box::new(move |format| now.strftime(format))),
        log: None,
    };
    template.render(context, bounds()).map(|rendered| rendered.text)
}

#[test]
fn small_templates_as_transformers() {
    let mut differ = Vec::new();
    let mut count = 0;
    for line in CASES.split('\n').filter(|line| !line.is_empty()) {
        let case: Json = serde_json::from_str(line).unwrap();
        count += 1;
        let ours = run(&case);
        let equal = match (&ours, case["text"].as_str()) {
            (Ok(ours), Some(text)) => ours == text,
            (Err(_), None) => true,
            _ => false,
        };
        if !equal {
            let ours = ours.map_err(|error| format!("{error:?}"));
            differ.push(format!(
                "{}: {} {}\n  wants {} {}\n  has   {ours:?}",
                case["group"], case["source"], case["vars"], case["text"], case["error"]
            ));
        }
    }
    let _ = writeln!(std::io::stderr(), "small templates: {} of {count} as transformers", count - differ.len());
    if let Some(file) = std::env::var_os("LLB_CASES_OUT") {
        std::fs::write(file, differ.join("\n")).unwrap();
    }
    assert!(differ.is_empty(), "{} differ", differ.len());
}
