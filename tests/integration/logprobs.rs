//! Tests log probabilities.

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, real_model, scripted_model, weather_tool};
use crate::scripted::{TEXT, TOOL_CALL};

const QWEN: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

fn entries(reply: &Value) -> Vec<Value> {
    reply["logprobs"]["content"].as_array().unwrap_or_else(|| panic!("{reply}")).clone()
}

fn spelt(entries: &[Value]) -> Vec<u8> {
    let bytes = |entry: &Value| {
        entry["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect()
    };
    entries.iter().flat_map(|entry| -> Vec<u8> { bytes(entry) }).collect()
}

/// Checks that there is one entry per token, with `n_top` alternatives whose probabilities add up
/// to at most one.
#[track_caller]
fn check(reply: &Value, n_top: usize) -> Vec<Value> {
    let entries = entries(reply);
    assert_eq!(reply["usage"]["completion_tokens"], entries.len());
    for entry in &entries {
        let logprob = |entry: &Value| {
            entry["logprob"]
                .as_f64()
                .filter(|value| *value <= 1e-9)
                .unwrap_or_else(|| panic!("{entry}"))
        };
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), n_top, "{entry}");
        let sum: f64 = top.iter().map(|each| logprob(each).exp()).sum();
        assert!(sum <= 1.0 + 1e-6 && logprob(entry).is_finite(), "{entry}");
        assert!(top.windows(2).all(|pair| logprob(&pair[0]) >= logprob(&pair[1])), "{entry}");
        let bytes = spelt(std::slice::from_ref(entry));
        assert_eq!(entry["token"], String::from_utf8_lossy(&bytes).as_ref());
    }
    entries
}

/// Streams chunks. Returns the reply, and the log probabilities of each chunk with its delta.
fn chunks(chat: &Chat, members: Value) -> (Value, Vec<(Value, Vec<Value>)>) {
    let recorder = Recorder::default();
    let mut request = ask(json!({ "logprobs": true, "stream_format": "chunks" }));
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let reply = chat.stream(&request, &recorder);
    let choices = recorder
        .lines()
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["choices"][0].clone())
        .collect::<Vec<_>>();
    let of = |choice: &Value| choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    (reply, choices.iter().map(|choice| (choice["delta"].clone(), of(choice))).collect())
}

#[test]
fn every_token_of_a_reply_has_one() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    assert_eq!(chat.infer(&ask(json!({ "logprobs": false })))["logprobs"], Value::Null);
    for n_top in [0, 1, 20] {
        let reply = chat.infer(&ask(json!({ "logprobs": true, "top_logprobs": n_top })));
        assert_eq!(reply["text"], TEXT);
        let entries = check(&reply, n_top);
        assert_eq!(spelt(&entries), TEXT.as_bytes());
        // The first token ends inside a character.
        assert_eq!(
            (&entries[0]["token"], &entries[0]["bytes"]),
            (&json!("Gr\u{FFFD}"), &json!([71, 114, 195]))
        );
    }
    assert_eq!(check(&chat.infer(&ask(json!({ "logprobs": true }))), 0).len(), 12);
}

#[test]
fn they_are_the_models_own_before_any_sampling_rule() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let plain = entries(&chat.infer(&ask(json!({ "logprobs": true, "max_tokens": 1 }))));
    for members in [
        json!({ "temperature": 2.0, "top_k": 1 }),
        json!({ "min_p": 0.9 }),
        json!({ "presence_penalty": 2.0 }),
    ] {
        let mut request = ask(json!({ "logprobs": true, "max_tokens": 1, "seed": 1 }));
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        assert_eq!(entries(&chat.infer(&request)), plain, "{members}");
    }
    // A bias forces a token that the model considers unlikely.
    let reply = chat.infer(&ask(json!({ "logprobs": true, "max_tokens": 1, "top_logprobs": 1, "logit_bias": { "97": 100 } })));
    let forced = &entries(&reply)[0];
    assert!(forced["token"] == "a" && forced["logprob"].as_f64().unwrap() < -10.0, "{forced}");
    assert_eq!(forced["top_logprobs"][0]["bytes"], plain[0]["bytes"]);
}

