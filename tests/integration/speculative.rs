//! Tests speculative decoding: a reply is the same with and without it, for every drafter, whether
//! its drafts are right or wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use llb::ffi;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::abi::{Chat, Recorder, ask, own_model, real_model, scripted_model, weather_tool};
use crate::scripted::{Model, TEXT, TEXT_PIECES, TOOLS_TEMPLATE, long_text, text_model};

fn write(folder: &TempDir, name: &str, model: &Model) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, model.to_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Generates `A1 B2 C3 D4 B2 C3 D4 …` without end. Prompt lookup drafts correctly from the second
/// cycle on.
fn cycle() -> Model {
    let pieces = ["A1 ", "B2 ", "C3 ", "D4 "];
    Model { continues_with: Some(1), ..Model::new("Scripted cycle", pieces, Some(TOOLS_TEMPLATE)) }
}

/// A model that generates the pieces of another one in reverse order, with the same vocabulary. As
/// a draft model it is always wrong.
fn backwards(model: Model) -> Model {
    Model { order: model.order.iter().rev().copied().collect(), continues_with: None, ..model }
}

fn open(model: &str, members: Value) -> Chat {
    let mut options = json!({ "model": model, "n_ctx": 1024 });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// Removes the ids of calls, which are new in every reply.
fn without_ids(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("id");
            members.values_mut().for_each(without_ids);
        }
        Value::Array(items) => items.iter_mut().for_each(without_ids),
        _ => {}
    }
}

/// The reply without members that differ between runs, and the numbers of drafted and accepted
/// tokens.
fn reply_and_drafts(chat: &Chat, request: &Value) -> (Value, Option<(u64, u64)>) {
    let recorder = Recorder::default();
    let mut reply = chat.stream(request, &recorder);
    assert_eq!(recorder.lines().concat(), reply["text"].as_str().unwrap(), "{reply}");
    let timings = reply.as_object_mut().unwrap().remove("timings").unwrap();
    let drafted = timings["draft_n"].as_u64().zip(timings["draft_n_accepted"].as_u64());
    if let Some(details) = reply["usage"]["completion_tokens_details"].as_object_mut() {
        let accepted = details.remove("accepted_prediction_tokens").and_then(|n| n.as_u64());
        let rejected = details.remove("rejected_prediction_tokens").and_then(|n| n.as_u64());
        let counts = accepted.zip(rejected).map(|(right, wrong)| (right + wrong, right));
        assert_eq!(counts, drafted, "usage and timings");
        if details.is_empty() {
            reply["usage"].as_object_mut().unwrap().remove("completion_tokens_details");
        }
    }
    // Chats of the same model share what is cached.
    if let Some(usage) = reply["usage"].as_object_mut() {
        usage.remove("prompt_tokens_details");
    }
    without_ids(&mut reply);
    (reply, drafted)
}

/// Requests with rules that must all apply token by token.
fn requests() -> Vec<Value> {
    let wild = json!({ "temperature": 100.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 5, "max_tokens": 60 });
    let schema = json!({ "type": "object", "properties": { "n": { "type": "string" } }, "required": ["n"], "additionalProperties": false });
    let members = [
        json!({}),
        json!({ "temperature": 0.7, "seed": 3 }),
        wild,
        json!({ "max_tokens": 1 }),
        json!({ "max_tokens": 2 }),
        json!({ "max_tokens": 7 }),
        json!({ "stop": [" 3", "C3 D", "Köln", "drei"] }),
        json!({ "logprobs": true, "top_logprobs": 3, "max_tokens": 20 }),
        json!({ "logit_bias": { "97": 100 }, "max_tokens": 40 }),
        json!({ "repeat_penalty": 50.0, "max_tokens": 30 }),
        json!({ "reasoning_budget": 2, "max_tokens": 40 }),
        json!({ "grammar": "start: /[A-Za-z0-9 :]{5,40}/ \"!\"" }),
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "n", "schema": schema } } }),
        json!({ "tools": [weather_tool()], "tool_choice": "required" }),
    ];
    members.into_iter().map(ask).collect()
}

