//! Drafts change no reply: calls in the formats of all templates, and requests to a real model. The
//! sample is small unless `make drafts` sets `LLB_DRAFTED_REQUESTS`.

use std::path::Path;

use serde_json::{Value, json};

use crate::abi::{Chat, ask, own_model, real_model};
use crate::conformance_folder::{folder, say};

/// How much the probabilities of the next token may differ by rounding, as the distance of the two
/// distributions, and the smallest ratio of the probabilities of two tokens in a tie.
const MAX_DISTANCE: f64 = 0.25;
const MIN_TIE: f64 = 0.6;

/// The number of requests to the real model, of each kind.
fn count() -> Option<usize> {
    std::env::var("LLB_DRAFTED_REQUESTS").ok()?.parse().ok()
}

/// The reply to a request without and with drafts.
fn both(chat: &Chat, request: &Value) -> [Value; 2] {
    ["off", "auto"].map(|choice| {
        let mut request = request.clone();
        request["speculative"] = choice.into();
        chat.infer(&request)
    })
}

/// What the model wrote, without the ids of calls, which are new in every reply.
fn written(reply: &Value) -> Value {
    let calls = reply["tool_calls"].as_array().into_iter().flatten();
    let calls: Vec<Value> = calls.map(|call| json!([call["name"], call["arguments"]])).collect();
    json!([
        reply["text"],
        reply["reasoning_content"],
        calls,
        reply["finish_reason"],
        reply["usage"]["completion_tokens"]
    ])
}

fn drafted(reply: &Value) -> [u64; 2] {
    ["draft_n", "draft_n_accepted"].map(|name| reply["timings"][name].as_u64().unwrap_or_default())
}

fn book_tool() -> Value {
    json!({ "type": "function", "function": { "name": "book_trip", "description": "Books a trip.",
        "parameters": { "type": "object", "required": ["destination", "travel_class", "days"], "properties": {
            "destination": { "type": "string" },
            "travel_class": { "enum": ["first class", "second class"] },
            "days": { "type": "integer" },
            "note": { "type": "string" } } } } })
}

/// The sources of the templates of the conformance set.
fn templates(folder: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = std::fs::read_dir(folder.join("templates"))
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem()?.to_str()?.to_owned();
            (path.extension()? == "jinja").then(|| (name, std::fs::read_to_string(&path).unwrap()))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn calls_of_every_template_are_the_same_with_drafts() {
    let Some(folder) = folder("drafts of calls") else { return };
    let model = own_model("text.gguf");
    let (mut tried, mut refused, mut counts) = (0, 0, [0, 0]);
    let step = if count().is_some() { 1 } else { 8 };
    for (name, template) in templates(&folder).into_iter().step_by(step) {
        let options = json!({ "model": model, "n_ctx": 16384, "n_parallel": 1, "n_threads": 1,
            "chat_template": template, "tool_policy": "any" });
        // Some templates do not compile, and some formats have no calls.
        let Ok(chat) = Chat::open_with(&options) else {
            refused += 1;
            continue;
        };
        for members in [json!({ "temperature": 0 }), json!({ "temperature": 3, "seed": 11 })] {
            let mut request = ask(members);
            request["tools"] = json!([book_tool()]);
            request["tool_choice"] = "required".into();
            request["max_tokens"] = 300.into();
            let [plain, guessed] = both(&chat, &request);
            if plain["type"] == "error" {
                assert_eq!(plain["error"]["code"], guessed["error"]["code"], "{name}");
                refused += 1;
                break;
            }
            assert_eq!(written(&plain), written(&guessed), "{name} {request}");
            assert_eq!(drafted(&plain), [0, 0], "{name}");
            let [tokens, accepted] = drafted(&guessed);
            counts = [counts[0] + tokens, counts[1] + accepted];
            tried += 1;
        }
    }
    say(&format!(
        "drafts: {tried} scripted calls, {refused} refused, {} of {} tokens right",
        counts[1], counts[0]
    ));
    assert!(tried > 30 && counts[1] * 2 > counts[0], "{tried}, {counts:?}");
}

/// Requests of five kinds about different things. The chat's own seed differs in each.
fn requests(count: usize) -> impl Iterator<Item = Value> {
    const PLACES: [&str; 10] = [
        "Paris",
        "Rome",
        "Köln",
        "New York",
        "São Paulo",
        "Kyoto",
        "Oslo",
        "Cape Town",
        "Lima",
        "Hanoi",
    ];
    (0..count).map(|index| {
        let place = PLACES[index / 5 % PLACES.len()];
        let days = 2 + index % 23;
        let trip = format!("Book {days} days in {place}, second class, with the note \"window seat {index}, please\".");
        let schema = json!({ "type": "object", "required": ["city", "country", "sights"], "additionalProperties": false,
            "properties": { "city": { "type": "string", "maxLength": 20 }, "country": { "type": "string", "maxLength": 20 },
                "sights": { "type": "array", "items": { "type": "string", "maxLength": 30 }, "minItems": 2, "maxItems": 3 } } });
        let (content, members) = match index % 5 {
            0 => (trip, json!({ "tools": [book_tool()], "tool_choice": "required" })),
            1 => (trip, json!({ "tools": [book_tool()] })),
            2 => (format!("Describe {place}."), json!({ "response_format": { "type": "json_schema",
                "json_schema": { "name": "place", "schema": schema } } })),
            3 => (format!("Write two sentences about {place} in {days} days."), json!({})),
            _ => {
                let line = |n: usize| format!("    total_{n} = total_{n} + price_of({place:?}, {n})\n");
                let code: String = (0..3 + index % 3).map(line).collect();
                (format!("Repeat this code, with days in place of price_of:\n{code}"), json!({}))
            }
        };
        let mut request = json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 80,
            "logprobs": true, "top_logprobs": 10 });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    })
}

