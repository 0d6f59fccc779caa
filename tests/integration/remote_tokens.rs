//! Tests `engine: {"type": "vllm"}` with a stand-in for vLLM: replies as token ids, compared with
//! those of the same scripted model in this process.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use llb::ffi;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::abi::{Chat, Recorder, ask, call, scripted_model, weather_tool};
use crate::remote_server::{Server, answer, chunk, head, wait_for_close};
use crate::scripted::{
    BOS, MARKERS, REASONING_PIECES, TEXT_PIECES, TOOL_CALL_PIECES, TOOLS_TEMPLATE, TURN_END,
    letter, long_pieces,
};
use crate::vllm_server::{Backend, MAX_MODEL_LEN, Vllm};

fn options(model: &str, url: &str, members: Value) -> Value {
    let mut engine = json!({ "type": "vllm", "base_url": url });
    engine.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({ "model": scripted_model(model), "engine": engine, "log": "warn" })
}

#[track_caller]
fn open(model: &str, server: &Server) -> Chat {
    Chat::open_with(&options(model, &server.url(), json!({})))
        .unwrap_or_else(|refused| panic!("{refused:?}"))
}

pub fn model_in_process(model: &str) -> Chat {
    let options = json!({ "model": scripted_model(model), "n_ctx": MAX_MODEL_LEN });
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// The members of a reply that do not depend on what generates it.
pub fn comparable(reply: &Value) -> Value {
    let mut reply = reply.clone();
    for call in reply["tool_calls"].as_array_mut().into_iter().flatten() {
        call["id"] = Value::Null;
    }
    let usage = reply["usage"].clone();
    let entries = reply["logprobs"]["content"].as_array().cloned();
    let bytes = entries.map(|entries| {
        let of = |entry: &Value| {
            assert!((-0.01..=0.0).contains(&entry["logprob"].as_f64().unwrap()), "{entry}");
            (entry["bytes"].clone(), entry["top_logprobs"][0]["bytes"].clone())
        };
        entries.iter().map(of).collect::<Vec<_>>()
    });
    json!({
        "type": reply["type"], "text": reply["text"], "reasoning": reply["reasoning_content"],
        "calls": reply["tool_calls"], "finish": reply["finish_reason"], "stop": reply["stop_sequence"],
        "prompt": usage["prompt_tokens"], "completion": usage["completion_tokens"],
        "reasoned": usage["completion_tokens_details"]["reasoning_tokens"], "diagnostics": reply["diagnostics"],
        "logprobs": bytes,
    })
}

/// A folder with the tokenizer.json of a scripted model, and the files beside it.
fn tokenizer_folder(model: &str, pieces: &[impl AsRef<[u8]>]) -> TempDir {
    let spelled = |bytes: &[u8]| bytes.iter().map(|byte| letter(*byte)).collect::<String>();
    let mut vocab: serde_json::Map<String, Value> =
        (0..=u8::MAX).map(|byte| (spelled(&[byte]), byte.into())).collect();
    vocab.extend(MARKERS.iter().zip(256..).map(|((marker, _), id)| ((*marker).into(), id.into())));
    let is_marker = |piece: &&[u8]| MARKERS.iter().any(|(marker, _)| marker.as_bytes() == *piece);
    let pieces = pieces.iter().map(AsRef::as_ref).filter(|piece| !is_marker(piece));
    vocab.extend(pieces.zip(256 + MARKERS.len()..).map(|(piece, id)| (spelled(piece), id.into())));
    // The type of control tokens is 3.
    let added = MARKERS.iter().zip(256..).map(|((marker, kind), id)| {
        json!({ "id": id, "content": marker, "special": *kind == 3, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false })
    });
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true });
    let tokenizer = json!({
        "version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": { "type": "BPE", "vocab": vocab, "merges": [] },
    });
    let path = scripted_model(model);
    let header = llb::gguf::ModelHeader::read_file(std::path::Path::new(&path)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("tokenizer.json", tokenizer.to_string()),
        ("tokenizer_config.json", json!({ "bos_token": BOS, "eos_token": TURN_END }).to_string()),
        ("chat_template.jinja", header.chat_template().unwrap().to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Compares the replies of all routes, and with the vocabulary of a tokenizer.json, with that of the
/// model in this process.
#[track_caller]
fn check(model: &str, pieces: &[impl AsRef<[u8]>], requests: &[Value]) {
    let native = model_in_process(model);
    let folder = tokenizer_folder(model, pieces);
    for (has_generate, tokens_per_event, has_model) in
        [(true, 1, true), (true, 3, true), (false, 1, true), (true, 1, false)]
    {
        let server = Vllm { has_generate, tokens_per_event, ..Vllm::new(pieces) }.start();
        let mut options = options(model, &server.url(), json!({}));
        if !has_model {
            options["model"] = folder.path().to_str().unwrap().into();
        }
        let remote = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
        for members in requests {
            let request = ask(members.clone());
            let (ours, theirs) = (Recorder::default(), Recorder::default());
            let expected = native.stream(&request, &ours);
            let reply = remote.stream(&request, &theirs);
            assert_eq!(comparable(&reply), comparable(&expected), "{has_generate} {members}");
            assert_eq!(theirs.lines().concat(), ours.lines().concat(), "{members}");
        }
        let used = if has_generate { "/inference/v1/generate" } else { "/v1/completions" };
        assert!(server.seen().iter().any(|request| request.path == used));
    }
}

#[test]
fn text_equals_that_of_the_model_in_process() {
    check(
        "text.gguf",
        TEXT_PIECES,
        &[
            json!({}),
            json!({ "max_tokens": 2 }),
            json!({ "max_tokens": 5, "logprobs": true, "top_logprobs": 1 }),
            json!({ "stop": "aus" }),
            json!({ "stop": ["K\u{f6}", "and"], "stop_scope": "all" }),
            json!({ "stop": "\u{1F600}", "logprobs": true }),
            json!({ "prompt": "Hello", "messages": null, "max_tokens": 3 }),
            json!({ "prompt": [72, 105], "messages": null, "max_tokens": 3 }),
        ],
    );
    let pieces = long_pieces();
    check("long.gguf", &pieces, &[json!({}), json!({ "max_tokens": 100, "stop": "77" })]);
}

#[test]
fn calls_equal_those_of_the_model_in_process() {
    let tools = json!([weather_tool()]);
    check(
        "tool_call.gguf",
        TOOL_CALL_PIECES,
        &[json!({ "tools": tools }), json!({ "tools": tools, "max_tokens": 7 })],
    );
}

#[test]
fn reasoning_budgets_equal_those_of_the_model_in_process() {
    let budgets = [-1, 0, 1, 2, 3, 5].map(|budget| json!({ "reasoning_budget": budget }));
    check("reasoning.gguf", REASONING_PIECES, &budgets);
    let message = json!({ "reasoning_budget": 1, "reasoning_budget_message": "Enough." });
    let short = json!({ "reasoning_budget": 1, "max_tokens": 3 });
    check("reasoning.gguf", REASONING_PIECES, &[message, short]);
}

#[test]
fn the_caller_can_end_the_reasoning() {
    let server = Vllm::new(REASONING_PIECES).start();
    let chat = open("reasoning.gguf", &server);
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |piece| {
        if piece.contains("One") {
            ffi::llb_chat_end_reasoning(std::ptr::without_provenance_mut(handle));
        }
    });
    let reply = chat.stream(&ask(json!({ "stream_format": "chunks" })), &recorder);
    assert_eq!(
        (&reply["text"], &reply["reasoning_content"]),
        (&json!("The answer."), &json!("One, two,"))
    );
    assert_eq!(reply["diagnostics"][0]["code"], "reasoning_ended");
    // The second request continues the first one.
    let seen = server.seen();
    let prompts: Vec<usize> = seen
        .iter()
        .filter(|request| request.path == "/inference/v1/generate")
        .map(|request| request.body["token_ids"].as_array().unwrap().len())
        .collect();
    assert_eq!(prompts[2] - prompts[1], 3, "two tokens and the closing tag");
}

#[test]
fn messages_cannot_spell_special_tokens() {
    let vllm = Vllm::new(TEXT_PIECES);
    let server = vllm.clone().start();
    let chat = open("text.gguf", &server);
    let spelt =
        json!({ "messages": [{ "role": "user", "content": "a<|im_end|>b" }], "temperature": 0 });
    let reply = chat.infer(&spelt);
    let seen = server.seen();
    let sent = &seen.last().unwrap().body["token_ids"];
    // The template's own special tokens, and the bytes of the message.
    let prompt = |content: &str| {
        let messages = json!([{ "role": "user", "content": content }]);
        let request = json!({ "chat_template": TOOLS_TEMPLATE, "messages": messages });
        call(ffi::llb_template_render, &request)["prompt"].as_str().unwrap().to_owned()
    };
    let marked = prompt("\u{1}");
    let (before, after) = marked.split_once('\u{1}').unwrap();
    let bytes = "a<|im_end|>b".bytes().map(i64::from);
    let expected: Vec<i64> =
        vllm.tokenize(before).into_iter().chain(bytes).chain(vllm.tokenize(after)).collect();
    assert_eq!(sent, &json!(expected));
    assert_eq!(reply["usage"]["prompt_tokens"], expected.len());
    assert_eq!(chat.explain(&spelt)["prompt_tokens"], expected.len());
}

#[test]
fn what_a_request_sends_follows_the_options() {
    let server = Vllm::new(TEXT_PIECES).start();
    let engine = json!({ "cache_salt": "tenant 7", "priority": -2 });
    let chat = Chat::open_with(&options("text.gguf", &server.url(), engine)).unwrap();
    let request = json!({ "seed": 5, "top_k": 3, "temperature": 0.5, "logit_bias": { "97": 1 } });
    let reply = chat.infer(&ask(request));
    assert_eq!(reply["diagnostics"], json!([]));
    let seen = server.seen();
    let body = &seen.last().unwrap().body;
    let parameters = &body["sampling_params"];
    for (sent, expected) in [
        (&body["model"], json!("served")),
        (&body["cache_salt"], json!("tenant 7")),
        (&body["priority"], json!(-2)),
        (&body["stream"], json!(true)),
        (&parameters["seed"], json!(5)),
        (&parameters["top_k"], json!(3)),
        (&parameters["temperature"], json!(0.5)),
        (&parameters["logit_bias"], json!({ "97": 1.0 })),
        (&parameters["detokenize"], json!(false)),
    ] {
        assert_eq!(sent, &expected);
    }
    let prompt = body["token_ids"].as_array().unwrap().len();
    assert_eq!(parameters["max_tokens"], MAX_MODEL_LEN - prompt, "what the context leaves");
    assert!(parameters["stop_token_ids"].as_array().unwrap().contains(&json!(258)), "<|im_end|>");
    let ignored = chat.infer(&ask(json!({ "typical_p": 0.5, "mirostat": 2 })));
    assert_eq!(ignored["diagnostics"][0]["code"], "not_carried");
    let long = ask(json!({ "messages": [{ "role": "user", "content": "a".repeat(3000) }] }));
    assert_eq!(chat.infer(&long)["error"]["code"], "CONTEXT_OVERFLOW");
}

#[test]
fn another_vocabulary_is_refused_when_the_chat_is_created() {
    let other = Vllm { shift: 1, ..Vllm::new(TEXT_PIECES) }.start();
    let refused =
        Chat::open_with(&options("text.gguf", &other.url(), json!({}))).err().expect("refused");
    assert_eq!(refused.code(), "INVALID_REQUEST");
    let says = "model: the server's model has another vocabulary: in \"<|endoftext|>";
    assert!(refused.message().starts_with(says), "{}", refused.message());
    assert!(refused.message().contains("token 0 is 257 for the server and 256 in this file"));
    // Without `/tokenize` nothing can be compared.
    let silent = Vllm { tokenizes: false, ..Vllm::new(TEXT_PIECES) }.start();
    assert_eq!(
        open("text.gguf", &silent).infer(&ask(json!({ "max_tokens": 1 })))["text"],
        "Gr\u{FFFD}"
    );
    // A server that starts later is compared before the first request.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let chat = Chat::open_with(&options("text.gguf", &format!("http://{address}"), json!({})));
    let chat = chat.unwrap_or_else(|refused| panic!("{refused:?}"));
    assert!(chat.explain(&ask(json!({})))["prompt_tokens"].is_u64(), "needs no server");
    assert_eq!(chat.infer(&ask(json!({})))["error"]["code"], "INFERENCE_FAILED");
}

#[test]
fn a_server_that_returns_only_text_is_sent_text() {
    let vllm = Vllm { has_generate: false, returns_ids: false, ..Vllm::new(TOOL_CALL_PIECES) };
    let server = vllm.start();
    let chat = open("tool_call.gguf", &server);
    let reply = chat.infer(&ask(json!({ "tools": [weather_tool()] })));
    assert_eq!(reply["tool_calls"][0]["name"], "get_weather", "{reply}");
    assert!(server.seen().last().unwrap().body["prompt"].is_string());
    // The counts come with each event, so a stop string does not lose them.
    let vllm = Vllm { has_generate: false, returns_ids: false, ..Vllm::new(long_pieces()) };
    let server = vllm.start();
    let stopped = open("long.gguf", &server).infer(&ask(json!({ "stop": "77" })));
    assert_eq!(stopped["stop_sequence"], "77", "{stopped}");
    assert!(stopped["usage"]["prompt_tokens"].as_u64().unwrap() > 20, "{stopped}");
    assert_eq!(stopped["diagnostics"], json!([]));
}

/// A server that answers as vLLM until the prompt of a reply comes, and then by `reply`.
fn faulty(reply: impl Fn(&mut std::net::TcpStream, usize) + Send + Sync + 'static) -> Server {
    let vllm = Vllm::new(TEXT_PIECES);
    let count = AtomicUsize::new(0);
    Server::start(move |request, out| {
        let is_reply = request.path == "/inference/v1/generate"
            && request.body["sampling_params"]["max_tokens"] != 1;
        match is_reply {
            true => reply(out, count.fetch_add(1, Ordering::SeqCst)),
            false => vllm.answer(request, out),
        }
    })
}

fn event(choice: Value) -> String {
    format!("data: {}\n\n", json!({ "request_id": "r", "choices": [choice], "usage": null }))
}

#[test]
fn faults_before_the_first_token_are_tried_again() {
    for fault in ["503 Service Unavailable", "429 Too Many Requests"] {
        let vllm = Vllm::new(TEXT_PIECES);
        let server = faulty(move |out, count| match count {
            0 => answer(out, fault, "Retry-After: 0\r\n", r#"{"error":{"message":"starting"}}"#),
            _ => {
                head(out);
                let ids = vllm.tokenize("ok<|im_end|>");
                chunk(
                    out,
                    event(json!({ "index": 0, "token_ids": ids, "finish_reason": "stop" }))
                        .as_bytes(),
                );
                chunk(out, b"data: [DONE]\n\n");
            }
        });
        assert_eq!(open("text.gguf", &server).infer(&ask(json!({})))["text"], "ok");
    }
}

#[test]
fn faults_after_the_first_token_end_the_reply() {
    let first = || event(json!({ "index": 0, "token_ids": [111, 107], "finish_reason": null }));
    let cases: [(Vec<u8>, &str); 6] = [
        (Vec::new(), "broke off"),
        (event(json!({ "index": 0, "token_ids": [99_999] })).into(), "does not have"),
        (event(json!({ "index": 0, "token_ids": [-1] })).into(), "does not have"),
        (event(json!({ "index": 0, "token_ids": "x" })).into(), "`token_ids`"),
        (event(json!({ "index": 0, "text": "x" })).into(), "text without token ids"),
        (
            b"data: {\"error\": {\"message\": \"EngineDeadError\", \"code\": 500}}\n\n".into(),
            "EngineDead",
        ),
    ];
    for (bytes, says) in cases {
        let server = faulty(move |out, _| {
            head(out);
            chunk(out, first().as_bytes());
            chunk(out, &bytes);
        });
        let reply = open("text.gguf", &server).infer(&ask(json!({})));
        let error = &reply["error"];
        assert_eq!(error["code"], "INFERENCE_FAILED", "{reply}");
        assert!(error["message"].as_str().unwrap().contains(says), "{says}: {reply}");
        assert_eq!(error["details"]["generated"], "ok", "{reply}");
    }
}

#[test]
fn more_tokens_than_were_asked_for_are_not_read() {
    let server = faulty(|out, _| {
        head(out);
        while chunk(out, event(json!({ "index": 0, "token_ids": vec![97; 1000] })).as_bytes()) {}
    });
    let reply = open("text.gguf", &server).infer(&ask(json!({ "max_tokens": 5 })));
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!("aaaaa"), &json!("length")));
}

