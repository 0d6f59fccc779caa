//! Tests small templates against the environment of transformers (tests/data/jinja) and against the
//! cases of llama.cpp's engine. The latter are in the shared conformance data; without it the test
//! reports what it skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::jinja::{Bounds, Budget, Context, Template, TemplateError};
use crate::template::LocalTime;
use crate::template::import::plain;
use crate::test_support::conformance::{folder, say, shows};

const CASES: &str = include_str!("../../../tests/data/jinja/cases.jsonl");
/// The known differences and their reasons: `{"source", "why"}`.
const DIFFERS: &str = include_str!("../../../tests/data/jinja/differs.jsonl");

/// Cases of llama.cpp, by name, whose expectation differs from transformers. transformers takes
/// precedence.
const BETTER: [(&str, &[&str]); 1] = [(
    "the sandbox of transformers keeps templates from changing the caller's lists",
    &[
        "array methods: array.append()",
        "array methods: array.pop() last",
        "array methods: array.pop() with index",
    ],
)];

fn lines(text: &str) -> impl Iterator<Item = Json> {
    // Split only at newlines, because texts contain other line separators.
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap())
}

fn run(source: &str, fixed: &Json, given: &Json) -> Result<String, TemplateError> {
    let template = Template::compile(source)?;
    let variables = fixed.as_object().into_iter().chain(given.as_object()).flatten();
    let now = LocalTime::parse("2026-01-31T09:30:00").unwrap();
    let context = Context {
        variables: variables.map(|(name, json)| (name.clone().into(), plain(json))).collect(),
        strftime_now: Some(Box::new(move |format| now.strftime(format))),
        log: None,
    };
    // The time limit is generous because time is not compared.
    let time = Duration::from_secs(60);
    let bounds = Bounds {
        fuel: 50_000_000,
        output_bytes: 1 << 20,
        recursion: 500,
        memory_bytes: 32 << 20,
        time,
    };
    template.render(context, &Budget::new(bounds)).map(|rendered| rendered.text)
}

/// Fails if an unlisted case differs, or if a listed case no longer differs.
#[track_caller]
fn check(
    what: &str,
    count: usize,
    differ: &BTreeMap<String, String>,
    known: &BTreeMap<String, String>,
) {
    say(&format!(
        "{what}: {} of {count} as expected, {} known to differ",
        count - differ.len(),
        known.len()
    ));
    if shows() {
        differ.iter().for_each(|(case, how)| say(&format!("{case:?}\n  {how}")));
    }
    let new: Vec<_> = differ.iter().filter(|(case, _)| !known.contains_key(*case)).collect();
    assert!(new.is_empty(), "{} differ: {:#?}", new.len(), &new[..new.len().min(10)]);
    let stale: Vec<_> = known.keys().filter(|case| !differ.contains_key(*case)).collect();
    assert!(stale.is_empty(), "these do not differ any more: {stale:#?}");
}

#[test]
fn small_templates_match_transformers() {
    let fixed = json!({
        "messages": [{ "role": "user", "content": "x" }], "tools": null, "documents": null, "add_generation_prompt": false,
    });
    let text = |json: &Json| json.as_str().unwrap().to_owned();
    let known = lines(DIFFERS).map(|line| (text(&line["source"]), text(&line["why"]))).collect();
    let (mut count, mut differ) = (0, BTreeMap::new());
    for case in lines(CASES) {
        count += 1;
        let ours = run(case["source"].as_str().unwrap(), &fixed, &case["vars"]);
        let equal = match (&ours, case["text"].as_str()) {
            (Ok(ours), Some(text)) => ours == text,
            (Err(_), None) => true,
            _ => false,
        };
        if !equal {
            differ.insert(
                text(&case["source"]),
                format!("wants {} {}, has {ours:?}", case["text"], case["error"]),
            );
        }
    }
    check("small templates of transformers", count, &differ, &known);
}

#[test]
fn small_templates_match_llama_cpp() {
    let Some(root) = folder("small templates of llama.cpp") else { return };
    let cases = std::fs::read_to_string(root.join("jinja-cases.jsonl")).unwrap();
    let named = |case: &Json| {
        format!("{}: {}", case["group"].as_str().unwrap(), case["name"].as_str().unwrap())
    };
    let known = BETTER
        .iter()
        .flat_map(|(why, cases)| cases.iter().map(|case| ((*case).to_owned(), (*why).to_owned())));
    let (mut count, mut differ) = (0, BTreeMap::new());
    for case in lines(&cases) {
        count += 1;
        let ours = run(case["template"].as_str().unwrap(), &Json::Null, &case["vars"]);
        if ours.as_ref().ok().map(String::as_str) != case["expect"].as_str() {
            differ.insert(
                named(&case),
                format!("{} wants {}, has {ours:?}", case["template"], case["expect"]),
            );
        }
    }
    check("small templates of llama.cpp", count, &differ, &known.collect());
}
