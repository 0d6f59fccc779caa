//! `llb template diff`: compares the capabilities and prompts of two chat templates.

use clap::Args;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::failure::{FOUND, OK, Result};
use crate::input::{print, print_json};
use crate::template_source::{HELP, TokenArguments, add_template};
use crate::terminal::{Look, Style, printable};
use crate::{abi, input};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(help = HELP)]
    a: String,
    /// Template to compare with
    b: String,
    /// JSON file with messages, or a whole request, to render instead of the built-in conversations
    #[arg(long, value_name = "FILE")]
    messages: Option<std::path::PathBuf>,
    #[command(flatten)]
    tokens: TokenArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let sides = [side(arguments, &arguments.a)?, side(arguments, &arguments.b)?];
    let info = |side: usize, name: &str| {
        abi::template_info(&sides[side]).map_err(|failure| failure.in_template(name))
    };
    let info = [info(0, &arguments.a)?, info(1, &arguments.b)?];
    let facts = facts(&info);
    let conversations = match &arguments.messages {
        None => conversations(),
        Some(path) => vec![("messages", input::conversation(path)?)],
    };
    let prompts: Vec<(&str, [String; 2])> = conversations
        .iter()
        .map(|(name, request)| (*name, [0, 1].map(|side| prompt(&sides[side], request))))
        .filter(|(_, [a, b])| a != b)
        .collect();
    if arguments.json {
        let prompts: Vec<Value> = prompts
            .iter()
            .map(|(name, [a, b])| json!({ "conversation": name, "a": a, "b": b }))
            .collect();
        let facts: Vec<Value> =
            facts.iter().map(|(name, a, b)| json!({ "name": name, "a": a, "b": b })).collect();
        print_json(&json!({ "capabilities": facts, "prompts": prompts }));
    } else {
        report(arguments, &facts, &prompts);
    }
    Ok(if facts.is_empty() && prompts.is_empty() { OK } else { FOUND })
}

fn side(arguments: &Arguments, template: &str) -> Result<Value> {
    let mut request = json!({});
    add_template(&mut request, template, &arguments.tokens)?;
    Ok(request)
}

/// The differing facts: name, first value, second value.
fn facts(info: &[Value; 2]) -> Vec<(String, Value, Value)> {
    let mut facts = Vec::new();
    let mut compare = |name: String, a: &Value, b: &Value| {
        if a != b {
            facts.push((name, a.clone(), b.clone()));
        }
    };
    compare("tool_support".to_owned(), &info[0]["tool_support"], &info[1]["tool_support"]);
    for group in ["caps", "template_caps", "output_format"] {
        for (name, value) in info[0][group].as_object().into_iter().flatten() {
            compare(format!("{group}.{name}"), value, &info[1][group][name]);
        }
    }
    let codes = |info: &Value| -> Vec<Value> {
        info["findings"].as_array().into_iter().flatten().map(|each| each["code"].clone()).collect()
    };
    let (a, b) = (codes(&info[0]), codes(&info[1]));
    for code in a.iter().filter(|code| !b.contains(code)) {
        compare(format!("lint {}", code.as_str().unwrap_or_default()), &json!(true), &json!(false));
    }
    for code in b.iter().filter(|code| !a.contains(code)) {
        compare(format!("lint {}", code.as_str().unwrap_or_default()), &json!(false), &json!(true));
    }
    facts
}

/// The prompt, or why it failed. The messages are rendered unchanged.
fn prompt(template: &Value, conversation: &Value) -> String {
    let mut request = template.clone();
    for (name, value) in conversation.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request["polyfills"] = json!({ "apply_polyfills": false });
    request["now"] = "2026-01-31T09:30:00".into();
    match abi::template_render(&request) {
        Ok(rendered) => rendered["prompt"].as_str().unwrap_or_default().to_owned(),
        Err(failure) => format!("(refused: {})\n", failure.message),
    }
}

fn report(
    arguments: &Arguments,
    facts: &[(String, Value, Value)],
    prompts: &[(&str, [String; 2])],
) {
    let style = Style::stdout();
    for (name, a, b) in facts {
        let (a, b) = (a.to_string(), b.to_string());
        print(&format!(
            "{name}: {} -> {}\n",
            style.paint(Look::Red, &a),
            style.paint(Look::Green, &b)
        ));
    }
    for (name, [a, b]) in prompts {
        let heading = format!("\n--- {} ({name})\n+++ {} ({name})\n", arguments.a, arguments.b);
        print(&style.paint(Look::Strong, &heading));
        for change in TextDiff::from_lines(a, b).iter_all_changes() {
            let (sign, look) = match change.tag() {
                ChangeTag::Delete => ("-", Some(Look::Red)),
                ChangeTag::Insert => ("+", Some(Look::Green)),
                ChangeTag::Equal => (" ", None),
            };
            let line = printable(change.value().trim_end_matches('\n'));
            let end = if change.missing_newline() { "\n\\ no newline at the end" } else { "" };
            let line = format!("{sign}{line}{end}");
            print(&format!("{}\n", look.map_or(line.clone(), |look| style.paint(look, &line))));
        }
    }
}

fn conversations() -> Vec<(&'static str, Value)> {
    let user = json!({ "role": "user", "content": "What is the weather in Paris?" });
    let system = json!({ "role": "system", "content": "Be brief." });
    let tools = json!([{ "type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city", "parameters": {
            "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"],
        },
    } }]);
    let call = json!({ "role": "assistant", "content": "", "tool_calls": [{
        "id": "call00001", "type": "function",
        "function": { "name": "get_weather", "arguments": { "city": "Paris" } },
    }] });
    let result = json!({
        "role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "21 degrees",
    });
    let answer = json!({ "role": "assistant", "content": "It is 21 degrees." });
    let reasoned = json!({
        "role": "assistant", "reasoning_content": "The result says 21.", "content": "21 degrees.",
    });
    let next = json!({ "role": "user", "content": "And tomorrow?" });
    let with = |messages: Value| json!({ "messages": messages, "add_generation_prompt": true });
    let mut with_tools = with(json!([system, user, call, result]));
    with_tools["tools"] = tools.clone();
    let mut declared = with(json!([user]));
    declared["tools"] = tools;
    vec![
        ("one question", with(json!([user]))),
        ("system message", with(json!([system, user]))),
        ("second question", with(json!([user, answer, next]))),
        ("reasoning", with(json!([user, reasoned, next]))),
        ("declared tools", declared),
        ("a call and its result", with_tools),
    ]
}