#[test]
fn a_cancel_closes_the_connection() {
    let (closed, closes) = channel();
    let (arrived, arrives) = channel();
    let (closed, arrived) = (Mutex::new(closed), Mutex::new(arrived));
    let server = faulty(move |out, _| {
        head(out);
        chunk(out, event(json!({ "index": 0, "token_ids": [111, 107] })).as_bytes());
        arrived.lock().unwrap().send(()).unwrap();
        wait_for_close(out);
        closed.lock().unwrap().send(()).unwrap();
    });
    let chat = open("text.gguf", &server);
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |_| {
        ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
    });
    let reply = chat.stream(&ask(json!({})), &recorder);
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!("ok"), &json!("cancelled")));
    arrives.recv().unwrap();
    closes.recv().unwrap();
}

/// The `structured_outputs` of the last request, and the codes of the reply's diagnostics.
#[track_caller]
fn constrained(
    model: &str,
    (backend, constraints): (Backend, Option<&str>),
    members: Value,
) -> (Value, Vec<String>) {
    let pieces = if model == "text.gguf" { TEXT_PIECES } else { TOOL_CALL_PIECES };
    let server = Vllm { backend, ..Vllm::new(pieces) }.start();
    let engine = json!({ "constraints": constraints });
    let chat = Chat::open_with(&options(model, &server.url(), engine)).unwrap();
    let mut reply = chat.infer(&ask(members.clone()));
    let probes = server.seen().len();
    reply = if reply["type"] == "error" { reply } else { chat.infer(&ask(members)) };
    let seen = server.seen();
    if reply["type"] != "error" {
        let sent = seen.len() - probes;
        assert!(sent <= 2, "the accepted forms are remembered: {sent} requests");
    }
    let codes = reply["diagnostics"].as_array().into_iter().flatten();
    let codes = codes.map(|diagnostic| diagnostic["code"].as_str().unwrap().to_owned());
    let last = &seen.last().unwrap().body["sampling_params"]["structured_outputs"];
    (
        last.clone(),
        reply["error"]["code"].as_str().map(str::to_owned).into_iter().chain(codes).collect(),
    )
}

