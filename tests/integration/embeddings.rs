//! Tests `llb_embed`: vectors of texts. The expected vectors are in tests/data/embeddings.json,
//! computed with NumPy (scripts/embeddings.py).

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Embedder, last_error, own_model, real_model, scripted_model, take};

impl Embedder {
    pub fn open(file: &str, options: Value) -> Embedder {
        Embedder::try_open(file, options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_open(file: &str, mut options: Value) -> Result<Embedder, Value> {
        let members = options.as_object_mut().unwrap();
        members.insert("model".into(), scripted_model(file).into());
        members.entry("n_threads").or_insert(json!(1));
        Embedder::create(&options)
    }

    /// The vectors in the reply to a request.
    #[track_caller]
    fn vectors(&self, request: &Value) -> Vec<Vec<f64>> {
        let reply = self.embed(request);
        assert_eq!(reply["type"], "embeddings", "{reply}");
        let data = reply["data"].as_array().unwrap();
        data.iter().map(|item| numbers(&item["embedding"])).collect()
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

pub fn golden() -> Value {
    serde_json::from_str(include_str!("../data/embeddings.json")).unwrap()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert_eq!(a.len(), b.len());
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[track_caller]
fn check_same(found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let cosine = cosine(found, expected);
        assert!(cosine >= 0.9999, "text {index}: {cosine}");
    }
}

#[test]
fn vectors_are_those_of_numpy() {
    let golden = golden();
    for (name, file, pooling) in [
        ("embedding", "embedding.gguf", None),
        ("embedding_cls", "embedding.gguf", Some("cls")),
        ("random_mean", "random.gguf", None),
        ("random_last", "random.gguf", Some("last")),
    ] {
        let options = pooling.map_or(json!({}), |pooling| json!({ "pooling": pooling }));
        let cases = golden[name].as_object().unwrap();
        let texts: Vec<&String> = cases.keys().collect();
        let expected: Vec<Vec<f64>> = cases.values().map(numbers).collect();
        check_same(&Embedder::open(file, options).vectors(&json!({ "input": texts })), &expected);
    }
}

#[test]
fn tokens_have_vectors_without_pooling() {
    let embedder = Embedder::open("embedding.gguf", json!({ "pooling": "none" }));
    let reply = embedder.embed(&json!({ "input": ["x", "the cat"] }));
    assert_eq!((&reply["pooling"], &reply["dimensions"]), (&json!("none"), &json!(32)));
    let rows = |list: &Value| list.as_array().unwrap().iter().map(numbers).collect::<Vec<_>>();
    let found = rows(&reply["data"][1]["embedding"]);
    let expected = rows(&golden()["tokens"]["the cat"]);
    check_same(&found, &expected);
    // Without normalization, the vectors have the lengths that the model computes.
    let length = |row: &[f64]| row.iter().map(|number| number * number).sum::<f64>().sqrt();
    assert!((length(&found[0]) - length(&expected[0])).abs() < 0.01);
}

/// More texts than fit in one decode, of different lengths.
fn many_texts() -> Vec<String> {
    let text = |index: usize| format!("the {} dog {}", "ab ".repeat(index % 17), index);
    (0..150).map(text).collect()
}

#[test]
fn texts_do_not_depend_on_their_neighbours() {
    for file in ["embedding.gguf", "random.gguf"] {
        let embedder = Embedder::open(file, json!({}));
        let texts = many_texts();
        let together = embedder.vectors(&json!({ "input": texts }));
        let alone: Vec<Vec<f64>> =
            texts.iter().flat_map(|text| embedder.vectors(&json!({ "input": text }))).collect();
        check_same(&together, &alone);
    }
}

#[test]
fn a_long_text_is_computed_in_parts() {
    let text = many_texts().concat();
    let text = &text[..1000];
    for pooling in ["mean", "last", "cls", "none"] {
        let vectors = |n_batch: u32| {
            let options = json!({ "pooling": pooling, "n_batch": n_batch, "n_ctx": 1024 });
            let reply =
                Embedder::open("random.gguf", options).embed(&json!({ "input": [text, "a"] }));
            let vector = reply["data"][0]["embedding"].clone();
            if pooling == "none" {
                vector.as_array().unwrap().iter().map(numbers).collect()
            } else {
                vec![numbers(&vector)]
            }
        };
        check_same(&vectors(64), &vectors(1024));
    }
}

#[test]
fn vectors_are_cut_and_encoded() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let whole = embedder.vectors(&json!({ "input": "the cat" })).remove(0);
    let length = |vector: &[f64]| vector.iter().map(|number| number * number).sum::<f64>().sqrt();
    assert!((length(&whole) - 1.0).abs() < 1e-5);

    let raw = embedder.vectors(&json!({ "input": "the cat", "normalize": false })).remove(0);
    assert!((length(&raw) - 1.0).abs() > 0.01 && cosine(&raw, &whole) > 0.999_999);

    let cut = embedder.embed(&json!({ "input": "the cat", "dimensions": 7 }));
    assert_eq!(cut["dimensions"], 7);
    let cut = numbers(&cut["data"][0]["embedding"]);
    assert!((length(&cut) - 1.0).abs() < 1e-5 && cosine(&cut, &whole[..7]) > 0.999_999);

    let prefixed = embedder.vectors(&json!({ "input": "cat", "prefix": "the " }));
    check_same(&prefixed, std::slice::from_ref(&whole));

    let request = json!({ "input": "the cat", "encoding_format": "base64" });
    let encoded = embedder.embed(&request)["data"][0]["embedding"].as_str().unwrap().to_owned();
    // 32 floats of 4 bytes; base64 writes 3 bytes as 4 digits.
    assert_eq!((encoded.len(), encoded.ends_with('=')), (172, true));
    assert!(whole.iter().all(|number| number.abs() <= 1.0));
}

#[test]
fn replies_have_openai_s_shape() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let mut reply = embedder.embed(&json!({ "input": ["a", "cat"], "model": "x" }));
    let mut members: Vec<&String> = reply.as_object().unwrap().keys().collect();
    members.sort_unstable();
    let expected = [
        "data",
        "dimensions",
        "ignored_keys",
        "model",
        "object",
        "pooling",
        "timings",
        "truncated",
        "type",
        "usage",
    ];
    assert_eq!(members, expected);
    let data = reply["data"].take();
    assert_eq!((&data[1]["object"], &data[1]["index"]), (&json!("embedding"), &json!(1)));
    assert_eq!((&reply["object"], &reply["model"]), (&json!("list"), &json!("Random Mean")));
    assert_eq!(reply["usage"], json!({ "prompt_tokens": 6, "total_tokens": 6 }));
    assert_eq!(reply["ignored_keys"], json!(["model"]));
}

#[test]
fn texts_that_are_too_long_are_refused_or_cut() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let long = "the ".repeat(100);
    let refused = embedder.embed(&json!({ "input": ["a", long] }));
    assert_eq!(refused["error"]["code"], "CONTEXT_OVERFLOW");
    assert_eq!(refused["error"]["details"], json!({ "index": 1, "n_tokens": 102, "n_ctx": 64 }));
    let cut = embedder.embed(&json!({ "input": ["a", long], "truncate": true }));
    assert_eq!(cut["truncated"], json!([{ "index": 1, "tokens": 102 }]));
    assert_eq!(cut["usage"]["prompt_tokens"], 3 + 64);
    // The text between the enclosing tokens is cut, but not these tokens.
    let kept = embedder.vectors(&json!({ "input": "the ".repeat(62) })).remove(0);
    assert!(cosine(&numbers(&cut["data"][1]["embedding"]), &kept) > 0.9999);
}

#[track_caller]
pub fn check_error(reply: &Value, code: &str, message: &str) {
    assert_eq!(reply["error"]["code"], code, "{reply}");
    let found = reply["error"]["message"].as_str().unwrap();
    assert!(found.contains(message), "{found}");
}

#[test]
fn bad_requests_are_errors() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    for (request, message) in [
        (json!({}), "input: missing"),
        (json!({ "input": [] }), "input: is empty"),
        (json!({ "input": ["a", 5] }), "input[1]: expected a string, got 5"),
        (json!({ "input": { "a": 1 } }), "input: expected a string or an array of strings"),
        (json!({ "input": "a", "dimensions": 33 }), "dimensions: the model's vectors have 32"),
        (json!({ "input": "a", "normalize": "yes" }), "normalize: expected true or false"),
        (json!([]), "request: expected an object"),
    ] {
        check_error(&embedder.embed(&request), "INVALID_REQUEST", message);
    }
    check_error(&embedder.embed_text("{"), "INVALID_REQUEST", "request_json: not valid JSON");
    // SAFETY: NULL is allowed.
    let null = take(unsafe { ffi::llb_embed(embedder.handle(), std::ptr::null()) });
    check_error(&null, "INVALID_REQUEST", "request_json: is NULL");
    // The text has no tokens, because this vocabulary does not enclose texts.
    let bare = Embedder::open("random.gguf", json!({}));
    let reply = bare.embed(&json!({ "input": ["a", ""] }));
    check_error(&reply, "INVALID_REQUEST", "input[1]: is empty, and has no tokens");
    // The model stays usable.
    assert_eq!(embedder.embed(&json!({ "input": "a" }))["type"], "embeddings");
}

