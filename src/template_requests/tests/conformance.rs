//! Parses real outputs (`outputs/parse-cases.jsonl`) as a whole and one character at a time, and
//! compares the messages.

use std::fs;

use serde_json::{Value, json};

use crate::profile::ModelProfile;
use crate::template_requests::parse_by;
use crate::test_support::conformance;
use crate::test_support::random::Random;
use crate::test_support::replies::{drive, lost};

fn arguments(call: &Value) -> Value {
    let text = call["arguments"].as_str().unwrap().trim();
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// The content, reasoning and calls, with texts trimmed.
pub(super) fn view(message: &Value) -> Value {
    let text = |key: &str| message[key].as_str().unwrap_or_default().trim().to_owned();
    let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let call = call.get("function").unwrap_or(call);
        json!([call["name"], arguments(call)])
    });
    json!({ "content": text("content"), "reasoning": text("reasoning_content"), "calls": calls.collect::<Vec<_>>() })
}

#[test]
fn outputs_become_the_expected_messages() {
    let Some(folder) = conformance::folder("outputs") else { return };
    let templates = conformance::templates(&folder);
    let cases = fs::read_to_string(folder.join("outputs/parse-cases.jsonl")).unwrap();
    let (mut right, mut wrong, mut random) = (0, Vec::new(), Random::new(1));
    for case in cases.lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let name = case["template"].as_str().unwrap();
        let sources = &templates[name];
        let params = &case["params"];
        let mut request = json!({
            "chat_template": sources.default,
            "bos_token": sources.bos_token,
            "eos_token": sources.eos_token,
            "output": case["output_text"],
            "tools": case["tools"],
            "tool_choice": params["tool_choice"],
            "parallel_tool_calls": params["parallel_tool_calls"],
            "partial": case["is_partial"],
            "prompt": case["generation_prompt"],
            "enable_thinking": params["enable_thinking"],
            "reasoning_format": params["reasoning_format"],
        });
        if let Some(schema) = params.get("json_schema") {
            request["response_format"] =
                json!({ "type": "json_schema", "json_schema": { "name": "r", "schema": schema } });
        }
        let request = request.to_string();
        let expected = view(&case["expected"]);
        let mut missing = Vec::new();
        let whole = parse_by(&request, |parser, output| {
            let parsed = drive(parser, [output]);
            if let Some(format) = ModelProfile::of(sources).unwrap().format() {
                missing = lost(format, output, &parsed);
            }
            parsed
        });
        let whole = whole.unwrap();
        if !missing.is_empty() {
            conformance::say(&format!(
                "{name}: lost {missing:?}\n  output   {}\n  got      {whole}",
                case["output_text"]
            ));
        }
        let single = parse_by(&request, |parser, output| {
            let single: Vec<String> = output.chars().map(String::from).collect();
            drive(parser, single.iter().map(String::as_str))
        });
        let pieces = parse_by(&request, |parser, output| drive(parser, random.pieces(output)));
        // Ids are generated, so they are not compared.
        let texts = |reply: &Value| {
            (view(&reply["message"]), reply["diagnostics"].clone(), reply["complete"].clone())
        };
        assert_eq!(texts(&single.unwrap()), texts(&whole), "{name}: cut into characters");
        assert_eq!(texts(&pieces.unwrap()), texts(&whole), "{name}: cut at random");
        let got = view(&whole["message"]);
        if got == expected {
            right += 1;
        } else {
            wrong.push(format!(
                "{name}: {}\n  output   {}\n  prompt   {}\n  expected {expected}\n  got      {got}\n  {}",
                case["note"], case["output_text"], case["generation_prompt"], whole["diagnostics"]
            ));
        }
    }
    conformance::say(&format!(
        "{right} of {} outputs became the expected message",
        right + wrong.len()
    ));
    if conformance::shows() {
        wrong.iter().for_each(|case| conformance::say(case));
    }
    assert!(wrong.is_empty(), "{} outputs did not become the expected message", wrong.len());
}

/// Whether each text and call of a message begins with the corresponding one of an earlier message.
fn extends(longer: &Value, shorter: &Value) -> bool {
    let text = |longer: &Value, shorter: &Value| {
        longer.as_str().unwrap_or_default().starts_with(shorter.as_str().unwrap_or_default())
    };
    let calls = |message: &Value| message["tool_calls"].as_array().cloned().unwrap_or_default();
    let (more, fewer) = (calls(longer), calls(shorter));
    let grown = |(longer, shorter): (&Value, &Value)| {
        let (longer, shorter) = (&longer["function"], &shorter["function"]);
        longer["name"] == shorter["name"] && text(&longer["arguments"], &shorter["arguments"])
    };
    text(&longer["content"], &shorter["content"])
        && text(&longer["reasoning_content"], &shorter["reasoning_content"])
        && fewer.len() <= more.len()
        && more.iter().zip(&fewer).all(grown)
}

#[test]
fn a_longer_beginning_of_an_output_only_adds_to_its_message() {
    let Some(folder) = conformance::folder("outputs") else { return };
    let templates = conformance::templates(&folder);
    let cases = fs::read_to_string(folder.join("outputs/parse-cases.jsonl")).unwrap();
    let mut checked = 0;
    for case in cases.lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let name = case["template"].as_str().unwrap();
        let sources = &templates[name];
        let message = |output: &str, partial: bool| {
            let request = json!({
                "chat_template": sources.default,
                "output": output,
                "tools": case["tools"],
                "partial": partial,
                "prompt": case["generation_prompt"],
            });
            let parsed = parse_by(&request.to_string(), |mut parser, output| {
                parser.push(output);
                parser.finish().1
            });
            parsed.unwrap()["message"].take()
        };
        let output = case["output_text"].as_str().unwrap();
        let mut last = message("", true);
        // Long outputs are cut at fewer positions.
        let ends = output.char_indices().map(|(at, c)| at + c.len_utf8());
        for end in ends.step_by(1 + output.len() / 300) {
            let longer = message(&output[..end], true);
            assert!(extends(&longer, &last), "{name}: {:?}: {last}, then {longer}", &output[..end]);
            last = longer;
            checked += 1;
        }
        let whole = message(output, false);
        assert!(extends(&whole, &last), "{name}: {output:?}: {last}, then {whole}");
    }
    assert!(checked > 10_000);
}