/// The grammar of a structural tag.
fn grammar_of_tag(outputs: &Value) -> String {
    let tag: Value = serde_json::from_str(outputs["structural_tag"].as_str().unwrap()).unwrap();
    tag["format"]["grammar"].as_str().unwrap().to_owned()
}

#[test]
fn a_constraint_has_the_form_that_the_server_accepts() {
    let forced = json!({ "tools": [weather_tool()], "tool_choice": "required" });
    let none: Vec<String> = Vec::new();
    for backend in [Backend::Auto, Backend::Guidance] {
        let (outputs, codes) = constrained("tool_call.gguf", (backend, None), forced.clone());
        let grammar = outputs["grammar"].as_str().unwrap_or_else(|| panic!("{outputs}"));
        assert!(grammar.contains("get_weather") && !grammar.contains("<["), "{grammar}");
        assert_eq!(codes, none);
    }
    let (outputs, codes) = constrained("tool_call.gguf", (Backend::Xgrammar, None), forced.clone());
    let grammar = grammar_of_tag(&outputs);
    assert!(grammar.contains("get_weather") && !grammar.contains("(?s"), "{grammar}");
    assert_eq!(codes, none);
    let (outputs, codes) =
        constrained("tool_call.gguf", (Backend::OldXgrammar, None), forced.clone());
    let grammar = outputs["grammar"].as_str().unwrap_or_else(|| panic!("{outputs}"));
    assert!(grammar.starts_with("root ::= ") && grammar.contains("get_weather"), "{grammar}");
    assert_eq!(codes, none);
    let offered = json!({ "tools": [weather_tool()] });
    // With xgrammar, calls that are only offered are checked afterwards.
    for backend in [Backend::Xgrammar, Backend::OldXgrammar] {
        let (outputs, codes) = constrained("tool_call.gguf", (backend, None), offered.clone());
        assert_eq!((outputs, codes), (Value::Null, none.clone()));
    }
    let (outputs, codes) = constrained("tool_call.gguf", (Backend::Outlines, None), forced.clone());
    assert_eq!((outputs, codes), (Value::Null, vec!["constraint_not_enforced".to_owned()]));
    let (outputs, codes) = constrained("tool_call.gguf", (Backend::Auto, Some("none")), forced);
    assert_eq!((outputs, codes), (Value::Null, vec!["constraint_not_enforced".to_owned()]));
}