#[test]
fn unknown_characters_are_the_unknown_token() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let request = json!({ "input": ["\u{6771}", "\u{1F600}", "a"] });
    assert_eq!(embedder.embed(&request)["usage"]["prompt_tokens"], 3 + 3 + 3);
    let vectors = embedder.vectors(&request);
    assert!(cosine(&vectors[0], &vectors[1]) > 0.999_99);
    assert!(cosine(&vectors[0], &vectors[2]) < 0.99);
}

#[test]
fn large_requests_are_computed() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let megabytes = "the cat sits. ".repeat(10 << 20 >> 4);
    let request = json!({ "input": [megabytes], "truncate": true });
    assert_eq!(embedder.embed(&request)["usage"]["prompt_tokens"], 64);
    let texts = vec!["a"; 20_000];
    let reply = embedder.embed(&json!({ "input": texts, "dimensions": 1 }));
    assert_eq!(reply["data"].as_array().map(Vec::len), Some(20_000));
}

#[test]
fn requests_with_too_large_replies_are_refused() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let reply = embedder.embed(&json!({ "input": vec!["a"; 65_537] }));
    check_error(&reply, "INVALID_REQUEST", "input: has 65537 texts, more than 65536");
    // 64 tokens of 32 numbers are 2,048 numbers, of which 4,096 texts make the largest reply.
    let embedder = Embedder::open("embedding.gguf", json!({ "pooling": "none" }));
    let texts = vec!["the ".repeat(62); 4_097];
    let reply = embedder.embed(&json!({ "input": texts }));
    check_error(&reply, "INVALID_REQUEST", "would have 8390656 numbers, more than 8388608; send");
    // The prefix is short, but not what the texts become with it.
    let prefix = "the ".repeat(50);
    let reply = embedder.embed(&json!({ "input": vec!["a"; 6_000], "prefix": prefix }));
    check_error(&reply, "INVALID_REQUEST", "would have ");
    assert_eq!(embedder.embed(&json!({ "input": "a" }))["type"], "embeddings");
}

