//! Renders the conversations of minja's test suite through every template, polyfilled by the probed
//! traits. The prompt must contain every required text and no forbidden text. Without the shared
//! data these tests report what they skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::renders;
use super::renders::{data, say, templates};
use crate::api::Polyfills;
use crate::template::{Details, Limits, LocalTime, RenderInput, Templates, polyfill};

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

/// The prompt of a request with polyfills.
fn render(templates: &Templates, context: &Value) -> crate::error::Result<String> {
    let (messages, tools) = (list(context, "messages"), list(context, "tools"));
    let options = Polyfills::default();
    let polyfilled = polyfill::apply(&messages, Some(&tools), templates.traits(), &options)?;
    let mut kwargs: Map<String, Value> = context.as_object().unwrap().clone();
    kwargs.retain(|name, _| !REQUEST.contains(&name.as_str()));
    let now = LocalTime::parse("2024-07-26T00:00:00").unwrap();
    let prompt = templates.render(&RenderInput {
        tools: Some(&tools[..]).filter(|tools| !tools.is_empty()),
        add_generation_prompt: context["add_generation_prompt"].as_bool().unwrap(),
        kwargs: Some(&kwargs),
        limits: Limits { ms: 60_000, ..Limits::default() },
        ..RenderInput::new(&polyfilled.messages, now)
    })?;
    Ok(prompt.text)
}

/// The positions of a context's reasoning. If a template shows reasoning at all, minja's metadata
/// requires it in all of them. Most templates show it only in some, on purpose.
const POSITIONS: [(&str, &[&str]); 7] = [
    ("reasoning_clear_thinking", &["hist", "last"]),
    ("reasoning_disabled", &["last"]),
    ("reasoning_multi_turn", &["last"]),
    ("reasoning_only", &["last"]),
    ("reasoning_position_based", &["last"]),
    ("reasoning_with_tools", &["last", "tc_open", "tc_closed"]),
    ("tool_plan_reasoning", &["tc_open", "tc_closed"]),
];

/// Whether the probes saw reasoning in all positions of this context, with a generation prompt and
/// no switch.
fn is_visible(context: &str, details: &Details) -> bool {
    let due = POSITIONS
        .iter()
        .find(|(name, _)| *name == context)
        .map_or(&[][..], |(_, positions)| *positions);
    let seen = |position: &&str| {
        let mut cells = details.reasoning.visible.iter();
        cells.any(|cell| {
            cell.position.as_str() == *position && cell.add_generation_prompt && cell.flag.is_none()
        })
    };
    due.iter().all(seen)
}

/// Templates that cannot show the conversations of the contexts, with the reason.
const OTHERWISE: [(&str, &str); 4] = [
    ("gemma4-public-fork-as-saved", "splits by an empty separator, which Python refuses too"),
    ("lcptest.ai-sage-GigaChat-20B-A3B-instruct", "reads a variable that only its own caller sets"),
    (
        "ollama.shieldgemma-27b",
        "a classifier of one message by a guideline that only its own caller sets",
    ),
    ("xinf.qwen3.8-max", "refuses enable_thinking false"),
];

/// The faults of a prompt according to the context's metadata.
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
    let mut unexplained = Vec::new();
    for (name, template) in &templates {
        let traits = template.traits();
        for (context_name, context) in &contexts {
            count += 1;
            let mut flags = traits.caps.to_json();
            if !is_visible(context_name, &traits.details) {
                flags["supports_reasoning"] = false.into();
            }
            let faults = match render(template, context) {
                Ok(prompt) => {
                    rendered += 1;
                    faults(&prompt, &context["_test_metadata"], &flags)
                }
                Err(error) => vec![format!("fails: {}", error.message())],
            };
            good += u32::from(faults.is_empty());
            for fault in faults {
                if !OTHERWISE.iter().any(|(known, _)| known == name) {
                    unexplained.push(format!("{name}: {context_name}: {fault}"));
                }
                differ.entry(format!("{context_name}: {fault}")).or_default().push(name.clone());
            }
        }
    }
    say(&format!(
        "polyfills: {good} of {count} prompts hold what they should, {rendered} rendered"
    ));
    for (what, names) in &differ {
        say(&format!("  {} x {what}: {}", names.len(), names.join(" ")));
    }
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

/// Renders every context through every template, unchanged and polyfilled. A conversation that
/// renders unchanged must also render polyfilled, unless it is refused because the template would
/// not have printed its text. A second run must change nothing.
#[test]
fn conversations_that_render_as_sent_render_polyfilled() {
    let Some(root) = data("polyfills against renders as sent") else { return };
    let (templates, contexts) = (templates(&root), renders::contexts(&root));
    // Unoptimised renders are slow; a prime step visits every template and every context.
    let step = if cfg!(debug_assertions) { 11 } else { 1 };
    let (mut both, mut saved, mut untouched, mut refused) = (0_u32, 0_u32, 0_u32, 0_u32);
    let mut broken: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let pairs = templates
        .iter()
        .flat_map(|template| contexts.iter().map(move |context| (template, context)));
    for ((template_name, template), (context_name, context)) in pairs.step_by(step) {
        // `call_flat` has calls without the member `function`, which requests refuse.
        if context["continue_final_message"] == true || context_name == "call_flat" {
            continue;
        }
        let (messages, tools) = (list(context, "messages"), list(context, "tools"));
        let as_sent = renders::render(template, context);
        let traits = template.traits();
        let once = match polyfill::apply(&messages, Some(&tools), traits, &Polyfills::default()) {
            Ok(once) => once,
            Err(error) => {
                let known = [
                    "the chat template takes text only",
                    "the chat template shows one call per message",
                ];
                if known.iter().any(|known| error.message().contains(known)) {
                    refused += 1;
                } else if as_sent.is_ok() {
                    broken
                        .entry(format!("{context_name}: {error}"))
                        .or_default()
                        .push(template_name.clone());
                }
                continue;
            }
        };
        let again = polyfill::apply(&once.messages, None, traits, &Polyfills::default()).unwrap();
        assert!(
            again.applied.is_empty(),
            "{template_name} x {context_name}: {:?}, then {:?}",
            once.applied,
            again.applied
        );
        untouched += u32::from(once.applied.is_empty());
        let mut polyfilled = context.clone();
        polyfilled["messages"] = once.messages.to_vec().into();
        match (as_sent, renders::render(template, &polyfilled)) {
            (Ok(_), Ok(_)) => both += 1,
            (Err(_), Ok(_)) => saved += 1,
            (Ok(_), Err(error)) if !OTHERWISE.iter().any(|(known, _)| known == template_name) => {
                let what = format!("{context_name}: {:?}: {}", once.applied, error.message());
                broken.entry(what).or_default().push(template_name.clone());
            }
            (_, Err(_)) => {}
        }
    }
    say(&format!(
        "polyfills: {both} render both ways, {saved} only polyfilled, {refused} refused, {untouched} untouched"
    ));
    for (what, names) in &broken {
        say(&format!("  broken: {} x {what}: {}", names.len(), names.join(" ")));
    }
    assert!(broken.is_empty());
}
