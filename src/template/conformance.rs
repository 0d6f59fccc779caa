//! The shared conformance data: renders against transformers' goldens, flags against llama.cpp's.
//! Read from `../shared/conformance` or `LLB_CONFORMANCE`; without it these tests say what they skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::{Limits, LocalTime, RenderInput, Sources, Templates};

pub(super) fn say(line: &str) {
    // The lint against printing is for the library; a test reports.
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub(super) fn data(what: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LLB_CONFORMANCE")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"), PathBuf::from);
    if root.is_dir() {
        return Some(root);
    }
    say(&format!("skipped: {what}: no conformance data at {}", root.display()));
    None
}

/// Compiled templates by name.
pub(super) fn templates(root: &std::path::Path) -> BTreeMap<String, Templates> {
    let table = fs::read_to_string(root.join("templates.tsv")).unwrap();
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let column = |name: &str| header.iter().position(|title| *title == name).unwrap();
    let (name, bos, eos) = (column("name"), column("bos_token"), column("eos_token"));
    let mut templates = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let text = fs::read_to_string(root.join("templates").join(format!("{}.jinja", fields[name]))).unwrap();
        let sources = Sources {
            default: Some(text),
            tool_use: None,
            bos_token: fields[bos].to_owned(),
            eos_token: fields[eos].to_owned(),
        };
        let compiled = Templates::compile(&sources, &Limits::default());
        let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", fields[name]));
        templates.insert(fields[name].to_owned(), compiled);
    }
    templates
}

pub(super) fn contexts(root: &std::path::Path) -> BTreeMap<String, Value> {
    let files = fs::read_dir(root.join("contexts")).unwrap();
    files
        .map(|file| {
            let context: Value = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
            (context["name"].as_str().unwrap().to_owned(), context)
        })
        .collect()
}

pub(super) fn render(templates: &Templates, context: &Value) -> crate::error::Result<String> {
    templates.render(&RenderInput {
        messages: context["messages"].as_array().unwrap(),
        tools: context["tools"].as_array().map(Vec::as_slice),
        documents: context["documents"].as_array().map(Vec::as_slice),
        add_generation_prompt: context["add_generation_prompt"].as_bool().unwrap(),
        kwargs: context["kwargs"].as_object(),
        now: LocalTime::parse(context["now"].as_str().unwrap()).unwrap(),
        raw: false,
    })
}

#[test]
fn renders_as_transformers() {
    let Some(root) = data("renders against transformers") else { return };
    let (templates, contexts) = (templates(&root), contexts(&root));
    // Unoptimised renders are slow; a prime step visits every template and every context.
    let step = if cfg!(debug_assertions) { 11 } else { 1 };
    let show = std::env::var_os("LLB_CONFORMANCE_SHOW").is_some();
    let goldens = BufReader::new(GzDecoder::new(File::open(root.join("goldens.jsonl.gz")).unwrap()));
    let (mut equal, mut succeed, mut refused, mut refusals, mut left_out) = (0u32, 0u32, 0u32, 0u32, 0u32);
    let mut differ: BTreeMap<String, u32> = BTreeMap::new();
    for line in goldens.lines().step_by(step) {
        let golden: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (template, context) = (golden["template"].as_str().unwrap(), golden["context"].as_str().unwrap());
        if contexts[context]["continue_final_message"] == true {
            left_out += 1;
            continue;
        }
        let ours = render(&templates[template], &contexts[context]);
        if golden["ok"] == true {
            succeed += 1;
            if ours.as_ref().is_ok_and(|text| golden["text"] == *text) {
                equal += 1;
                continue;
            }
            *differ.entry(format!("{context}: {}", ours.as_ref().err().map_or("text", |e| e.message()))).or_default() += 1;
            if show {
                say(&format!("differs: {template} x {context}: {}", first_difference(&golden, &ours)));
            }
        } else if golden["error"]["kind"] == "raise_exception" {
            refusals += 1;
            if ours.as_ref().is_err_and(|error| golden["error"]["message"] == error.message()) {
                refused += 1;
            } else if show {
                say(&format!("refusal: {template} x {context}: wants {}, {ours:?}", golden["error"]["message"]));
            }
        }
    }
    let share = f64::from(equal) / f64::from(succeed);
    say(&format!(
        "conformance: {equal} of {succeed} renders equal ({:.2} %), {refused} of {refusals} refusals equal, \
         {left_out} with continue_final_message left out, every {step}th golden",
        share * 100.0
    ));
    for (what, count) in differ {
        say(&format!("  {count} x {what}"));
    }
    assert!(share >= 0.992, "{equal} of {succeed}");
    assert!(refused == refusals, "{refused} of {refusals}");
}

fn first_difference(golden: &Value, ours: &crate::error::Result<String>) -> String {
    let ours = match ours {
        Ok(ours) => ours,
        Err(error) => return format!("{error} {:?}", error.details()),
    };
    let theirs = golden["text"].as_str().unwrap();
    let same = theirs.chars().zip(ours.chars()).take_while(|(a, b)| a == b).count();
    let cut = |text: &str| text.chars().skip(same.saturating_sub(20)).take(70).collect::<String>();
    format!("wants {:?}, has {:?}", cut(theirs), cut(ours))
}

/// Where our flags differ, and why ours stay. In each case transformers renders what llama.cpp's engine cannot.
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
fn caps_as_llama_cpp() {
    let Some(root) = data("flags against llama.cpp") else { return };
    let templates = templates(&root);
    let expected = fs::read_to_string(root.join("caps.llamacpp.jsonl")).unwrap();
    let mut differ: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut unexplained = Vec::new();
    let mut count = 0;
    for line in expected.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let name = expected["template"].as_str().unwrap();
        let report = templates[name].caps();
        count += 1;
        for ((flag, ours), (_, evidence)) in report.caps.flags().into_iter().zip(&report.evidence) {
            if expected["caps"][flag] != ours {
                let problem = evidence.error.as_ref().map_or("", |failure| failure.message.as_str());
                let known = |(_, flags, names): &(&str, &str, &[&str])| {
                    flags.split_whitespace().any(|known| known == flag) && names.contains(&name)
                };
                if !BETTER.iter().any(known) {
                    unexplained.push(format!("{flag} of {name}"));
                }
                differ.entry(flag).or_default().push(format!("{name} (ours {ours}, {}) {problem}", evidence.status.as_str()));
            }
        }
    }
    for (flag, _) in templates.values().next().unwrap().caps().caps.flags() {
        let differ = differ.get(flag).map_or(&[][..], Vec::as_slice);
        say(&format!("conformance: {flag}: {} of {count} as llama.cpp", count - differ.len()));
        for name in differ {
            say(&format!("  differs: {name}"));
        }
    }
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}