#[test]
fn bad_options_are_errors() {
    let options = |options: Value| Embedder::create(&options).err().expect("refused");
    check_error(&options(json!({})), "INVALID_REQUEST", "model: missing");
    check_error(&options(json!({ "model": "/nowhere.gguf" })), "MODEL_NOT_FOUND", "nowhere");
    check_error(&options(json!({ "model": "" })), "MODEL_NOT_FOUND", "model: the path is empty");
    let file = |name: &str, options| Embedder::try_open(name, options).err().expect("refused");
    let unknown = file("embedding.gguf", json!({ "n_seq": 1 }));
    check_error(&unknown, "INVALID_REQUEST", "n_seq: unknown option");
    let pooling = file("embedding.gguf", json!({ "pooling": "max" }));
    check_error(&pooling, "INVALID_REQUEST", "pooling: unknown value \"max\"");
    let rank = file("embedding.gguf", json!({ "pooling": "rank" }));
    check_error(&rank, "INVALID_REQUEST", "pooling: the model has no weights that make scores");
    check_error(&file("truncated.gguf", json!({})), "MODEL_INVALID", "truncated.gguf");
    let positions = file("embedding.gguf", json!({ "n_ctx": 65 }));
    check_error(&positions, "INVALID_REQUEST", "n_ctx: the model has learned 64 positions");
    // SAFETY: NULL is allowed.
    assert!(unsafe { ffi::llb_embed_create(std::ptr::null()) }.is_null());
    check_error(&last_error(), "INVALID_REQUEST", "options_json: is NULL");
}

#[test]
fn an_embedding_model_does_not_chat() {
    for (file, function) in [
        ("embedding.gguf", "llb_embed"),
        ("reranker.gguf", "llb_rank"),
        ("decoder_reranker.gguf", "llb_rank"),
    ] {
        let options = json!({ "model": scripted_model(file), "tool_policy": "any" });
        let refused = Chat::open_with(&options).err().expect("refused");
        assert_eq!(refused.code(), "MODEL_INVALID");
        assert_eq!(refused.events.last().unwrap(), "create_failure:load_model");
        assert!(refused.message().ends_with(function), "{}", refused.message());
    }
}

#[test]
fn a_chat_model_makes_vectors() {
    let Some(model) = real_model("smollm2-135m-instruct-q4_1.gguf") else { return };
    let embedder = Embedder::create(&json!({ "model": model, "n_ctx": 512 })).unwrap();
    let texts =
        ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose."];
    let vectors = embedder.vectors(&json!({ "input": texts }));
    let near = cosine(&vectors[0], &vectors[1]);
    let far = cosine(&vectors[0], &vectors[2]);
    assert!(near > far, "{near} {far}");
}

