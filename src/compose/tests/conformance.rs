//! Runs the shared cases for the templates of chat-bricks and for its vision counts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::compose::{Composed, with_reason};
use crate::template::mask::MaskScope;
use crate::template::{Limits, LocalTime, RenderInput, Templates};
use crate::test_support::conformance::{folder, say, shows};

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn by<'a>(rows: &'a [Value], key: &str) -> BTreeMap<&'a str, &'a Value> {
    rows.iter().map(|row| (row[key].as_str().unwrap(), row)).collect()
}

fn input(context: &Value) -> RenderInput<'_> {
    let now = LocalTime::parse("2024-07-26T00:00:00Z").unwrap();
    RenderInput {
        tools: context["tools"].as_array().map(Vec::as_slice),
        skills: context["skills"].as_array().map(Vec::as_slice),
        add_generation_prompt: context["gen"] == true,
        kwargs: context["kwargs"].as_object(),
        limits: Limits { ms: 60_000, ..Limits::default() },
        ..RenderInput::new(context["messages"].as_array().unwrap(), now)
    }
}

/// The expected result of a case: a text, or the reason of an error.
fn expected(case: &Value) -> Option<Result<String, String>> {
    let text = |side: &str| {
        let side = if side == "jinja" && case["same"] == true { "py" } else { side };
        Ok(case[side]["text"].as_str().unwrap().to_owned())
    };
    match &case["expect"] {
        Value::Null => None,
        Value::String(side) => Some(text(side)),
        expect => Some(match expect["error"].as_str() {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(expect["text"].as_str().unwrap().to_owned()),
        }),
    }
}

fn reason(error: &crate::error::Error) -> String {
    error
        .details()
        .and_then(|details| details["reason"].as_str())
        .unwrap_or(error.message())
        .to_owned()
}

#[test]
fn cases_render_as_expected() {
    let Some(root) = folder("composed templates") else { return };
    let folder = root.join("compose");
    let (templates, contexts) =
        (lines(&folder.join("templates.jsonl")), lines(&folder.join("contexts.jsonl")));
    let contexts = by(&contexts, "id");
    let composed: BTreeMap<&str, _> = by(&templates, "name")
        .into_iter()
        .map(|(name, row)| {
            let composed = Composed::parse(&row["components"], "components");
            (
                name,
                composed
                    .map(|composed| (Templates::compile(&composed.sources()).unwrap(), composed)),
            )
        })
        .collect();
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let mut masks = [0; 2];
    let mut failures = Vec::new();
    let cases = BufReader::new(GzDecoder::new(File::open(folder.join("cases.jsonl.gz")).unwrap()));
    for line in cases.lines() {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(expected) = expected(&case) else { continue };
        let (name, context) = (case["t"].as_str().unwrap(), contexts[case["c"].as_str().unwrap()]);
        let input = input(context);
        let got = match &composed[name] {
            Err(error) => Err(reason(error)),
            Ok((templates, _)) => match templates.render(&input) {
                Ok(prompt) => Ok(prompt),
                Err(error) => Err(reason(&with_reason(error))),
            },
        };
        let count = counts.entry(case["rule"].as_str().unwrap().to_owned()).or_default();
        count[1] += 1;
        let text = got.as_ref().map(|prompt| prompt.text.clone()).map_err(Clone::clone);
        if text == expected {
            count[0] += 1;
        } else {
            failures.push(format!("{name} {}: {text:?}\n  expected {expected:?}", case["c"]));
        }
        if let (Ok(prompt), Ok((_, composed)), Some(mask)) =
            (&got, &composed[name], case["mask"].as_array())
        {
            masks[1] += 1;
            let found = composed
                .mask(MaskScope::All, prompt, &input, input.messages)
                .unwrap()
                .unwrap_or_default();
            let ranges: Vec<Value> =
                found.turns.iter().map(|turn| json!([turn.range.start, turn.range.end])).collect();
            if ranges == *mask {
                masks[0] += 1;
            } else {
                failures.push(format!(
                    "{name} {}: mask {ranges:?}\n  expected {mask:?} of {:?}",
                    case["c"], prompt.text
                ));
            }
        }
    }
    say(&format!("composed templates: {counts:?}, masks {masks:?}"));
    let shown = if shows() { failures.len() } else { 5 };
    assert!(
        failures.is_empty(),
        "{} differ, such as\n{}",
        failures.len(),
        failures[..shown.min(failures.len())].join("\n")
    );
}

#[test]
fn specs_agree_with_their_templates() {
    let Some(root) = folder("composed templates: normal form, capabilities") else { return };
    let folder = root.join("compose");
    let templates = lines(&folder.join("templates.jsonl"));
    let mut differ = Vec::new();
    for row in &templates {
        let Ok(composed) = Composed::parse(&row["components"], "components") else { continue };
        let again = Composed::parse(&composed.spec(), "components").unwrap();
        assert_eq!(
            (again.chat_template(), again.spec()),
            (composed.chat_template(), composed.spec()),
            "{}",
            row["name"]
        );
        assert!(again.ignored().is_empty());
        let templates = Templates::compile(&composed.sources()).unwrap();
        let measured = templates.traits().caps.to_json();
        let mut compare = |flag: &str, measured: bool, declared: bool| {
            if measured != declared {
                differ.push(format!("{} {flag}: {measured}, declared {declared}", row["name"]));
            }
        };
        for (flag, declared) in composed.declared() {
            compare(flag, measured[flag] == true, declared);
        }
        if composed.is_generated() && composed.spec.shows_calls() {
            compare(
                "caps.supports_tools",
                templates.llama_cpp_caps().caps.supports_tools,
                composed.spec.shows_tools(),
            );
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// The built-in specs equal the shared ones. A handwritten template renders the same as the model's
/// own.
#[test]
fn built_in_templates() {
    let Some(root) = folder("built-in templates") else { return };
    let folder = root.join("compose");
    let (templates, contexts) =
        (lines(&folder.join("templates.jsonl")), lines(&folder.join("contexts.jsonl")));
    let shared = by(&templates, "name");
    let (mut compared, mut names) = (0, 0);
    for (name, _, exact) in crate::compose::registered()
        .into_iter()
        .filter(|(name, ..)| shared.contains_key(name.as_str()))
    {
        let ours = Composed::parse(&json!(name), "components").unwrap();
        let theirs = Composed::parse(&shared[name.as_str()]["components"], "components").unwrap();
        let without = |composed: &Composed| {
            let mut spec = composed.spec();
            spec.as_object_mut().unwrap().remove("chat_template");
            spec
        };
        assert_eq!(
            (without(&ours), ours.is_generated()),
            (without(&theirs), theirs.is_generated()),
            "{name}"
        );
        assert!(!exact || !ours.is_generated());
        names += 1;
        if ours.is_generated() {
            continue;
        }
        let [ours, theirs] =
            [&ours, &theirs].map(|composed| Templates::compile(&composed.sources()).unwrap());
        for context in &contexts {
            let input = input(context);
            if let Ok(expected) = theirs.render(&input) {
                assert_eq!(
                    ours.render(&input).unwrap().text,
                    expected.text,
                    "{name} {}",
                    context["id"]
                );
                compared += 1;
            }
        }
    }
    assert_eq!(names, 16);
    assert!(compared > 170, "{compared}");
}