#[test]
fn what_no_form_expresses_is_checked_afterwards_or_refused() {
    let grammar = json!({ "grammar": "start: T\nT: /[a-z]+/ & /b.*/" });
    let (outputs, codes) = constrained("text.gguf", (Backend::Guidance, None), grammar.clone());
    assert!(outputs["grammar"].is_string() && codes.is_empty(), "{codes:?}");
    let (_, codes) = constrained("text.gguf", (Backend::Xgrammar, None), grammar);
    assert_eq!(codes, ["SCHEMA_UNSUPPORTED"]);
    let mut strict = weather_tool();
    strict["function"]["strict"] = json!(true);
    let (_, codes) =
        constrained("tool_call.gguf", (Backend::Outlines, None), json!({ "tools": [strict] }));
    assert_eq!(codes, ["SCHEMA_UNSUPPORTED"]);
}

/// Replicas of which one dies after a number of requests, and how many tokens the others found in
/// their caches.
struct Replicas {
    servers: Vec<Server>,
    is_dead: Arc<AtomicBool>,
}

impl Replicas {
    fn start(count: usize) -> Replicas {
        let is_dead = Arc::new(AtomicBool::new(false));
        let servers = (0..count).map(|index| {
            let (vllm, is_dead) = (Vllm::new(long_pieces()), Arc::clone(&is_dead));
            Server::start(move |request, out| {
                // A dead replica accepts connections and closes them, as a proxy before it does.
                if !(index == 0 && is_dead.load(Ordering::SeqCst)) {
                    vllm.answer(request, out);
                }
            })
        });
        Replicas { servers: servers.collect(), is_dead }
    }

