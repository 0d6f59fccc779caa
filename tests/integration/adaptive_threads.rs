//! Tests `n_threads`, and the number of threads that a reply reports.

use serde_json::{Value, json};

use crate::abi::{Chat, real_model, scripted_model};

fn open(model: &str, n_threads: Option<Value>) -> Chat {
    let mut options = json!({ "model": model, "n_ctx": 2048, "tool_policy": "any" });
    if let Some(n_threads) = n_threads {
        options["n_threads"] = n_threads;
    }
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn request(max_tokens: usize) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "Write a short poem about rain." }],
        "max_tokens": max_tokens,
        "temperature": 0,
        "cache_prompt": false,
    })
}

#[test]
fn a_number_pins_the_threads() {
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    for n_threads in [None, Some(json!("auto"))] {
        let chat = open(&scripted_model("text.gguf"), n_threads);
        let threads = chat.infer(&request(20))["timings"]["threads"].as_f64().unwrap();
        assert!((1.0..=cores).contains(&threads), "{threads}");
    }
    for n_threads in [1.0_f64, 2.0] {
        let chat = open(&scripted_model("text.gguf"), Some(json!(n_threads)));
        let reply = chat.infer(&request(20));
        assert_eq!(reply["timings"]["threads"], json!(n_threads.min(cores)), "{reply}");
    }
}

#[test]
fn a_reply_does_not_depend_on_the_number_of_threads() {
    for model in ["smollm2-135m-instruct-q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"] {
        let Some(model) = real_model(model) else { continue };
        let text = |n_threads| {
            let reply = open(&model, Some(n_threads)).infer(&request(40));
            reply["text"].as_str().unwrap().to_owned()
        };
        let alone = text(json!(1));
        assert!(alone.len() > 40, "{alone}");
        assert_eq!(text(json!(2)), alone);
        assert_eq!(text(json!("auto")), alone);
    }
}
