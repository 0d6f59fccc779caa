//! Compares `llb_memory` with the allocations that llama.cpp reports in its log.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, call, real_model, scripted_model};
use crate::scripted::learned;
use crate::scripted::random::{Memory, random};
use crate::scripted::text_model;

fn memory(request: &Value) -> Value {
    call(ffi::llb_memory, request)
}

/// The memory in MiB that the log of a create reports: weights, caches and states, buffers.
pub fn allocated(options: &Value) -> [f64; 3] {
    let mut options = options.clone();
    options["model"] = options["model_path"].take();
    options.as_object_mut().unwrap().remove("model_path");
    options["tool_policy"] = "any".into();
    options["log"] = "info".into();
    options["n_threads"] = 1.into();
    let chat = Chat::open_recorded(&options, Recorder::default());
    let chat = chat.unwrap_or_else(|refused| panic!("{refused:?}"));
    let mut sums = [0.0; 3];
    for line in chat.events() {
        let Some((what, size)) = line.split_once(" buffer size = ") else { continue };
        let size: f64 = size.trim().split(' ').next().unwrap().parse().unwrap();
        let part = match what.rsplit(' ').next().unwrap() {
            "model" | "LoRA" => 0,
            "KV" | "RS" => 1,
            "output" | "compute" => 2,
            other => panic!("{other}: {line}"),
        };
        sums[part] += size;
    }
    assert!(sums[2] > 0.0, "{:?}", chat.events());
    sums
}

/// Checks that the total and each part are within 5 %, apart from what the log rounds.
#[track_caller]
fn check(options: &Value) {
    check_parts(options, 0);
}

/// Checks the total, and the parts from `first` on: weights, cache, buffers.
#[track_caller]
fn check_parts(options: &Value, first: usize) {
    let reply = memory(options);
    assert_eq!(reply["type"], "memory", "{reply}");
    let mib = |name: &str| reply[name].as_f64().unwrap() / f64::from(1 << 20);
    let known = allocated(options);
    let parts = ["weights", "cache", "compute"].map(mib);
    for (own, known) in parts.into_iter().zip(known).skip(first) {
        assert!((own - known).abs() <= 0.05 * known + 0.03, "{parts:?} {known:?} {reply}");
    }
    let all: f64 = known.iter().sum();
    assert!((mib("total") - all).abs() <= 0.05 * all, "{parts:?} {known:?} {reply}");
    assert_eq!(reply["fits"], true, "{reply}");
}

/// Options that change the size.
fn variants(path: &str, n_ctx: u32) -> [Value; 4] {
    let with = |mut options: Value| {
        options["model_path"] = path.into();
        options
    };
    [
        with(json!({ "n_ctx": n_ctx })),
        with(json!({ "n_ctx": n_ctx, "n_parallel": 1, "n_batch": 64 })),
        with(json!({ "n_ctx": 256, "flash_attn": "off", "cache_type_k": "f32" })),
        with(json!({ "n_ctx": n_ctx, "n_parallel": 32, "use_mmap": false })),
    ]
}

#[test]
fn sizes_are_those_of_llama_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A model with the same tensors, but of another architecture.
    let mut other = random(Memory::Dense);
    while let Some(at) = other.windows(5).position(|name| name == b"llama") {
        other[at..at + 5].copy_from_slice(b"qwen2");
    }
    let files = [
        write("dense.gguf", random(Memory::Dense)),
        write("other.gguf", other),
        write("window.gguf", random(Memory::Window)),
        write("state.gguf", random(Memory::State)),
        write("both.gguf", random(Memory::Both)),
        scripted_model("text.gguf"),
    ];
    for path in &files {
        variants(path, 2048).iter().for_each(check);
    }
    // States that are kept to take drafts back are part of the cache.
    for path in &files[4..6] {
        check(&json!({ "model_path": path, "n_ctx": 512, "speculative": "ngram" }));
    }
    let learned = write("learned.gguf", learned::learned(512));
    variants(&learned, 512).iter().for_each(check);
}

