//! Tests the same paths with real model files, if `make models` has downloaded them.

use std::sync::atomic::{AtomicBool, Ordering};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, model_info, real_model, weather_tool};

const QWEN: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
const SMOLLM: &str = "smollm2-135m-instruct-q4_1.gguf";
const GEMMA: &str = "gemma-3-270m-q4_k_m.gguf";

#[test]
fn headers_describe_the_models() {
    let (Some(qwen), Some(smollm), Some(gemma)) =
        (real_model(QWEN), real_model(SMOLLM), real_model(GEMMA))
    else {
        return;
    };
    let info = model_info(&qwen);
    assert_eq!(info["error"], Value::Null);
    assert_eq!(info["architecture"], "qwen2");
    assert_eq!(info["n_params"], 630_167_424);
    assert_eq!(info["context_length"], 32_768);
    assert_eq!(info["embedding_length"], 896);
    assert_eq!(info["block_count"], 24);
    assert_eq!(info["quantization"], "Q4_K_M");
    assert_eq!(info["file_size"], 491_400_064);
    assert_eq!(info["eos_token"], "<|im_end|>");
    assert_eq!(info["supports_tools"], true);
    assert_eq!(info["supports_tool_calls"], true);
    assert_eq!(info["output_format"]["family"], "hermes");
    let info = model_info(&smollm);
    assert_eq!((&info["quantization"], &info["supports_tools"]), (&json!("Q4_1"), &json!(false)));
    let info = model_info(&gemma);
    assert_eq!((&info["templates"], &info["supports_tools"]), (&json!([]), &json!(false)));
}

#[test]
fn models_without_tools_are_refused() {
    let (Some(smollm), Some(gemma)) = (real_model(SMOLLM), real_model(GEMMA)) else { return };
    for model in [smollm, gemma] {
        let refused = Chat::open_with(&json!({ "model": model })).err().expect("refused");
        assert_eq!(refused.events, ["create_start", "create_failure:tools_unsupported"]);
        assert_eq!(refused.code(), "MODEL_NOT_TOOL_CAPABLE");
    }
}

#[test]
fn a_real_model_chats_calls_and_is_cancelled() {
    let Some(model) = real_model(QWEN) else { return };
    let chat = Chat::open_with(&json!({ "model": model, "n_ctx": 4096, "n_threads": 2 }))
        .unwrap_or_else(|e| panic!("{e:?}"));

    let question = json!([{ "role": "user", "content": "What is the weather in Paris?" }]);
    let request = json!({ "messages": question, "tools": [weather_tool()], "tool_choice": "required", "parallel_tool_calls": false, "temperature": 0 });
    let reply = chat.infer(&request);
    assert_eq!(reply["finish_reason"], "tool_calls", "{reply}");
    assert_eq!(reply["tool_calls"][0]["name"], "get_weather");
    let arguments: Value =
        serde_json::from_str(reply["tool_calls"][0]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({ "city": "Paris" }));

    let request = json!({ "messages": [{ "role": "user", "content": "Write the word hello in French." }], "temperature": 0, "max_tokens": 24 });
    let recorder = Recorder::default();
    let reply = chat.stream(&request, &recorder);
    assert!(reply["text"].as_str().unwrap().to_lowercase().contains("bonjour"), "{reply}");
    assert_eq!(recorder.lines().concat(), reply["text"].as_str().unwrap());

    // Cancelled during a prefill of thousands of tokens: nothing is generated, and the engine
    // continues.
    let long = "All work and no play makes Jack a dull boy. ".repeat(300);
    let request = json!({ "messages": [{ "role": "user", "content": long }], "max_tokens": 8 });
    let done = AtomicBool::new(false);
    let reply = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = |chat: &Chat| {
                chat.events().iter().filter(|line| *line == "infer_start").count() == 3
            };
            while !started(&chat) {
                std::thread::yield_now();
            }
            while !done.load(Ordering::Relaxed) {
                ffi::llb_chat_cancel(chat.handle());
                std::thread::yield_now();
            }
        });
        let reply = chat.infer(&request);
        done.store(true, Ordering::Relaxed);
        reply
    });
    assert_eq!(
        (&reply["finish_reason"], &reply["usage"]["completion_tokens"]),
        (&json!("cancelled"), &json!(0))
    );
    let reply =
        chat.infer(&json!({ "messages": [{ "role": "user", "content": "Say yes." }], "temperature": 0, "max_tokens": 4 }));
    assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() > 0, "{reply}");
}

#[test]
fn checking_a_drawn_token_equals_masking_first() {
    let Some(model) = real_model(QWEN) else { return };
    // The options differ from those of other tests, because other chats in the batch change the
    // third digit of a logit.
    let options = json!({ "model": model, "n_ctx": 1280, "n_parallel": 1, "n_threads": 2 });
    let chat = Chat::open_with(&options).unwrap_or_else(|e| panic!("{e:?}"));
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "maxLength": 20 },
            "country": { "enum": ["France", "Spain"] },
            "sights": { "type": "array", "items": { "type": "string", "maxLength": 40 }, "maxItems": 3 },
        },
        "required": ["city", "country", "sights"],
        "additionalProperties": false,
    });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "city", "schema": schema } });
    let grammar = "start: /[A-Z][a-z ]{3,60}/ \".\"";
    for constraint in [json!({ "response_format": format }), json!({ "grammar": grammar })] {
        let reply = |bias: Value| {
            let mut request = json!({ "messages": [{ "role": "user", "content": "Describe Paris." }], "temperature": 0,
                "max_tokens": 96, "cache_prompt": false, "logit_bias": bias });
            request.as_object_mut().unwrap().extend(constraint.as_object().unwrap().clone());
            chat.infer(&request)
        };
        let drawn = reply(json!({}));
        assert_eq!(drawn["finish_reason"], "stop", "{drawn}");
        // The bias makes `<|im_start|>` the likeliest token everywhere, but the grammar never
        // allows it. So every token is drawn a second time, with a mask.
        let masked = reply(json!({ "151644": 100 }));
        assert_eq!(masked["text"], drawn["text"]);
    }
    // The same seed gives the same text, whether tokens were refused or not.
    let request = json!({ "messages": [{ "role": "user", "content": "Describe Paris." }], "temperature": 1.5, "seed": 11,
        "max_tokens": 96, "cache_prompt": false, "grammar": grammar });
    assert_eq!(chat.infer(&request)["text"], chat.infer(&request)["text"]);
}
