//! Compares renders with transformers' goldens and flags with llama.cpp's. Without the
//! conformance set these tests report what they skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::template::{Limits, LocalTime, Prompt, RenderInput, Templates};

pub(crate) use crate::test_support::conformance::{folder as data, say};

/// Compiled templates by name.
pub(crate) fn templates(root: &std::path::Path) -> BTreeMap<String, Templates> {
    let sources = crate::test_support::conformance::templates(root).into_iter();
    sources
        .map(|(name, sources)| {
            let compiled =
                Templates::compile(&sources).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, compiled)
        })
        .collect()
}

pub(crate) fn contexts(root: &std::path::Path) -> BTreeMap<String, Value> {
    let files = fs::read_dir(root.join("contexts")).unwrap();
    files
        .map(|file| {
            let context: Value =
                serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
            (context["name"].as_str().unwrap().to_owned(), context)
        })
        .collect()
}

pub(crate) fn render(templates: &Templates, context: &Value) -> crate::error::Result<Prompt> {
    let messages = context["messages"].as_array().unwrap();
    let now = LocalTime::parse(context["now"].as_str().unwrap()).unwrap();
    templates.render(&RenderInput {
        tools: context["tools"].as_array().map(Vec::as_slice),
        documents: context["documents"].as_array().map(Vec::as_slice),
        add_generation_prompt: context["add_generation_prompt"].as_bool().unwrap(),
        continue_final_message: (context["continue_final_message"] == true).then_some("content"),
        kwargs: context["kwargs"].as_object(),
        spans: true,
        // An unoptimised build on a busy machine is slow, and time is not compared.
        limits: Limits { ms: 60_000, ..Limits::default() },
        ..RenderInput::new(messages, now)
    })
}

/// Refusals of transformers that llb need not share (docs/templates.md, Rendering).
fn may_render(error: &Value) -> bool {
    let message = error["message"].as_str().unwrap_or_default();
    // Loops over None; filters that return lists.
    message == "'NoneType' object is not iterable"
        || message == "Object of type generator is not JSON serializable"
}

#[test]
fn renders_match_transformers() {
    let Some(root) = data("renders against transformers") else { return };
    let (templates, contexts) = (templates(&root), contexts(&root));
    // Unoptimised renders are slow; a prime step visits every template and every context.
    let step = if cfg!(debug_assertions) { 11 } else { 1 };
    let show = crate::test_support::conformance::shows();
    let goldens =
        BufReader::new(GzDecoder::new(File::open(root.join("goldens.jsonl.gz")).unwrap()));
    let mut differ: Vec<String> = Vec::new();
    // Texts, generation spans, refusals by the template, other refusals, and renders that
    // transformers refuses.
    let mut counts = [0u32; 5];
    for line in goldens.lines().step_by(step) {
        let golden: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (template, context) =
            (golden["template"].as_str().unwrap(), golden["context"].as_str().unwrap());
        let ours = render(&templates[template], &contexts[context]);
        let (kind, equal) = if golden["ok"] == true {
            let spans = golden["generation_spans"].as_array();
            let generation = ours
                .as_ref()
                .is_ok_and(|prompt| spans.is_none_or(|spans| same_spans(spans, prompt)));
            counts[1] += u32::from(spans.is_some());
            (
                0,
                ours.as_ref()
                    .is_ok_and(|prompt| golden["text"] == *prompt.text && are_exact(prompt))
                    && generation,
            )
        } else if golden["error"]["kind"] == "raise_exception" {
            (2, ours.as_ref().is_err_and(|error| golden["error"]["message"] == error.message()))
        } else if may_render(&golden["error"]) {
            (4, true)
        } else {
            (3, ours.is_err())
        };
        counts[kind] += 1;
        if !equal {
            differ.push(format!("{template} x {context}: {}", first_difference(&golden, &ours)));
        }
    }
    let [texts, generations, refusals, errors, open] = counts;
    say(&format!(
        "conformance: {texts} renders ({generations} with generation spans), {refusals} refusals by message, {errors} other \
         errors, {open} where either is right; {} differ; every {step}th golden",
        differ.len()
    ));
    if show {
        differ.iter().for_each(|line| say(line));
    }
    assert!(
        differ.is_empty(),
        "{} differ, for example {:#?}",
        differ.len(),
        &differ[..differ.len().min(5)]
    );
}