/// Adapters and draft models are in the sums, and each has its part.
#[test]
fn adapters_and_draft_models_count() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = folder.path().join("adapter.gguf");
    std::fs::write(&adapter, text_model().adapter(3, 8).to_bytes()).unwrap();
    let text = scripted_model("text.gguf");
    let alone = json!({ "model_path": text, "n_ctx": 1024 });
    let bytes = |reply: &Value, name: &str| {
        reply[name].as_u64().unwrap_or_else(|| panic!("{name}: {reply}"))
    };
    let parts = ["weights", "cache", "compute", "total"];
    let without = memory(&alone);
    assert_eq!((without.get("adapters"), without.get("draft")), (None, None));
    let mut with = alone.clone();
    with["lora"] = json!([adapter, { "path": adapter, "scale": 0.5 }]);
    let reply = memory(&with);
    // The log has the compute buffers twice: llama.cpp reserves them again for adapters.
    let [known, cache, _] = allocated(&with);
    let mib = |name: &str| bytes(&reply, name) as f64 / f64::from(1 << 20);
    assert!((mib("weights") - known).abs() <= 0.05 * known + 0.03, "{known}: {reply}");
    assert!((mib("cache") - cache).abs() <= 0.05 * cache + 0.03, "{cache}: {reply}");
    let own = bytes(&reply, "adapters");
    let size = std::fs::metadata(&adapter).unwrap().len();
    assert!(own > 0 && own < 2 * size, "{own} of twice {size}");
    assert_eq!(bytes(&reply, "weights"), bytes(&without, "weights") + own, "{reply}");
    let mut with = alone.clone();
    // The model itself drafts: everything is there twice. The log has no room for the lines of
    // both.
    check(&alone);
    with["draft_model"] = text.as_str().into();
    let reply = memory(&with);
    for part in parts {
        assert_eq!(bytes(&reply["draft"], part), bytes(&without, part), "{part}: {reply}");
        let sum = bytes(&without, part) + bytes(&reply["draft"], part);
        assert_eq!(bytes(&reply, part), sum, "{part}: {reply}");
    }
    let of_device = |name: &str| {
        let devices = reply["devices"].as_array().unwrap().iter();
        devices.map(|device| device[name].as_u64().unwrap()).sum::<u64>()
    };
    assert!(parts.iter().all(|part| of_device(part) == bytes(&reply, part)), "{reply}");
    for (name, value, says) in [
        ("lora", json!([text]), "lora[0].path: "),
        ("lora", json!(["/nonexistent"]), "lora[0].path: "),
        ("draft_model", json!("/nonexistent"), "draft_model: "),
        ("draft_model", json!(adapter), "draft_model: "),
        ("draft_model", json!(3), "draft_model: expected a string"),
    ] {
        let mut wrong = alone.clone();
        wrong[name] = value;
        let reply = memory(&wrong);
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(reply["type"] == "error" && message.starts_with(says), "{says}: {reply}");
    }
}

#[test]
fn sizes_of_real_models_are_those_of_llama_cpp() {
    for name in [
        "smollm2-135m-instruct-q4_1.gguf",
        "gemma-3-270m-q4_k_m.gguf",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ] {
        if let Some(path) = real_model(name) {
            // The weights lack the copies that llama.cpp orders for the processor.
            check_parts(&json!({ "model_path": path, "n_ctx": 4096 }), 1);
        }
    }
}

#[test]
fn the_largest_context_is_the_one_of_fit() {
    // The model needs little memory, so the whole trained context fits.
    let path = scripted_model("text.gguf");
    let reply = memory(&json!({ "model_path": path, "n_ctx": "fit", "strange": 1 }));
    assert_eq!(reply["largest_n_ctx"], 2048, "{reply}");
    assert_eq!((&reply["n_ctx"], &reply["context_length"]), (&json!(2048), &json!(2048)));
    assert_eq!(reply["ignored_keys"], json!(["strange"]));
    let small = memory(&json!({ "model_path": path, "n_ctx": 256 }));
    assert_eq!((&small["n_ctx"], &small["largest_n_ctx"]), (&json!(256), &json!(2048)));
    assert!(small["cache"].as_u64() < reply["cache"].as_u64(), "{small} {reply}");
    let chat = Chat::open_with(&json!({ "model": path, "n_ctx": "fit", "tool_policy": "any" }));
    let chat = chat.unwrap_or_else(|refused| panic!("{refused:?}"));
    let words = "word ".repeat(300);
    let request = json!({ "messages": [{ "role": "user", "content": words }], "max_tokens": 3 });
    let prompt = chat.explain(&request)["prompt_tokens"].as_u64().unwrap();
    assert_eq!(chat.explain(&request)["tokens_left"].as_u64(), Some(2048 - prompt));
}

