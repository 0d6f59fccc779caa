//! The shared templates in minijinja, compared with the goldens of transformers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use llb::template::LocalTime;
use minijinja::value::Value;
use serde_json::{Map, Value as Json};

use crate::differences::{Difference, How, Known};
use crate::engine::{Engine, Failure, value};
use crate::{compressed_json_lines, conformance, shows_all};

/// The special tokens of a template, and the error if it does not compile.
struct Template {
    bos_token: Value,
    eos_token: Value,
    broken: Option<Failure>,
}

/// The variables of a conversation.
struct Context {
    variables: Vec<(String, Value)>,
    now: LocalTime,
    /// `continue_final_message`: transformers cuts the prompt, so the bare render is compared.
    continued: bool,
}

#[test]
fn shared_templates_render_as_in_transformers() {
    let Some(root) = conformance("shared templates in minijinja") else { return };
    let mut engine = Engine::new(true);
    let templates = templates(&root, &mut engine);
    let contexts = contexts(&root);
    let mut known = Known::read();
    let mut unlisted = Vec::new();
    let mut inexact = BTreeSet::new();
    // Prompts and refusals: all, and the equal ones.
    let mut counts = [[0; 2]; 2];
    for golden in compressed_json_lines(&root.join("goldens.jsonl.gz")) {
        let [template, context] =
            ["template", "context"].map(|name| golden[name].as_str().unwrap());
        let outcome = render(&engine, template, &templates[template], &contexts[context]);
        let golden = match golden.get("raw") {
            Some(raw) if contexts[context].continued => raw,
            _ => &golden,
        };
        let refused = golden["ok"] != true;
        let [all, equal] = &mut counts[usize::from(refused)];
        *all += 1;
        let Some((how, error, shown)) = difference(golden, &outcome) else {
            *equal += 1;
            continue;
        };
        if !refused {
            inexact.insert(template.to_owned());
        }
        let difference = Difference { how, template, context, error, shown };
        match known.explain(&difference) {
            Some(rule) if shows_all() => eprintln!("{rule}: {difference}"),
            Some(_) => {}
            None => unlisted.push(difference.to_string()),
        }
    }
    let [[prompts, equal], [refusals, same]] = counts;
    let (of, exact) = (templates.len(), templates.len() - inexact.len());
    eprintln!(
        "minijinja: {equal} of {prompts} prompts and {same} of {refusals} refusals as in transformers"
    );
    eprintln!("minijinja: {exact} of {of} templates with every prompt as in transformers");
    for (rule, renders, templates) in known.counts() {
        eprintln!("  {rule}: {renders} renders of {templates} templates");
    }
    let first = &unlisted[..unlisted.len().min(if shows_all() { usize::MAX } else { 10 })];
    assert!(
        unlisted.is_empty(),
        "{} differences are not in differences.json:\n{}",
        unlisted.len(),
        first.join("\n")
    );
    let whole = include_str!("../data/conformance/templates.tsv").lines().count() - 1;
    if of < whole {
        return eprintln!("skipped: counts of differences.json: they are of {whole} templates");
    }
    let stale = known.stale();
    assert!(stale.is_empty(), "differences.json is out of date:\n{}", stale.join("\n"));
}

fn templates(root: &Path, engine: &mut Engine) -> BTreeMap<String, Template> {
    let table = fs::read_to_string(root.join("templates.tsv")).unwrap();
    let mut rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let titles = rows.next().unwrap();
    let column = |title: &str| titles.iter().position(|known| *known == title).unwrap();
    let [name, bos_token, eos_token] = ["name", "bos_token", "eos_token"].map(column);
    let templates = rows.map(|row| {
        let source =
            fs::read_to_string(root.join("templates").join(format!("{}.jinja", row[name])))
                .unwrap();
        let broken = engine.compile(row[name], &source).err();
        let [bos_token, eos_token] = [row[bos_token], row[eos_token]].map(Value::from);
        (row[name].to_owned(), Template { bos_token, eos_token, broken })
    });
    templates.collect()
}