#[test]
fn chunks_carry_them_with_the_text() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let (reply, chunks) = chunks(&chat, json!({}));
    assert_eq!(
        chunks.iter().flat_map(|(_, logprobs)| logprobs.clone()).collect::<Vec<_>>(),
        check(&reply, 0)
    );
    // A token is sent with the text that contains its last byte.
    let lengths: Vec<usize> =
        entries(&reply).iter().map(|entry| spelt(std::slice::from_ref(entry)).len()).collect();
    let (mut text, mut bytes, mut tokens) = (0, 0, 0);
    for (delta, logprobs) in &chunks {
        text += delta["content"].as_str().map_or(0, str::len);
        bytes += spelt(logprobs).len();
        tokens += logprobs.len();
        let next = lengths.get(tokens).copied().unwrap_or(1);
        assert!(bytes <= text && text < bytes + next, "{delta}: {bytes} of {text}");
    }
}

#[test]
fn withheld_text_withholds_its_log_probabilities() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let (reply, chunks) = chunks(&chat, json!({ "tools": [weather_tool()] }));
    assert_eq!(reply["finish_reason"], "tool_calls");
    let entries = check(&reply, 0);
    assert_eq!(spelt(&entries), TOOL_CALL.as_bytes());
    assert_eq!(
        chunks.iter().flat_map(|(_, logprobs)| logprobs.clone()).collect::<Vec<_>>(),
        entries
    );
    assert!(
        chunks[0].1.len() > 3 && chunks[0].0["tool_calls"].is_array() || chunks[1].1.len() > 1,
        "{chunks:?}"
    );
}

#[test]
fn a_stop_string_keeps_its_log_probabilities() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let (reply, chunks) = chunks(&chat, json!({ "stop": " K\u{f6}ln" }));
    assert_eq!(reply["text"], "Gr\u{fc}\u{df}e aus");
    let entries = check(&reply, 0);
    assert_eq!(spelt(&entries), "Gr\u{fc}\u{df}e aus K\u{f6}ln:".as_bytes());
    assert_eq!(
        chunks.iter().flat_map(|(_, logprobs)| logprobs.clone()).collect::<Vec<_>>(),
        entries
    );
}

#[test]
fn those_of_a_real_model_are_a_distribution() {
    let Some(model) = real_model(QWEN) else { return };
    // The options differ from those of other tests, because other chats in the batch change the
    // third digit of a logit.
    let chat =
        Chat::open_with(&json!({ "model": model, "n_ctx": 1536, "n_parallel": 1, "n_threads": 2 }))
            .unwrap_or_else(|e| panic!("{e:?}"));
    let with = |members: Value| {
        let question = "Write one sentence about the sea, in Chinese.";
        let mut request = json!({ "messages": [{ "role": "user", "content": question }], "max_tokens": 24, "temperature": 0, "cache_prompt": false });
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        chat.infer(&request)
    };
    let reply = with(json!({ "logprobs": true, "top_logprobs": 20 }));
    assert_eq!(reply["text"], with(json!({}))["text"]);
    for entry in check(&reply, 20) {
        assert_eq!(
            (&entry["token"], &entry["logprob"]),
            (&entry["top_logprobs"][0]["token"], &entry["top_logprobs"][0]["logprob"])
        );
        let sum: f64 = entry["top_logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|top| top["logprob"].as_f64().unwrap().exp())
            .sum();
        assert!(sum > 0.3, "the twenty likeliest tokens have most of the probability: {sum}");
    }
    // Replies with a seed are the same with and without log probabilities, and can be repeated.
    let seeded = json!({ "temperature": 1.5, "seed": 5 });
    let mut observed = seeded.clone();
    observed["logprobs"] = json!(true);
    let text = with(seeded.clone())["text"].clone();
    assert_eq!((&with(seeded)["text"], &with(observed)["text"]), (&text, &text));
}
