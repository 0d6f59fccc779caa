//! Drafts change no reply: calls in the formats of all templates, and requests to a real model. The
//! sample is small unless `make drafts` sets `LLB_DRAFTED_REQUESTS`.
//!
//! A real model computes several rows in another order than one, so its logits differ a little, and
//! two replies may part where two tokens are nearly equal. So each token is compared with the row
//! that it came from:
//!
//! - Without a grammar, the token is the one that the sampler draws from that row with the next
//!   random number of the seed, or the likeliest one. This is exact, for every token of every reply:
//!   a random generator that is out of step is seen.
//! - With a grammar, a token that is not drawn so must be one that replaced a refused one, in both
//!   replies at the same places. What the grammar allows is not known here.
//! - Up to the place where two replies part, their rows are nearly equal. A row of another position
//!   is seen, an error of the size of rounding is not.
//! - Penalties, DRY and other samplers with a memory are off. src/engine/scheduler/tests/call_drafts.rs
//!   has an exact test of those.

use std::path::Path;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, own_model, real_model};
use crate::conformance_folder::{folder, say};

/// How much the probabilities of the next token may differ by rounding, as the distance of the two
/// distributions.
const MAX_DISTANCE: f64 = 0.25;
/// The same for half of all rows, and for 99 % of them.
const MAX_USUAL_DISTANCES: [f64; 2] = [0.005, 0.1];
/// The sampler of seeded requests keeps this many tokens, at this temperature. A reply has the
/// probabilities of all of them.
const TOP_K: usize = 10;
const TEMPERATURE: f64 = 0.8;
/// The rounding of a sum of a sampler's probabilities.
const ROUNDING: f64 = 1e-5;

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
            "logprobs": true, "top_logprobs": 20 });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    })
}

/// The tokens of a reply with their rows.
fn tokens(reply: &Value) -> &[Value] {
    reply["logprobs"]["content"].as_array().unwrap()
}

fn probability(token: &Value) -> f64 {
    token["logprob"].as_f64().unwrap().exp()
}

/// The probability of a token in the row of another one. 0 if it is not among the likeliest.
fn probability_in(row: &Value, token: &Value) -> f64 {
    let top = row["top_logprobs"].as_array().unwrap();
    let found = top.iter().chain([row]).find(|other| other["bytes"] == token["bytes"]);
    found.map_or(0.0, probability)
}

/// How different two rows are, from 0 to 1.
fn distance(one: &Value, other: &Value) -> f64 {
    let top = one["top_logprobs"].as_array().unwrap();
    let differences = top.iter().map(|it| (probability(it) - probability_in(other, it)).abs());
    differences.sum::<f64>() / 2.0
}

/// Whether the sampler of a seeded request draws this token from its row with this random number.
fn is_drawn(token: &Value, share: f64) -> bool {
    let top = token["top_logprobs"].as_array().unwrap();
    let weight = |it: &Value| probability(it).powf(1.0 / TEMPERATURE);
    let kept = &top[..TOP_K];
    let target = share * kept.iter().map(weight).sum::<f64>();
    let mut passed = 0.0;
    kept.iter().any(|it| {
        let from = passed;
        passed += weight(it);
        it["bytes"] == token["bytes"] && (from - ROUNDING..passed + ROUNDING).contains(&target)
    })
}

/// The places of the tokens that the sampler does not choose from their rows: the grammar has
/// refused its choice, and the sampler has chosen again.
fn replaced(reply: &Value, seed: Option<u64>) -> Vec<usize> {
    let mut random = Pcg64::seed_from_u64(seed.unwrap_or_default());
    let mut share = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut places = Vec::new();
    for (at, token) in tokens(reply).iter().enumerate() {
        let is_chosen = match seed {
            Some(_) => is_drawn(token, share()),
            None => token["bytes"] == token["top_logprobs"][0]["bytes"],
        };
        if !is_chosen {
            places.push(at);
            share();
        }
    }
    places
}

/// Checks that each token of two replies was chosen from its own row, and that the rows are nearly
/// equal as far as the replies are the same. Returns whether the replies part, and the distances of
/// the rows.
#[track_caller]
fn check_rows(request: &Value, replies: &[Value; 2]) -> (bool, Vec<f64>) {
    let seed = request["seed"].as_u64();
    let has_grammar = ["tools", "response_format"].iter().any(|it| request.get(it).is_some());
    let [one, other] = replies.each_ref().map(tokens);
    let [without, with] = replies.each_ref().map(|reply| replaced(reply, seed));
    assert!(
        has_grammar || without.is_empty() && with.is_empty(),
        "{request}: {without:?} {with:?}"
    );
    let same = |at: usize| {
        one[at]["bytes"] == other[at]["bytes"] && without.contains(&at) == with.contains(&at)
    };
    let shorter = one.len().min(other.len());
    let parted = (0..shorter).find(|at| !same(*at));
    let compared = parted.map_or(shorter, |at| at + 1);
    let distances: Vec<f64> = (0..compared).map(|at| distance(&one[at], &other[at])).collect();
    for (at, distance) in distances.iter().enumerate() {
        assert!(*distance < MAX_DISTANCE, "{request} at {at}: {} {}", one[at], other[at]);
    }
    match parted {
        None => assert_eq!(written(&replies[0]), written(&replies[1]), "{request}"),
        // The grammar allows both tokens, so each is the likelier one in its own row.
        Some(at) if seed.is_none() => {
            for (chosen, refused) in [(&one[at], &other[at]), (&other[at], &one[at])] {
                let is_likelier = probability(chosen) >= probability_in(chosen, refused);
                assert!(is_likelier, "{request} at {at}: {chosen} {refused}");
            }
        }
        Some(_) => {}
    }
    (parted.is_some(), distances)
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
    let mut distances = Vec::new();
    for (index, mut request) in requests(count().unwrap_or(5)).enumerate() {
        let seeded = json!({ "temperature": TEMPERATURE, "top_k": TOP_K, "top_p": 1, "min_p": 0,
            "seed": index });
        for sampling in [json!({ "temperature": 0 }), seeded] {
            request.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
            let replies = both(&chats[index % chats.len()], &request);
            tried += 1;
            let [tokens, accepted] = drafted(&replies[1]);
            counts = [counts[0] + tokens, counts[1] + accepted];
            let (parted, of_rows) = check_rows(&request, &replies);
            ties += usize::from(parted);
            distances.extend(of_rows);
        }
    }
    distances.sort_by(f64::total_cmp);
    let at = |share: f64| distances[((distances.len() - 1) as f64 * share) as usize];
    say(&format!(
        "drafts: {tried} real requests, {ties} ties, {} of {} tokens right; distances of {} rows: \
         median {:.4}, 99 % {:.4}, greatest {:.4}",
        counts[1],
        counts[0],
        distances.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    ));
    let [half, most] = MAX_USUAL_DISTANCES;
    assert!(at(0.5) < half && at(0.99) < most, "{} {}", at(0.5), at(0.99));
    assert!(counts[1] * 2 > counts[0] && counts[1] > tried, "{counts:?}");
}
