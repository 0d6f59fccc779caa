//! Tests reverse derivation on the shared data. Templates composed from known blocks must come back
//! as blocks that render the same. For the public templates, each part must be derived at least as
//! often as stated here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::compose::derive::*;
use crate::probing::Probe;
use crate::test_support::conformance::{folder, say, shows};

fn lines(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn list(context: &Value, name: &str) -> Option<Vec<Value>> {
    context[name].as_array().cloned()
}

/// The first position where two texts differ.
fn difference(wanted: &str, text: &str) -> String {
    let same = wanted.chars().zip(text.chars()).take_while(|(a, b)| a == b).count();
    let cut = |text: &str| text.chars().skip(same.saturating_sub(30)).take(90).collect::<String>();
    format!("wants {:?}, has {:?}", cut(wanted), cut(text))
}

/// The shared conversations, by their ids.
fn conversations(root: &std::path::Path) -> Vec<(String, Probe)> {
    lines(&root.join("compose/contexts.jsonl"))
        .iter()
        .map(|context| {
            let thinking = context["kwargs"]["enable_thinking"].as_bool();
            let conversation = Probe {
                messages: list(context, "messages").unwrap(),
                tools: list(context, "tools").map(Value::from),
                skills: list(context, "skills"),
                add_generation_prompt: context["gen"] == true,
                kwargs: thinking
                    .map(|value| ("enable_thinking", value.into()))
                    .into_iter()
                    .collect(),
                ..Probe::default()
            };
            (context["id"].as_str().unwrap().to_owned(), conversation)
        })
        .collect()
}

/// Compares the renders of a template with those of the template composed from its derived blocks.
struct TemplateRoundTrip {
    derivation: Derivation,
    compared: usize,
    /// The ids of the renders that differ, and how.
    differ: Vec<String>,
}

fn round_trip(sources: &Sources, conversations: &[(String, Probe)]) -> TemplateRoundTrip {
    let derivation = derive(sources).unwrap();
    let original = renderer(Templates::compile(sources).unwrap());
    let again = derivation.spec.as_ref().map(|spec| {
        let composed = Composed::parse(spec, "components").unwrap();
        renderer(Templates::compile(&composed.sources()).unwrap())
    });
    let (mut compared, mut differ) = (0, Vec::new());
    for (id, conversation) in conversations {
        let Some(wanted) = original.prompt(conversation) else { continue };
        compared += 1;
        match again.as_ref().and_then(|again| again.prompt(conversation)) {
            Some(text) if text == wanted => {}
            Some(text) => differ.push(format!("{id}: {}", difference(&wanted, &text))),
            None => differ.push(format!("{id}: refused")),
        }
    }
    TemplateRoundTrip { derivation, compared, differ }
}

/// Covers all built-in templates, and those written by hand in the shared data, with each way to
/// switch thinking.
#[test]
fn built_in_and_handwritten_templates_come_back() {
    let Some(root) = folder("reverse derivation of built-in templates") else { return };
    let conversations = conversations(&root);
    let built_in = crate::compose::registered().into_iter().map(|(_, spec, _)| spec);
    let shared = lines(&root.join("compose/templates.jsonl"))
        .into_iter()
        .map(|row| row["components"].clone());
    let (mut count, mut compared, mut written) = (0, 0, 0);
    let mut differing = Vec::new();
    for spec in built_in.chain(shared.filter(|spec| !spec["chat_template"].is_null())) {
        let composed = Composed::parse(&spec, "components").unwrap();
        let TemplateRoundTrip { derivation, compared: rendered, differ } =
            round_trip(&composed.sources(), &conversations);
        count += 1;
        compared += rendered;
        written += usize::from(!composed.is_generated());
        if !differ.is_empty() {
            differing.push(format!("{}: {differ:#?}\n{}", spec["name"], derivation.to_json()));
        }
    }
    say(&format!(
        "derivation: {count} built-in and handwritten templates, {compared} renders; {} do not come back",
        differing.len()
    ));
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    assert!(count >= 19 && written >= 6 && compared >= 1_200, "{count} {written} {compared}");
}

#[test]
fn composed_templates_come_back() {
    let Some(root) = folder("reverse derivation of composed templates") else { return };
    let conversations = conversations(&root);
    let (mut count, mut back, mut rendered, mut compared) = (0, 0, 0, 0);
    let mut differing = Vec::new();
    for template in lines(&root.join("compose/templates.jsonl")) {
        let name = template["name"].as_str().unwrap();
        let Ok(composed) = Composed::parse(&template["components"], "components") else { continue };
        if !composed.is_generated() {
            continue;
        }
        count += 1;
        let TemplateRoundTrip { derivation: derived, compared: all, differ } =
            round_trip(&composed.sources(), &conversations);
        compared += all;
        rendered += all - differ.len();
        if differ.is_empty() {
            back += 1;
        } else {
            differing.push(name.to_owned());
            if shows() {
                say(&format!(
                    "{name}: {differ:#?}\n{}",
                    serde_json::to_string_pretty(&derived.to_json()).unwrap()
                ));
            }
        }
    }
    say(&format!(
        "derivation: {back} of {count} composed templates come back, {rendered} of {compared} renders; not {differing:?}"
    ));
    assert!(back == count && count >= 54 && rendered == compared, "{differing:?}");
}

/// Describes where the renders of each failing context differ.
fn failures(sources: &Sources, derived: &Derivation) -> Vec<String> {
    let failing: Vec<&str> =
        derived.parts.iter().flat_map(|result| result.failing.iter().copied()).collect();
    let Some(spec) = &derived.spec else { return Vec::new() };
    let composed = Composed::parse(spec, "components").unwrap();
    let again = renderer(Templates::compile(&composed.sources()).unwrap());
    let original = renderer(Templates::compile(sources).unwrap());
    let contexts = check_cases::all().into_iter().filter(|context| failing.contains(&context.id));
    let line = |context: check_cases::CheckCase| {
        let text = again.prompt(&context.conversation).unwrap_or_else(|| "REFUSED".to_owned());
        let wanted = original.prompt(&context.conversation).unwrap_or_default();
        format!("  {} {}: {}", context.part.as_str(), context.id, difference(&wanted, &text))
    };
    contexts.map(line).collect()
}

/// For each part, the most public templates for which it is not exact, and of these the most that do
/// not even ignore it with the same text. So a set with fewer templates has the same limits.
const NOT_EXACT: [(DerivedPart, usize, usize); 5] = [
    (DerivedPart::Chat, 34, 34),
    (DerivedPart::System, 46, 37),
    (DerivedPart::Tools, 231, 87),
    (DerivedPart::Calls, 230, 98),
    (DerivedPart::Results, 172, 106),
];

/// Conversations that templates rarely expect: turns in an unusual order, empty or missing texts,
/// empty lists.
const EDGES: [&str; 16] = [
    "answer_prompt",
    "answer_first_prompt",
    "two_users_prompt",
    "empty_answer",
    "system_answer_first_prompt",
    "system_empty_prompt",
    "system_alone_prompt",
    "tools_system_empty_prompt",
    "tools_none_system_prompt",
    "tools_none_prompt",
    "tool_bare_prompt",
    "call_null",
    "call_without_content",
    "calls_empty_list",
    "call_bare",
    "result_without_call",
];

#[test]
fn rates_over_public_templates() {
    let Some(root) = folder("reverse derivation of public templates") else { return };
    let mut counts: BTreeMap<(DerivedPart, &str), usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut most = 0;
    let mut mismatches = Vec::new();
    let templates = crate::test_support::conformance::templates(&root);
    let all = templates.len();
    for (name, sources) in templates {
        let derived = derive(&sources).unwrap();
        most = most.max(derived.renders);
        for result in &derived.parts {
            let reached = derived.spec.is_some() || result.part == DerivedPart::Chat;
            let whole = result.failing.is_empty();
            let status = match result.status {
                _ if !reached => "not reached",
                PartStatus::Ignores if !whole => "ignores, other text",
                status => status.as_str(),
            };
            *counts.entry((result.part, status)).or_default() += 1;
            if derived.spec.is_some() && result.failing.iter().all(|id| EDGES.contains(id)) {
                *counts.entry((result.part, "except edges")).or_default() += 1;
            }
            if !result.failing.is_empty() {
                *reasons
                    .entry(format!("{} {}", result.part.as_str(), result.failing.join(" ")))
                    .or_default() += 1;
            }
        }
        if let Some(spec) = &derived.spec {
            let composed = Composed::parse(spec, "components").unwrap();
            assert_eq!(
                Composed::parse(&composed.spec(), "components").unwrap().chat_template(),
                composed.chat_template(),
                "{name}"
            );
            assert!(!probes::contains_needle(&spec.to_string()), "{name}: {spec}");
            let measured = Templates::compile(&composed.sources()).unwrap().traits().caps.to_json();
            let other = composed
                .declared()
                .into_iter()
                .find(|(flag, declared)| measured[*flag] != *declared);
            mismatches.extend(other.map(|(flag, declared)| format!("{name}: {flag} {declared}")));
        }
        if shows() {
            say(&format!("{name}: {} {}", derived.renders, derived.to_json()));
            failures(&sources, &derived).iter().for_each(|line| say(line));
        }
    }
    if shows() {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| usize::MAX - count);
        reasons.iter().for_each(|(reason, count)| say(&format!("{count} {reason}")));
    }
    say(&format!("derivation: {all} public templates, at most {most} renders each"));
    let mut fallen = Vec::new();
    for (part, inexact, other) in NOT_EXACT {
        let count = |status: &'static str| counts.get(&(part, status)).copied().unwrap_or_default();
        let line: Vec<String> = [
            "exact",
            "ignores",
            "ignores, other text",
            "partial",
            "opaque",
            "not reached",
            "except edges",
        ]
        .map(|status| format!("{} {status}", count(status)))
        .into();
        say(&format!("derivation: {}: {}", part.as_str(), line.join(", ")));
        let left = all - count("exact");
        if left > inexact || left - count("ignores") > other {
            fallen.push(format!("{}: {left} not exact, over {inexact} and {other}", part.as_str()));
        }
    }
    assert!(fallen.is_empty(), "{fallen:?}");
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    assert!(most <= MAX_RENDERS, "{most} renders");
}
