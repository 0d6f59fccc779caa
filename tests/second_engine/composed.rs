//! Composed templates in minijinja, compared with llb's own renders.
//!
//! A composed template renders the same in every engine, with and without `trim_blocks`: no
//! difference is allowed.

use llb::compose::{self, Composed};
use llb::template::{Limits, LocalTime, Prompt, RenderInput, Sources, Templates};
use minijinja::value::Value;
use serde_json::{Value as Json, json};

use crate::engine::{Engine, Failure, value};
use crate::{conformance, json_lines, shows_all};

/// Prints the variables that llb computes for a composed template: `messages` and `tools_yaml`.
const HOST_VARIABLES: &str = "{{ {'messages': messages, 'tools_yaml': tools_yaml if tools_yaml is defined else none} | tojson }}";

#[test]
fn built_in_templates_render_as_in_llb() {
    let templates: Vec<Json> = compose::registered()
        .into_iter()
        .map(|(name, ..)| json!({ "name": name, "components": name }))
        .collect();
    check("built-in", &templates, &conversations());
}

#[test]
fn shared_compositions_render_as_in_llb() {
    let Some(root) = conformance("composed templates in minijinja") else { return };
    let folder = root.join("compose");
    check(
        "shared",
        &json_lines(&folder.join("templates.jsonl")),
        &json_lines(&folder.join("contexts.jsonl")),
    );
}

/// Compares all templates with all conversations, with and without `trim_blocks`.
#[track_caller]
fn check(what: &str, templates: &[Json], conversations: &[Json]) {
    let (mut compared, mut refused, mut differ) = (0, 0, Vec::new());
    for row in templates {
        // Specs that are refused have tests of their own.
        let Ok(composed) = Composed::parse(&row["components"], "components") else { continue };
        let sources = composed.sources();
        let ours = Templates::compile(&sources).unwrap();
        let host =
            Templates::compile(&Sources { default: Some(HOST_VARIABLES.to_owned()), ..sources })
                .unwrap();
        let engines = [true, false].map(|trim| {
            let mut engine = Engine::new(trim);
            engine.compile("composed", composed.chat_template()).unwrap();
            (trim, engine)
        });
        for conversation in conversations {
            let input = input(conversation);
            let expected = ours.render(&input).map(|prompt| prompt.text).map_err(failure);
            let variables = variables(&host.render(&input).unwrap(), conversation);
            for (trim, engine) in &engines {
                let text = engine.render("composed", variables.clone(), now());
                compared += 1;
                refused += usize::from(expected.is_err());
                let same = match (&text, &expected) {
                    // A type error, for example. The engines' words differ.
                    (Err(Failure::Other(_)), Err(Failure::Other(_))) => true,
                    (text, expected) => text == expected,
                };
                if !same {
                    differ.push(format!(
                        "{} {} trim {trim}: {text:?}\n  llb: {expected:?}",
                        row["name"], conversation["id"]
                    ));
                }
            }
        }
    }
    eprintln!(
        "minijinja: {compared} renders of {what} composed templates, {refused} of them refusals; {} differ",
        differ.len()
    );
    let first = &differ[..differ.len().min(if shows_all() { usize::MAX } else { 5 })];
    assert!(differ.is_empty(), "{} differ, for example\n{}", differ.len(), first.join("\n"));
    assert!(compared > refused, "nothing was rendered");
}

fn now() -> LocalTime {
    LocalTime::parse("2024-07-26T00:00:00Z").unwrap()
}

fn input(conversation: &Json) -> RenderInput<'_> {
    let list = |name: &str| conversation[name].as_array().map(Vec::as_slice);
    RenderInput {
        tools: list("tools"),
        skills: list("skills"),
        add_generation_prompt: conversation["gen"] == true,
        kwargs: conversation["kwargs"].as_object(),
        // An unoptimised build on a busy machine is slow.
        limits: Limits { ms: 60_000, ..Limits::default() },
        ..RenderInput::new(list("messages").unwrap(), now())
    }
}

/// The variables that llb passes to the template.
fn variables<'a>(host: &Prompt, conversation: &'a Json) -> Vec<(&'a str, Value)> {
    let host: Json = serde_json::from_str(&host.text).unwrap();
    let empty = || Value::from("");
    let mut variables = vec![
        ("messages", value(&host["messages"])),
        ("tools", value(&conversation["tools"])),
        ("documents", Value::from(())),
        ("add_generation_prompt", Value::from(conversation["gen"] == true)),
        ("bos_token", empty()),
        ("eos_token", empty()),
    ];
    if !host["tools_yaml"].is_null() {
        variables.push(("tools_yaml", value(&host["tools_yaml"])));
    }
    if let Some(skills) = conversation.get("skills") {
        variables.push(("skills", value(skills)));
    }
    let extra = conversation["kwargs"].as_object().into_iter().flatten();
    variables.extend(extra.map(|(name, json)| (name.as_str(), value(json))));
    variables
}

fn failure(error: llb::error::Error) -> Failure {
    match error.details().and_then(|details| details["kind"].as_str()) {
        Some("raised") => Failure::Raised(error.message().to_owned()),
        _ => Failure::Other(error.message().to_owned()),
    }
}

/// Text that looks like Jinja, tools, calls, results, reasoning, and a role that templates refuse.
fn conversations() -> Vec<Json> {
    let schema = json!({ "type": "object", "properties": { "x": { "type": "number", "default": 2.0 } }, "required": ["x"] });
    let function =
        json!({ "name": "add", "description": "Adds <b>{x}</b> \"so\".", "parameters": schema });
    let tools = json!([{ "type": "function", "function": function }]);
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "add", "arguments": { "x": 1.5 } } });
    let talk = json!([
        { "role": "system", "content": "Be {tools} brief.\\n" },
        { "role": "user", "content": "q1 {{ x }} {% if %} {content}" },
        { "role": "assistant", "content": "", "tool_calls": [call("c1"), call("c2")] },
        { "role": "tool", "content": "r1", "tool_call_id": "c1" },
        { "role": "tool", "content": "r2", "tool_call_id": "c2" },
        { "role": "assistant", "content": "  a1\n", "reasoning_content": "why" },
        { "role": "user", "content": [{ "type": "text", "text": "q2" }] },
    ]);
    vec![
        json!({ "id": "talk", "messages": talk, "tools": tools, "gen": true }),
        json!({ "id": "without tools", "messages": talk, "gen": false }),
        json!({ "id": "one question", "messages": [talk[1]], "gen": true }),
        json!({ "id": "unknown role", "messages": [talk[1], { "role": "narrator", "content": "x" }] }),
    ]
}