/// Only a part of the trained context fits. The largest context that is reported fits, and the next
/// larger one does not.
#[test]
fn the_largest_context_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endless.gguf");
    // The same model, trained for a context that needs more memory than any machine has.
    let mut bytes = random(Memory::Dense);
    let key = b"llama.context_length";
    let at = bytes.windows(key.len()).position(|it| it == key).unwrap() + key.len() + 4;
    bytes[at..at + 4].copy_from_slice(&2_000_000_000_u32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let at = |n_ctx: Value| memory(&json!({ "model_path": path.to_str(), "n_ctx": n_ctx }));
    let largest = at(json!("fit"));
    let n_ctx = largest["largest_n_ctx"].as_u64().unwrap();
    assert_eq!(largest["n_ctx"].as_u64(), Some(n_ctx));
    assert!((256..2_000_000_000).contains(&n_ctx) && n_ctx % 256 == 0, "{largest}");
    // The amount of free memory changes while the test runs.
    let total = largest["total"].as_f64().unwrap();
    let free = largest["devices"][0]["free"].as_f64().unwrap();
    assert!(total < free && total > 0.6 * free, "{largest}");
    let twice = at(json!(2 * n_ctx));
    assert_eq!(twice["fits"], false, "{twice}");
    // Contexts above a length are not created to be measured.
    let [created, endless] = [1 << 16, 2_000_000_000].map(|n_ctx| at(json!(n_ctx)));
    assert_eq!(endless["fits"], false, "{endless}");
    for part in ["cache", "compute"] {
        let ratio = endless[part].as_f64().unwrap() / created[part].as_f64().unwrap();
        let expected = 2e9 / f64::from(1 << 16);
        assert!((ratio / expected - 1.0).abs() < 0.03, "{part}: {created} {endless}");
    }
    let claimed = memory(&json!({ "model_path": path.to_str(), "n_ctx": 256 }));
    assert!(claimed["largest_n_ctx"].as_u64() <= Some(1 << 24), "{claimed}");
}

#[test]
fn several_contexts_are_those_of_several_requests() {
    let path = scripted_model("text.gguf");
    let types = |name: &str| json!({ "n_ctx": 512, "cache_type_k": name, "cache_type_v": name });
    let changes =
        [json!({}), types("q8_0"), json!({ "n_ctx": "fit", "n_parallel": 2, "strange": 1 })];
    let base = json!({ "model_path": path, "n_ctx": 256 });
    let mut request = base.clone();
    request["contexts"] = json!(changes);
    let reply = memory(&request);
    assert_eq!(reply["ignored_keys"], json!(["contexts[2].strange"]));
    for (change, context) in changes.iter().zip(reply["contexts"].as_array().unwrap()) {
        let mut alone = base.clone();
        alone.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let alone = memory(&alone);
        for name in ["type", "n_ctx", "n_parallel", "weights", "cache", "compute", "total", "fits"]
        {
            assert_eq!(context[name], alone[name], "{name}: {context} {alone}");
        }
    }
    // A wrong value is an error of the request.
    for (contexts, path) in [
        (json!([{}, { "n_ctx": "x" }]), "contexts[1].n_ctx: "),
        (json!([1]), "contexts[0]: "),
        (json!({}), "contexts: "),
        (json!(vec![json!({}); 65]), "contexts: "),
    ] {
        request["contexts"] = contexts;
        let error = memory(&request)["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(path), "{error}");
    }
}