/// Spans of a golden count code points.
fn same_spans(golden: &[Value], prompt: &Prompt) -> bool {
    let chars = |at: usize| prompt.text[..at].chars().count();
    let ours: Vec<Value> = prompt
        .generation
        .iter()
        .map(|range| json!([chars(range.start), chars(range.end)]))
        .collect();
    golden == ours
}

/// Whether spans are in order, on character boundaries, and inside the prompt.
fn are_exact(prompt: &Prompt) -> bool {
    let mut at = 0;
    prompt.spans.iter().all(|span| {
        let fits = at <= span.start
            && span.start < span.end
            && prompt.text.get(span.start..span.end).is_some();
        at = span.end;
        fits
    })
}

fn first_difference(golden: &Value, ours: &crate::error::Result<Prompt>) -> String {
    let ours = match ours {
        Ok(ours) => &ours.text,
        Err(error) => return format!("{error} {:?}; wants {}", error.details(), golden["error"]),
    };
    let Some(theirs) = golden["text"].as_str() else {
        let cut: String = ours.chars().take(80).collect();
        return format!("wants the error {}, has {cut:?}", golden["error"]);
    };
    let same = theirs.chars().zip(ours.chars()).take_while(|(a, b)| a == b).count();
    let cut = |text: &str| text.chars().skip(same.saturating_sub(20)).take(70).collect::<String>();
    format!("wants {:?}, has {:?}", cut(theirs), cut(ours))
}

/// Templates whose flags differ from llama.cpp's, with the reason. In each case transformers
/// renders what llama.cpp's engine cannot.
const BETTER: [(&str, &str, &[&str]); 3] = [
    (
        "llama.cpp fails when a template loops over a string, and then answers as for a template without tools",
        "supports_tools supports_tool_calls supports_string_content supports_object_arguments",
        &[
            "axolotl.llama3_2_vision",
            "ollama.llama3.2-vision-90b",
            "ollama.llama3.2-vision-latest",
            "vllm.tool_chat_template_llama3.2_json",
        ],
    ),
    (
        "llama.cpp lacks the test `equalto`, or `selectattr` with `undefined`",
        "supports_tools supports_tool_calls supports_parallel_tool_calls supports_string_content supports_typed_content \
         supports_object_arguments",
        &["vllm.tool_chat_template_gemma3_pythonic"],
    ),
    (
        "llama.cpp probes with an empty list of parts, which tells nothing of these",
        "supports_typed_content",
        &[
            "axolotl.llama3",
            "axolotl.llama4",
            "hf.llama4-processor-default",
            "ollama.llama4-latest",
            "vllm.tool_chat_template_llama3.1_json",
        ],
    ),
];

#[test]
fn caps_match_llama_cpp() {
    let Some(root) = data("flags against llama.cpp") else { return };
    let templates = templates(&root);
    let expected = fs::read_to_string(root.join("caps.llamacpp.jsonl")).unwrap();
    let mut differ: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut unexplained = Vec::new();
    let mut count = 0;
    for line in expected.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let name = expected["template"].as_str().unwrap();
        let report = templates[name].llama_cpp_caps();
        count += 1;
        for (flag, ours, evidence) in report.flags() {
            if expected["caps"][flag] != ours {
                let problem =
                    evidence.error.as_ref().map_or("", |failure| failure.message.as_str());
                let known = |(_, flags, names): &(&str, &str, &[&str])| {
                    flags.split_whitespace().any(|known| known == flag) && names.contains(&name)
                };
                if !BETTER.iter().any(known) {
                    unexplained.push(format!("{flag} of {name}"));
                }
                differ
                    .entry(flag)
                    .or_default()
                    .push(format!("{name} (ours {ours}, {}) {problem}", evidence.status.as_str()));
            }
        }
    }
    for (flag, ..) in templates.values().next().unwrap().llama_cpp_caps().flags() {
        let differ = differ.get(flag).map_or(&[][..], Vec::as_slice);
        say(&format!("conformance: {flag}: {} of {count} as llama.cpp", count - differ.len()));
        for name in differ {
            say(&format!("  differs: {name}"));
        }
    }
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}