#[test]
fn handles_of_other_types_are_closed() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let chat = Chat::open(&scripted_model("text.gguf"));
    let request = CString::new(json!({ "input": "a", "messages": [] }).to_string()).unwrap();
    let of_chat: *mut ffi::llb_embedder = std::ptr::without_provenance_mut(chat.handle().addr());
    // SAFETY: NUL-terminated; a handle may be any number.
    let reply = take(unsafe { ffi::llb_embed(of_chat, request.as_ptr()) });
    check_error(&reply, "ENGINE_CLOSED", "embedder: not an open embedding model");
    let of_model: *mut ffi::llb_chat = std::ptr::without_provenance_mut(embedder.handle().addr());
    // SAFETY: as above.
    let reply = take(unsafe { ffi::llb_chat_infer(of_model, request.as_ptr()) });
    check_error(&reply, "ENGINE_CLOSED", "chat: not an open chat");
    // Destroying one with the function for the other has no effect.
    ffi::llb_embed_destroy(of_chat);
    ffi::llb_chat_destroy(of_model);
    assert_eq!(embedder.embed(&json!({ "input": "a" }))["type"], "embeddings");
    assert!(chat.events().iter().all(|event| event != "destroy"));

    let handle = embedder.handle();
    drop(embedder);
    // SAFETY: as above.
    let reply = take(unsafe { ffi::llb_embed(handle, request.as_ptr()) });
    check_error(&reply, "ENGINE_CLOSED", "destroyed");
    ffi::llb_embed_destroy(handle);
    ffi::llb_embed_cancel(handle);
    ffi::llb_embed_destroy(std::ptr::null_mut());
}

#[test]
fn calls_of_many_threads_run_one_after_another() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let expected = embedder.vectors(&json!({ "input": many_texts() }));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                check_same(&embedder.vectors(&json!({ "input": many_texts() })), &expected);
            });
        }
    });
}

#[test]
fn handles_with_the_same_options_share_a_model_but_not_their_calls() {
    let model = own_model("embedding.gguf");
    let open = |members: Value| {
        let mut options = json!({ "model": model, "n_threads": 1 });
        options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        Embedder::create(&options).unwrap_or_else(|error| panic!("{error}"))
    };
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines().filter(|line| line.contains(&model)).count()
    };
    let first = open(json!({}));
    let of_one = mappings();
    // How long a handle keeps the model does not matter.
    let second = open(json!({ "keep_alive": 3600 }));
    assert_eq!(mappings(), of_one);
    let other = open(json!({ "pooling": "cls" }));
    assert_eq!(mappings(), 2 * of_one);
    drop(other);
    let texts = json!({ "input": many_texts() });
    let expected = first.vectors(&texts);
    let first_text = json!({ "input": many_texts()[0] });
    let long = json!({ "input": vec!["the cat sits"; 60_000], "dimensions": 1 });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let reply = first.embed(&long);
            done.store(true, Ordering::Release);
            reply
        });
        check_same(&second.vectors(&texts), &expected);
        // Those of the other handle go on.
        while !done.load(Ordering::Acquire) {
            ffi::llb_embed_cancel(first.handle());
            check_same(&second.vectors(&first_text), &expected[..1]);
        }
        check_error(&running.join().unwrap(), "CANCELLED", "the call was cancelled");
    });
    drop(first);
    assert_eq!(mappings(), of_one);
    check_same(&second.vectors(&texts), &expected);
    drop(second);
    assert_eq!(mappings(), 0);
}

#[test]
fn a_call_can_be_cancelled() {
    let embedder = Embedder::open("embedding.gguf", json!({}));
    let request = json!({ "input": vec!["the cat sits"; 60_000], "dimensions": 1 });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let reply = embedder.embed(&request);
            done.store(true, Ordering::Release);
            reply
        });
        // The cancel may arrive before the call has begun, so it is repeated.
        while !done.load(Ordering::Acquire) {
            ffi::llb_embed_cancel(embedder.handle());
            std::thread::yield_now();
        }
        check_error(&running.join().unwrap(), "CANCELLED", "the call was cancelled");
    });
    let late = embedder.embed(&json!({ "input": vec!["a"; 60_000], "timeout_ms": 1 }));
    check_error(&late, "CANCELLED", "timeout_ms");
    assert_eq!(embedder.embed(&json!({ "input": "a" }))["type"], "embeddings");
}