fn contexts(root: &Path) -> BTreeMap<String, Context> {
    let files = fs::read_dir(root.join("contexts")).unwrap();
    let contexts = files.map(|file| {
        let json: Json = serde_json::from_slice(&fs::read(file.unwrap().path()).unwrap()).unwrap();
        let messages = json["messages"].as_array().unwrap().iter().map(prepared).collect();
        let mut variables = vec![("messages".to_owned(), value(&Json::Array(messages)))];
        // transformers passes None for an absent member.
        for name in ["tools", "documents", "add_generation_prompt"] {
            variables.push((name.to_owned(), value(&json[name])));
        }
        let extra = json["kwargs"].as_object().unwrap();
        variables.extend(extra.iter().map(|(name, json)| (name.clone(), value(json))));
        let now = LocalTime::parse(json["now"].as_str().unwrap()).unwrap();
        let continued = json["continue_final_message"] == true;
        (json["name"].as_str().unwrap().to_owned(), Context { variables, now, continued })
    });
    contexts.collect()
}

/// The message that transformers 5.23 passes to the template: reasoning has two names.
fn prepared(message: &Json) -> Json {
    let mut message: Map<String, Json> = message.as_object().unwrap().clone();
    let names = ["reasoning_content", "thinking", "reasoning"];
    let reasoning =
        names.iter().find_map(|name| message.get(*name).filter(|value| !value.is_null()).cloned());
    if let Some(reasoning) = reasoning {
        message.entry("thinking").or_insert_with(|| reasoning.clone());
        message.insert("reasoning_content".to_owned(), reasoning);
    }
    Json::Object(message)
}

/// The outcome, and whether the template compiles.
fn render(
    engine: &Engine,
    name: &str,
    template: &Template,
    context: &Context,
) -> (bool, Result<String, Failure>) {
    if let Some(broken) = &template.broken {
        return (false, Err(broken.clone()));
    }
    let tokens =
        [("bos_token", template.bos_token.clone()), ("eos_token", template.eos_token.clone())];
    let variables = context.variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
    // Variables of the context replace the tokens.
    (true, engine.render(name, tokens.into_iter().chain(variables), context.now))
}

/// Compares an outcome with its golden: how they differ, the error of the side that fails, and both
/// outcomes as text.
fn difference<'a>(
    golden: &'a Json,
    (compiled, outcome): &'a (bool, Result<String, Failure>),
) -> Option<(How, &'a str, String)> {
    let expected = &golden["error"];
    let wanted = expected["message"].as_str().unwrap_or_default();
    let raises = expected["kind"] == "raise_exception";
    match (golden["text"].as_str(), outcome) {
        (_, Err(failure)) if !compiled => {
            Some((How::Syntax, failure.message(), failure.message().to_owned()))
        }
        (Some(text), Ok(ours)) if text == ours => None,
        (Some(text), Ok(ours)) => Some((How::Text, "", first_difference(text, ours))),
        (Some(_), Err(failure)) => {
            Some((How::Fails, failure.message(), failure.message().to_owned()))
        }
        (None, Ok(_)) => Some((How::Renders, wanted, format!("Jinja2 fails: {wanted}"))),
        (None, Err(Failure::Raised(message))) if raises && message == wanted => None,
        (None, Err(Failure::Other(_))) if !raises => None,
        (None, Err(failure)) => {
            Some((How::Message, wanted, format!("{failure:?}, Jinja2 fails: {wanted}")))
        }
    }
}

fn first_difference(expected: &str, text: &str) -> String {
    let same = expected.chars().zip(text.chars()).take_while(|(a, b)| a == b).count();
    let [expected, text] = [expected, text]
        .map(|text| text.chars().skip(same.saturating_sub(15)).take(50).collect::<String>());
    format!("{text:?}, Jinja2 {expected:?}")
}