    /// Runs conversations of ten turns. The first replica dies after this number of requests.
    /// Returns the share of prompt tokens that were cached.
    fn run(&self, conversations: usize, dies_after: usize) -> f64 {
        let urls: Vec<String> = self.servers.iter().map(Server::url).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counts = Mutex::new((0, 0));
        let converse = || {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= conversations {
                    return;
                }
                let mut options = options("long.gguf", "", json!({}));
                options["engine"]["base_url"] = json!(urls);
                let chat =
                    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
                let first = format!("Conversation {number} is about the number {number}.");
                let mut messages = vec![json!({ "role": "user", "content": first })];
                for turn in 0..10 {
                    let request =
                        json!({ "messages": messages, "temperature": 0, "max_tokens": 3 });
                    let reply = chat.infer(&request);
                    assert_eq!(reply["text"], "Counting: 1 2", "{reply}");
                    let usage = &reply["usage"];
                    let of = |value: &Value| value.as_u64().unwrap();
                    let mut counts = counts.lock().unwrap();
                    counts.0 += of(&usage["prompt_tokens_details"]["cached_tokens"]);
                    counts.1 += of(&usage["prompt_tokens"]);
                    drop(counts);
                    if done.fetch_add(1, Ordering::SeqCst) + 1 == dies_after {
                        self.is_dead.store(true, Ordering::SeqCst);
                    }
                    messages.push(json!({ "role": "assistant", "content": reply["text"] }));
                    messages.push(json!({ "role": "user", "content": format!("And {turn}?") }));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(converse);
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), conversations * 10);
        let (cached, all) = *counts.lock().unwrap();
        cached as f64 / all as f64
    }
}