#[test]
fn a_reply_is_the_same_for_every_speculation() {
    let folder = tempfile::tempdir().unwrap();
    let cycle_path = write(&folder, "cycle.gguf", &cycle());
    let [text, long, reasoning, tool_call] =
        ["text.gguf", "long.gguf", "reasoning.gguf", "tool_call.gguf"].map(own_model);
    let wrong_text = write(&folder, "wrong_text.gguf", &backwards(text_model()));
    let wrong_cycle = write(&folder, "wrong_cycle.gguf", &backwards(cycle()));
    let lookup = json!({ "speculative": { "type": "ngram", "n_max": 8, "ngram": 2 } });
    let drafted_by = |model: &str| json!({ "draft_model": model, "speculative": { "n_max": 5 } });
    // The model, its speculation, and whether the drafts for its greedy reply are right.
    let cases = [
        (&cycle_path, lookup.clone(), true),
        (&cycle_path, drafted_by(&cycle_path), true),
        (&cycle_path, drafted_by(&wrong_cycle), false),
        (&text, drafted_by(&text), true),
        (&text, drafted_by(&wrong_text), false),
        (&long, drafted_by(&long), true),
        (&reasoning, drafted_by(&reasoning), true),
        (&tool_call, lookup, true),
        (&tool_call, json!({}), true),
        (&text, json!({}), true),
        (&cycle_path, json!({ "speculative": "auto" }), true),
    ];
    for (model, speculation, right) in cases {
        let plain = open(model, json!({ "speculative": "off" }));
        let guessing = open(model, speculation.clone());
        let mut all = (0, 0);
        for (index, request) in requests().iter().enumerate() {
            let (expected, none) = reply_and_drafts(&plain, request);
            assert_eq!(none, None, "without speculation the timings have no guesses");
            let (reply, drafted) = reply_and_drafts(&guessing, request);
            assert_eq!(reply, expected, "{model} {speculation} {request}");
            let mut unguessed = request.clone();
            unguessed["speculative"] = "off".into();
            assert_eq!(reply_and_drafts(&guessing, &unguessed), (expected, None));
            // By default, guesses are counted only if there are any.
            let is_default = speculation == json!({}) || speculation["speculative"] == "auto";
            let is_counted = drafted.is_some() || is_default;
            assert!(is_counted, "the timings have the number of guesses");
            let (tokens, accepted) = drafted.unwrap_or_default();
            assert!(accepted <= tokens, "{accepted} of {tokens}");
            all = (all.0 + tokens, all.1 + accepted);
            let greedy = index == 0;
            let (looked_up, lookup_hits) = (speculation["draft_model"].is_null(), tokens > 0);
            if greedy && (!looked_up || lookup_hits) {
                let most = if right { (tokens, tokens) } else { (tokens, 0) };
                assert_eq!((tokens, accepted), most, "{model} {speculation}");
                assert!(tokens > 0, "{model} {speculation}");
            }
        }
        assert!(all.0 > 0, "{model} {speculation}: tokens are guessed");
    }
}

#[test]
fn right_guesses_save_decodes_and_wrong_ones_become_rare() {
    let folder = tempfile::tempdir().unwrap();
    let model = write(&folder, "cycle.gguf", &cycle());
    let wrong = write(&folder, "wrong.gguf", &backwards(cycle()));
    let request = ask(json!({ "max_tokens": 400 }));
    let (_, right) = reply_and_drafts(&open(&model, json!({ "speculative": "ngram" })), &request);
    let (tokens, accepted) = right.unwrap();
    // After the first cycle, drafts of six tokens are accepted, each followed by one sampled token.
    assert!(accepted == tokens && (330..=345).contains(&accepted), "{accepted} of {tokens}");
    let (_, default) = reply_and_drafts(&open(&model, json!({})), &request);
    let (tokens, accepted) = default.unwrap();
    assert!(accepted == tokens && accepted > 330, "{accepted} of {tokens}");
    let (_, bad) = reply_and_drafts(&open(&model, json!({ "draft_model": wrong })), &request);
    let (tokens, accepted) = bad.unwrap();
    assert!(accepted == 0 && tokens < 40, "{accepted} of {tokens}");
}

#[test]
fn many_chats_guess_in_one_batch() {
    let model = scripted_model("long.gguf");
    let options = json!({ "n_ctx": 2048, "n_parallel": 3, "n_batch": 64, "draft_model": model });
    let chats: Vec<Chat> = (0..7).map(|_| open(&model, options.clone())).collect();
    std::thread::scope(|scope| {
        for chat in &chats {
            scope.spawn(|| {
                for _ in 0..2 {
                    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 400 })))["text"], long_text());
                }
            });
        }
    });
}

