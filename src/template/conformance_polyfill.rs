//! The conversations of minja's test suite through every template, polyfilled by what the probes found: what must show
//! shows, and what must not show does not. Without the shared data these tests say what they skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::conformance::{data, say, templates};
use super::{LocalTime, RenderInput, Templates, polyfill};
use crate::api::Polyfills;

/// Members of a context that are not variables of the template.
const REQUEST: [&str; 4] = ["messages", "tools", "add_generation_prompt", "_test_metadata"];

fn contexts(root: &std::path::Path) -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(root.join("polyfill-contexts")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
        })
        .collect()
}

fn list(context: &Value, name: &str) -> Vec<Value> {
    context[name].as_array().cloned().unwrap_or_default()
}

/// The prompt, as a request with polyfills would get it.
fn render(templates: &Templates, context: &Value) -> crate::error::Result<String> {
    let (messages, tools) = (list(context, "messages"), list(context, "tools"));
    let options = Polyfills::default();
    let polyfilled = polyfill::apply(&messages, Some(&tools), &templates.traits().0, &options)?;
    let mut kwargs: Map<String, Value> = context.as_object().unwrap().clone();
    kwargs.retain(|name, _| !REQUEST.contains(&name.as_str()));
    templates.render(&RenderInput {
        messages: &polyfilled.messages,
        tools: Some(&tools),
        documents: None,
        add_generation_prompt: context["add_generation_prompt"].as_bool().unwrap(),
        kwargs: Some(&kwargs),
        now: LocalTime::parse("2024-07-26T00:00:00").unwrap(),
        raw: false,
    })
}

/// What is wrong with a prompt, by the context's own metadata.
fn faults(prompt: &str, metadata: &Value, flags: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (kind, texts) in metadata.as_object().unwrap() {
        let due = match kind.strip_prefix("expected_strings") {
            Some("") => true,
            Some(condition) => flags[condition.strip_prefix("_if_").unwrap()].as_bool().unwrap(),
            None if kind == "forbidden_strings" => false,
            None => continue,
        };
        for text in texts.as_array().unwrap() {
            let text = text.as_str().unwrap();
            if due && !prompt.contains(text) {
                faults.push(format!("lacks {text:?}"));
            }
            if kind == "forbidden_strings" && prompt.contains(text) {
                faults.push(format!("shows {text:?}"));
            }
        }
    }
    faults
}

#[test]
fn conversations_of_minja_through_every_template() {
    let Some(root) = data("polyfills through every template") else { return };
    let (templates, contexts) = (templates(&root), contexts(&root));
    let (mut count, mut good, mut rendered) = (0_u32, 0_u32, 0_u32);
    let mut differ: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, template) in &templates {
        let flags = template.traits().0.caps.to_json();
        for (context_name, context) in &contexts {
            count += 1;
            let faults = match render(template, context) {
                Ok(prompt) => {
                    rendered += 1;
                    faults(&prompt, &context["_test_metadata"], &flags)
                }
                Err(error) => vec![format!("fails: {}", error.message())],
            };
            good += u32::from(faults.is_empty());
            for fault in faults {
                differ.entry(format!("{context_name}: {fault}")).or_default().push(name.clone());
            }
        }
    }
    say(&format!("polyfills: {good} of {count} prompts hold what they should, {rendered} rendered"));
    for (what, names) in &differ {
        say(&format!("  {} x {what}: {}", names.len(), names.join(" ")));
    }
    assert!(f64::from(good) >= f64::from(count) * 0.95, "{good} of {count}");
}
