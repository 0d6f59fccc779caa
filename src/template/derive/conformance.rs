//! Reverse derivation over the shared data: templates made from known blocks come back as blocks that render the same, and
//! over the public templates each part is reached as often as is written here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::conversation::Conversation;
use super::*;
use crate::conformance::{folder, say, shows};

fn lines(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn list(context: &Value, name: &str) -> Option<Vec<Value>> {
    context[name].as_array().cloned()
}

/// The first place where two texts differ.
fn difference(wanted: &str, text: &str) -> String {
    let same = wanted.chars().zip(text.chars()).take_while(|(a, b)| a == b).count();
    let cut = |text: &str| text.chars().skip(same.saturating_sub(30)).take(90).collect::<String>();
    format!("wants {:?}, has {:?}", cut(wanted), cut(text))
}

#[test]
fn composed_templates_come_back() {
    let Some(root) = folder("reverse derivation of composed templates") else { return };
    let contexts: Vec<(String, Conversation)> = lines(&root.join("compose/contexts.jsonl"))
        .iter()
        .filter(|context| context["kwargs"].is_null())
        .map(|context| {
            let conversation = Conversation {
                messages: list(context, "messages").unwrap(),
                tools: list(context, "tools"),
                skills: list(context, "skills"),
                generation_prompt: context["gen"] == true,
                later: 0,
            };
            (context["id"].as_str().unwrap().to_owned(), conversation)
        })
        .collect();
    let (mut count, mut back, mut rendered, mut compared) = (0, 0, 0, 0);
    let mut differing = Vec::new();
    for template in lines(&root.join("compose/templates.jsonl")) {
        let name = template["name"].as_str().unwrap();
        let Ok(composed) = Composed::of(&template["components"], "components") else { continue };
        if !composed.is_generated() {
            continue;
        }
        count += 1;
        let sources = composed.sources();
        let derived = derive(&sources).unwrap();
        let original = Compiled::new(Templates::compile(&sources).unwrap());
        let again = derived.spec.as_ref().map(|spec| {
            let composed = Composed::of(spec, "components").unwrap();
            Compiled::new(Templates::compile(&composed.sources()).unwrap())
        });
        let mut differ = Vec::new();
        for (id, conversation) in &contexts {
            let Some(wanted) = original.render(conversation) else { continue };
            compared += 1;
            match again.as_ref().and_then(|again| again.render(conversation)) {
                Some(text) if text == wanted => rendered += 1,
                Some(text) => differ.push(format!("{id}: {}", difference(&wanted, &text))),
                None => differ.push(format!("{id}: refused")),
            }
        }
        if differ.is_empty() {
            back += 1;
        } else {
            differing.push(name.to_owned());
            if shows() {
                say(&format!("{name}: {differ:#?}\n{}", serde_json::to_string_pretty(&derived.to_json()).unwrap()));
            }
        }
    }
    say(&format!("derivation: {back} of {count} composed templates come back, {rendered} of {compared} renders; not {differing:?}"));
    assert!(back >= 56, "{differing:?}");
}

/// Parts of the public templates that are exact or not used, at least.
const REACHED: [(Part, usize, usize); 5] = [
    (Part::Chat, 0, 0),
    (Part::System, 0, 0),
    (Part::Tools, 0, 0),
    (Part::Calls, 0, 0),
    (Part::Results, 0, 0),
];

#[test]
fn rates_over_public_templates() {
    let Some(root) = folder("reverse derivation of public templates") else { return };
    let mut counts: BTreeMap<(Part, &str), usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut most = 0;
    let templates = crate::conformance::templates(&root);
    let all = templates.len();
    for (name, sources) in templates {
        let derived = derive(&sources).unwrap();
        most = most.max(derived.renders);
        for verdict in &derived.parts {
            let reached = derived.spec.is_some() || verdict.part == Part::Chat;
            *counts.entry((verdict.part, if reached { verdict.status.name() } else { "not reached" })).or_default() += 1;
            if !verdict.failing.is_empty() {
                *reasons.entry(format!("{} {}", verdict.part.name(), verdict.failing.join(" "))).or_default() += 1;
            }
        }
        if shows() {
            say(&format!("{name}: {} {}", derived.renders, derived.to_json()));
        }
    }
    if shows() {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| usize::MAX - count);
        reasons.iter().for_each(|(reason, count)| say(&format!("{count} {reason}")));
    }
    say(&format!("derivation: {all} public templates, at most {most} renders each"));
    for (part, exact, ignores) in REACHED {
        let count = |status: &'static str| counts.get(&(part, status)).copied().unwrap_or_default();
        let line: Vec<String> =
            ["exact", "ignores", "partial", "opaque", "not reached"].map(|status| format!("{} {status}", count(status))).into();
        say(&format!("derivation: {}: {}", part.name(), line.join(", ")));
        assert!(count("exact") >= exact && count("ignores") >= ignores, "{} fell behind {exact} and {ignores}", part.name());
    }
    assert!(most <= MAX_RENDERS, "{most} renders");
}