#[test]
fn a_cancel_between_guesses_leaves_a_sound_cache() {
    let model = scripted_model("long.gguf");
    for options in [json!({ "draft_model": model }), json!({ "speculative": "ngram" })] {
        let chat = open(&model, options);
        for after in [0, 1, 4, 9] {
            let handle = chat.handle().addr();
            let pieces = AtomicUsize::new(0);
            let recorder = Recorder::reacting(move |_| {
                if pieces.fetch_add(1, Ordering::Relaxed) == after {
                    ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
                }
            });
            let reply = chat.stream(&ask(json!({ "max_tokens": 400 })), &recorder);
            assert!(long_text().starts_with(reply["text"].as_str().unwrap()), "{reply}");
        }
        let reply = chat.infer(&ask(json!({ "max_tokens": 400 })));
        assert_eq!(reply["text"], long_text());
        assert!(reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_guess_never_leaves_the_context() {
    let model = scripted_model("long.gguf");
    let plain = open(&model, json!({ "n_ctx": 256, "speculative": "off" }));
    let guessing =
        open(&model, json!({ "n_ctx": 256, "draft_model": model, "speculative": { "n_max": 32 } }));
    let request = ask(json!({ "max_tokens": 100_000 }));
    assert_eq!(reply_and_drafts(&plain, &request).0, reply_and_drafts(&guessing, &request).0);
    assert_eq!(reply_and_drafts(&guessing, &request).0["finish_reason"], "length");
}

#[test]
fn a_draft_model_must_have_the_models_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let mut other: Vec<Vec<u8>> = TEXT_PIECES.iter().map(|piece| piece.to_vec()).collect();
    other[5] = b"something else".to_vec();
    let other = write(&folder, "other.gguf", &Model::new("Other", other, Some(TOOLS_TEMPLATE)));
    let not_gguf = folder.path().join("noise.gguf");
    std::fs::write(&not_gguf, "noise").unwrap();
    let cases = [
        (
            scripted_model("tool_call.gguf"),
            "a draft model needs the vocabulary of the main model, but it has",
        ),
        (other, "a draft model needs the vocabulary of the main model, but token 2"),
        (scripted_model("truncated.gguf"), "the file is cut short"),
        (folder.path().join("none.gguf").to_str().unwrap().to_owned(), "none.gguf: "),
        (not_gguf.to_str().unwrap().to_owned(), "noise.gguf: "),
    ];
    for (draft, says) in cases {
        let options =
            json!({ "model": scripted_model("text.gguf"), "n_ctx": 512, "draft_model": draft });
        let refused = Chat::open_with(&options).err().expect(says);
        assert_eq!(refused.code(), "INVALID_REQUEST");
        assert!(
            refused.message().starts_with("draft_model: ") && refused.message().contains(says),
            "{refused:?}"
        );
        assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
    }
    assert_eq!(open(&scripted_model("text.gguf"), json!({})).infer(&ask(json!({})))["text"], TEXT);
}

#[test]
fn a_real_model_replies_the_same() {
    let Some(model) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let code = "fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n";
    let question =
        format!("Repeat this code, with the name sum in place of add:\n```rust\n{code}```");
    let request = json!({ "messages": [{ "role": "user", "content": question }], "temperature": 0, "max_tokens": 48 });
    let options = |members: Value| {
        let mut options = json!({ "n_ctx": 1024, "n_parallel": 1, "n_threads": 1 });
        options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        options
    };
    let plain = open(&model, options(json!({ "speculative": "off" })));
    let expected = reply_and_drafts(&plain, &request).0;
    for speculation in [json!({ "speculative": "ngram" }), json!({ "draft_model": model })] {
        let (reply, drafted) =
            reply_and_drafts(&open(&model, options(speculation.clone())), &request);
        assert_eq!(reply, expected, "{speculation}");
        let (_, accepted) = drafted.unwrap();
        assert!(accepted > 10, "{speculation}: {drafted:?}");
    }
}

#[test]
fn a_real_model_replies_the_same_where_its_text_is_certain() {
    let Some(model) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let open = |speculative: &str| {
        open(
            &model,
            json!({ "n_parallel": 1, "n_threads": 1, "speculative": speculative, "n_ctx": 1024 }),
        )
    };
    let (plain, drafting) = (open("off"), open("auto"));
    let schema = json!({ "type": "object", "required": ["name", "age"], "additionalProperties": false,
        "properties": { "name": { "type": "string", "maxLength": 20 }, "age": { "type": "integer" } } });
    let members = [
        json!({ "tools": [weather_tool()], "tool_choice": "required" }),
        json!({ "tools": [weather_tool()], "tool_choice": "required", "temperature": 1, "seed": 5 }),
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "n", "schema": schema } } }),
    ];
    for members in members {
        let mut request = json!({ "temperature": 0, "max_tokens": 60, "messages": [
            { "role": "user", "content": "What is the weather in Paris? Ann, aged 9, asks." } ] });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let (expected, none) = reply_and_drafts(&plain, &request);
        assert_eq!(none, None);
        let (reply, drafted) = reply_and_drafts(&drafting, &request);
        assert_eq!(reply, expected);
        let (tokens, accepted) = drafted.unwrap();
        // Only the last token of a certain text may be a longer one.
        assert!(accepted >= 6 && accepted + 3 >= tokens, "{accepted} of {tokens}: {reply}");
    }
}