/// The first token that differs, as its position. None if the replies are the same.
fn first_difference(replies: &[Value; 2]) -> Option<usize> {
    let [one, other] =
        replies.each_ref().map(|reply| reply["logprobs"]["content"].as_array().unwrap());
    let differs =
        |at: &usize| one.get(*at).map(|it| &it["token"]) != other.get(*at).map(|it| &it["token"]);
    (0..one.len().max(other.len())).find(differs)
}

/// The probabilities of the likeliest tokens in one place of a reply.
fn likely(reply: &Value, at: usize) -> Vec<(String, f64)> {
    let top = reply["logprobs"]["content"][at]["top_logprobs"].as_array();
    let probability = |it: &Value| (it["token"].to_string(), it["logprob"].as_f64().unwrap().exp());
    top.into_iter().flatten().map(probability).collect()
}

/// Rows of a batch are summed in another order than a single row, so the probabilities differ a
/// little, and a tie may be decided differently. Up to the first difference, both replies must have
/// had the same choices.
#[track_caller]
fn check_tie(replies: &[Value; 2], at: usize, is_greedy: bool, about: &str) {
    let [one, other] = replies.each_ref().map(|reply| likely(reply, at));
    assert!(!one.is_empty() && !other.is_empty(), "{about}: one reply is longer");
    let of_other = |token: &String| other.iter().find(|(it, _)| it == token);
    let differences = one.iter().filter_map(|(token, p)| Some((p - of_other(token)?.1).abs()));
    let distance = differences.sum::<f64>() / 2.0;
    assert!(distance < MAX_DISTANCE, "{about}: {one:?} {other:?}");
    // A token that the grammar refuses may be likelier than both.
    let chosen = replies
        .each_ref()
        .map(|reply| reply["logprobs"]["content"][at]["logprob"].as_f64().unwrap().exp());
    let is_tie = chosen[0].min(chosen[1]) > chosen[0].max(chosen[1]) * MIN_TIE;
    assert!(!is_greedy || is_tie, "{about}: {one:?} {other:?}");
}

#[test]
fn requests_to_a_real_model_are_answered_the_same_with_drafts() {
    let Some(model) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let template = folder("drafts of calls with elements").map(|folder| {
        std::fs::read_to_string(folder.join("templates/lcp.Qwen3-Coder.jinja")).unwrap()
    });
    let open = |template: Option<&str>| {
        let mut options = json!({ "model": model, "n_ctx": 2048, "n_parallel": 1, "n_threads": 1 });
        options["chat_template"] = template.into();
        Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
    };
    let chats = [Some(None), template.as_deref().map(Some)].into_iter().flatten().map(open);
    let chats: Vec<Chat> = chats.collect();
    let (mut tried, mut ties, mut counts) = (0, 0, [0, 0]);
    for (index, mut request) in requests(count().unwrap_or(5)).enumerate() {
        for sampling in [json!({ "temperature": 0 }), json!({ "temperature": 0.8, "seed": index })]
        {
            request.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
            let replies = both(&chats[index % chats.len()], &request);
            tried += 1;
            let [tokens, accepted] = drafted(&replies[1]);
            counts = [counts[0] + tokens, counts[1] + accepted];
            match first_difference(&replies) {
                None => assert_eq!(written(&replies[0]), written(&replies[1]), "{request}"),
                Some(at) => {
                    let is_greedy = sampling["temperature"] == 0;
                    check_tie(&replies, at, is_greedy, &format!("{request} at {at}"));
                    ties += 1;
                }
            }
        }
    }
    say(&format!(
        "drafts: {tried} real requests, {ties} ties, {} of {} tokens right",
        counts[1], counts[0]
    ));
    assert!(counts[1] * 2 > counts[0] && counts[1] > tried, "{counts:?}");
}
