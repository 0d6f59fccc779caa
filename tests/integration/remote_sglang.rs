//! Tests `engine: {"type": "sglang"}` with a stand-in for SGLang: replies compared with those of the
//! same scripted model in this process.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, scripted_model, weather_tool};
use crate::remote_server::{Server, chunk, head};
use crate::remote_tokens::{comparable, model_in_process};
use crate::scripted::{REASONING_PIECES, TEXT_PIECES, TOOL_CALL_PIECES};
use crate::sglang_server::Sglang;
use crate::vllm_server::Vllm;

fn options(model: &str, url: &str) -> Value {
    let engine = json!({ "type": "sglang", "base_url": url });
    json!({ "model": scripted_model(model), "engine": engine, "log": "warn" })
}

#[track_caller]
fn open(model: &str, server: &Server) -> Chat {
    Chat::open_with(&options(model, &server.url())).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// Compares the replies with those of the model in this process, for both kinds of streams.
#[track_caller]
fn check(model: &str, pieces: &[impl AsRef<[u8]>], requests: &[Value]) {
    let native = model_in_process(model);
    for (is_incremental, tokens_per_event) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
        let mut sglang = Sglang { is_incremental, ..Sglang::new(pieces) };
        sglang.model.tokens_per_event = tokens_per_event;
        let remote = open(model, &sglang.start());
        for members in requests {
            let request = ask(members.clone());
            let (ours, theirs) = (Recorder::default(), Recorder::default());
            let expected = native.stream(&request, &ours);
            let reply = remote.stream(&request, &theirs);
            assert_eq!(comparable(&reply), comparable(&expected), "{is_incremental} {members}");
            assert_eq!(theirs.lines().concat(), ours.lines().concat(), "{members}");
        }
    }
}

#[test]
fn replies_equal_those_of_the_model_in_process() {
    check(
        "text.gguf",
        TEXT_PIECES,
        &[
            json!({}),
            json!({ "max_tokens": 2 }),
            json!({ "max_tokens": 5, "logprobs": true, "top_logprobs": 1 }),
            json!({ "stop": "aus" }),
            json!({ "stop": "\u{1F600}", "logprobs": true }),
            json!({ "prompt": [72, 105], "messages": null, "max_tokens": 3 }),
        ],
    );
    check("tool_call.gguf", TOOL_CALL_PIECES, &[json!({ "tools": [weather_tool()] })]);
    let budgets = [-1, 0, 2, 5].map(|budget| json!({ "reasoning_budget": budget }));
    check("reasoning.gguf", REASONING_PIECES, &budgets);
}

#[test]
fn members_have_the_names_of_sglang() {
    let server = Sglang::new(TEXT_PIECES).start();
    let mut options = options("text.gguf", &server.url());
    options["engine"]["cache_salt"] = json!("salt");
    options["engine"]["priority"] = json!(3);
    let chat = Chat::open_with(&options).unwrap();
    let request = json!({ "top_k": 0, "top_p": 0.5, "seed": 7, "logprobs": true, "max_tokens": 4,
        "typical_p": 0.5 });
    let reply = chat.infer(&ask(request));
    assert_eq!(reply["diagnostics"][0]["code"], "not_carried");
    let seen = server.seen();
    let sent = &seen.last().unwrap().body;
    let parameters = &sent["sampling_params"];
    assert_eq!((&sent["extra_key"], &sent["priority"]), (&json!("salt"), &json!(3)));
    assert_eq!((&sent["return_logprob"], &sent["top_logprobs_num"]), (&json!(true), &json!(0)));
    assert_eq!((&parameters["top_k"], &parameters["sampling_seed"]), (&json!(-1), &json!(7)));
    assert_eq!((&parameters["max_new_tokens"], &parameters["top_p"]), (&json!(4), &json!(0.5)));
}