#[test]
fn a_conversation_stays_with_its_replica_and_none_is_lost() {
    let single = Replicas::start(1).run(20, usize::MAX);
    let replicas = Replicas::start(3);
    let all_alive = replicas.run(20, usize::MAX);
    assert!(all_alive > single * 0.9, "{all_alive} of {single}");
    let used = replicas.servers.iter().filter(|server| {
        server.seen().iter().any(|request| request.path == "/inference/v1/generate")
    });
    assert_eq!(used.count(), 3);
    // 1,000 requests, and a third of the conversations must move.
    let with_death = Replicas::start(3).run(100, 400);
    assert!(with_death > single * 0.9, "{with_death} of {single}");
}

/// The verdicts of xgrammar about these formats and grammars are in the same file. The unit tests of
/// the grammars compare them with llguidance.
#[test]
fn structural_tags_and_ebnf_are_those_that_xgrammar_has_judged() {
    let data = include_str!("../data/xgrammar.json");
    let data: Value = serde_json::from_str(data).unwrap();
    let cases = data["cases"].as_array().unwrap().iter();
    let cases: Vec<&Value> = cases.filter(|case| case["format"].is_object()).collect();
    for (case, backend) in
        cases.iter().flat_map(|case| [(case, Backend::Xgrammar), (case, Backend::OldXgrammar)])
    {
        let server = Vllm { backend, ..Vllm::new(TOOL_CALL_PIECES) }.start();
        let mut options = options("tool_call.gguf", &server.url(), json!({}));
        options["components"] = case["components"].clone();
        options["tool_policy"] = json!("any");
        let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
        let request = ask(case["request"].clone());
        assert_eq!(chat.explain(&request)["grammar"], case["lark"], "{}", case["name"]);
        chat.infer(&request);
        let seen = server.seen();
        let outputs = &seen.last().unwrap().body["sampling_params"]["structured_outputs"];
        if backend == Backend::Xgrammar {
            let tag = outputs["structural_tag"].as_str().unwrap();
            let tag: Value = serde_json::from_str(tag).unwrap();
            assert_eq!(tag["format"], case["format"], "{}", case["name"]);
        } else if outputs["json"].is_null() {
            assert_eq!(outputs["grammar"], case["ebnf"], "{}", case["name"]);
            assert!(outputs["grammar"].is_string(), "{}", case["name"]);
        }
    }
    assert_eq!(cases.len(), 6);
}

#[test]
fn the_engines_of_the_documented_deployments_are_valid() {
    let page = include_str!("../../docs/remote.md");
    let blocks: Vec<&str> =
        page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    // The first one has the engine as JSON, on a line of its own.
    let line = blocks[0].lines().find(|line| line.trim().starts_with(r#"{"type": "vllm""#));
    let of_compose: Value = serde_json::from_str(line.unwrap().trim()).unwrap();
    let urls = blocks[1].lines().filter_map(|line| line.trim().strip_prefix("- http:"));
    let urls: Vec<String> = urls.map(|rest| format!("http:{rest}")).collect();
    let of_chart = json!({ "type": "vllm", "base_url": urls, "connect_timeout_ms": 2000 });
    for (engine, count) in [(of_compose, 2), (of_chart, 3)] {
        assert_eq!(engine["base_url"].as_array().unwrap().len(), count);
        let options = json!({ "model": scripted_model("text.gguf"), "engine": engine });
        let options = llb::api::CreateOptions::read(&options).unwrap();
        assert!(options.engine.unwrap().tokens.is_some());
    }
}
