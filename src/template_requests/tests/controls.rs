//! Inserts control tokens at random places of real outputs. None of them may reach a message.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};

use super::conformance::view;
use crate::output::{ControlSpellings, Delta, ParsedReply, ReplyParser};
use crate::profile::ModelProfile;
use crate::template_requests::parse_by;
use crate::test_support::conformance;
use crate::test_support::random::Random;
use crate::test_support::replies::drive;

/// Tokens that no template mentions.
const FOREIGN: [&str; 3] = ["<|zz_pad|>", "<｜zz▁end｜>", "[zz_7]"];

fn request(case: &Value, sources: &crate::template::Sources) -> Value {
    let params = &case["params"];
    json!({
        "chat_template": sources.default,
        "bos_token": sources.bos_token,
        "eos_token": sources.eos_token,
        "output": case["output_text"],
        "tools": case["tools"],
        "tool_choice": params["tool_choice"],
        "partial": case["is_partial"],
        "prompt": case["generation_prompt"],
        "reasoning_format": params["reasoning_format"],
    })
}

/// The text with tokens inserted at random places outside of its own tokens, split at the tokens.
/// Every second piece is a token.
fn with_tokens(text: &str, tokens: &[String], random: &mut Random) -> Vec<String> {
    let inside = |at: usize| {
        let mut found = tokens.iter().flat_map(|token| {
            text.match_indices(token.as_str()).map(move |(start, _)| start..start + token.len())
        });
        found.any(|token| token.start < at && at < token.end)
    };
    let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let places: Vec<usize> = places.filter(|at| !inside(*at)).collect();
    let mut cuts: Vec<usize> = (0..3).map(|_| places[random.below(places.len())]).collect();
    cuts.sort_unstable();
    let (mut pieces, mut from) = (Vec::new(), 0);
    for cut in cuts {
        pieces.extend([text[from..cut].to_owned(), tokens[random.below(tokens.len())].clone()]);
        from = cut;
    }
    pieces.push(text[from..].to_owned());
    pieces
}

/// Feeds a reply in which every second piece is a control token.
fn by_tokens(mut parser: ReplyParser, pieces: &[String], tokens: &[String]) -> ParsedReply {
    let check = |deltas: Vec<Delta>| {
        let shown = format!("{deltas:?}");
        assert!(tokens.iter().all(|token| !shown.contains(token.as_str())), "{shown}");
    };
    for (index, piece) in pieces.iter().enumerate() {
        check(match index % 2 {
            0 => parser.push(piece),
            _ => parser.push_control(piece),
        });
    }
    let (last, parsed) = parser.finish();
    check(last);
    parsed
}

/// Every text of a message.
fn shown(message: &Value) -> String {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls
        .map(|call| format!("{}\n{}", call["function"]["name"], call["function"]["arguments"]));
    format!(
        "{}\n{}\n{}",
        message["content"],
        message["reasoning_content"],
        calls.collect::<Vec<_>>().join("\n")
    )
}

#[test]
fn control_tokens_in_outputs_reach_no_message() {
    let Some(folder) = conformance::folder("outputs") else { return };
    let templates = conformance::templates(&folder);
    let cases = fs::read_to_string(folder.join("outputs/parse-cases.jsonl")).unwrap();
    let mut random = Random::new(19);
    for case in cases.lines() {
        let case: Value = serde_json::from_str(case).unwrap();
        let name = case["template"].as_str().unwrap();
        let sources = &templates[name];
        let mut request = request(&case, sources);
        let output = case["output_text"].as_str().unwrap().to_owned();
        let expected = parse_by(&request.to_string(), |parser, output| drive(parser, [output]));
        let expected = view(&expected.unwrap()["message"]);
        let foreign: Vec<String> = FOREIGN.map(str::to_owned).to_vec();
        let pieces = with_tokens(&output, &foreign, &mut random);
        // Tokens spelled in text.
        request["output"] = pieces.concat().into();
        let spelt = parse_by(&request.to_string(), |mut parser, output| {
            parser.expect_control_spellings(&Arc::new(ControlSpellings::new(foreign.clone())));
            drive(parser, random.pieces(output))
        });
        let spelt = spelt.unwrap();
        assert_eq!(view(&spelt["message"]), expected, "{name}: {pieces:?}");
        assert!(spelt["diagnostics"].to_string().contains("control_token_removed"), "{spelt}");
        // Tokens passed as tokens.
        let tokens =
            parse_by(&request.to_string(), |parser, _| by_tokens(parser, &pieces, &foreign));
        assert_eq!(view(&tokens.unwrap()["message"]), expected, "{name}: {pieces:?}");
        // The format's own tags. Tags of reasoning stay if reasoning stays in the content.
        if case["params"]["reasoning_format"] == "none" {
            continue;
        }
        let profile = ModelProfile::of(sources).unwrap();
        let texts = profile.format().map(|format| format.texts()).unwrap_or_default();
        let own: Vec<String> = texts
            .iter()
            .flat_map(|text| text.split_inclusive(['>', ']']))
            .map(|text| text.trim().to_owned())
            .filter(|text| {
                text.len() > 5 && text.starts_with(['<', '[']) && text.ends_with(['>', ']'])
            })
            .filter(|text| !text.contains(char::is_whitespace) && !text.contains(['{', '"']))
            .collect();
        if own.is_empty() {
            continue;
        }
        let spellings = Arc::new(ControlSpellings::new(own.clone()));
        let text = with_tokens(&output, &own, &mut random).concat();
        request["output"] = text.clone().into();
        let parse = |pieces: Vec<&str>| {
            let parsed = parse_by(&request.to_string(), |mut parser, _| {
                parser.expect_control_spellings(&spellings);
                drive(parser, pieces)
            });
            parsed.unwrap()
        };
        let whole = parse(vec![&text]);
        assert_eq!(
            view(&parse(random.pieces(&text))["message"]),
            view(&whole["message"]),
            "{text:?}"
        );
        let shown = shown(&whole["message"]);
        let leaked = own.iter().find(|token| shown.contains(token.as_str()));
        assert!(leaked.is_none(), "{name}: {leaked:?} of {text:?} in {shown}");
    }
}