/// The last sampling parameters, and the codes of the reply's diagnostics.
fn constrained((has_llguidance, reads_lark): (bool, bool), members: Value) -> (Value, Vec<Value>) {
    let sglang = Sglang { has_llguidance, reads_lark, ..Sglang::new(TOOL_CALL_PIECES) };
    let server = sglang.start();
    let chat = open("tool_call.gguf", &server);
    let reply = chat.infer(&ask(members));
    let codes = reply["diagnostics"].as_array().into_iter().flatten();
    let codes = codes.map(|diagnostic| diagnostic["code"].clone()).collect();
    (server.seen().last().unwrap().body["sampling_params"].clone(), codes)
}

#[test]
fn a_constraint_has_the_form_that_the_backend_compiles() {
    let forced = json!({ "tools": [weather_tool()], "tool_choice": "required" });
    let (parameters, codes) = constrained((true, true), forced.clone());
    assert!(parameters["ebnf"].as_str().unwrap().contains("get_weather"), "{parameters}");
    assert_eq!(codes, [] as [Value; 0]);
    let (parameters, codes) = constrained((false, true), forced.clone());
    assert!(parameters["structural_tag"].as_str().unwrap().contains("get_weather"));
    assert_eq!((&parameters["ebnf"], codes), (&Value::Null, Vec::new()));
    let (parameters, codes) = constrained((false, false), forced);
    let ebnf = parameters["ebnf"].as_str().unwrap();
    assert!(ebnf.starts_with("root ::= ") && ebnf.contains("get_weather"), "{ebnf}");
    assert_eq!((&parameters["structural_tag"], codes), (&Value::Null, Vec::new()));
}

#[test]
fn faults_are_errors() {
    let server = Sglang::new(TEXT_PIECES).start();
    let mut options = options("text.gguf", &server.url());
    options["n_ctx"] = json!(100_000);
    let chat = Chat::open_with(&options).unwrap();
    let reply = chat.infer(&ask(json!({ "max_tokens": 5000 })));
    assert_eq!(reply["error"]["code"], "CONTEXT_OVERFLOW", "{reply}");

    // A server that is not SGLang.
    let server = Vllm::new(TEXT_PIECES).start();
    let reply = open("text.gguf", &server).infer(&ask(json!({})));
    assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("/generate"), "{reply}");

    // Another vocabulary.
    let mut sglang = Sglang::new(TEXT_PIECES);
    sglang.model.shift = 1;
    let refused = Chat::open_with(&self::options("text.gguf", &sglang.start().url()));
    assert!(refused.err().unwrap().message().contains("another vocabulary"));

    // A reply that is aborted after its first token.
    static ABORTS: AtomicBool = AtomicBool::new(false);
    let sglang = Sglang::new(TEXT_PIECES);
    let server = Server::start(move |request, out| {
        if request.path != "/generate" || !ABORTS.load(Ordering::SeqCst) {
            return sglang.answer(request, out);
        }
        head(out);
        let event = |ids: &[i64], reason: Value| {
            let meta = json!({ "finish_reason": reason, "prompt_tokens": 1,
                "completion_tokens": ids.len() });
            format!("data: {}\n\n", json!({ "output_ids": ids, "meta_info": meta }))
        };
        chunk(out, event(&[72], Value::Null).as_bytes());
        let reason = json!({ "type": "abort", "message": "out of memory", "status_code": 500 });
        chunk(out, event(&[72], reason).as_bytes());
    });
    let chat = open("text.gguf", &server);
    ABORTS.store(true, Ordering::SeqCst);
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["error"]["details"]["generated"], "H", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("out of memory"), "{reply}");
}

#[test]
fn a_full_server_passes_the_request_on() {
    let full = Sglang { is_full: true, ..Sglang::new(TEXT_PIECES) }.start();
    let other = Sglang::new(TEXT_PIECES).start();
    let mut options = options("text.gguf", "");
    options["engine"]["base_url"] = json!([full.url(), other.url()]);
    let chat = Chat::open_with(&options).unwrap();
    for number in 0..4 {
        let content = format!("Conversation {number}");
        let request = json!({ "messages": [{ "role": "user", "content": content }] });
        let reply = chat.infer(&request);
        assert_eq!(reply["type"], "assistant_text", "{reply}");
    }
}
