//! Tests that the time of a call grows with the size of each member, not with its square. Those of
//! templates are in `src/template_requests/tests/growth.rs`.
//!
//! With `LLB_GROWTH=long` the members are larger, and have values of each kind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use llb::ffi;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use crate::abi::{Chat, Embedder, ask, call, rank, scripted_model};
use crate::large::run_in_child;
use crate::time_growth;

fn is_long() -> bool {
    std::env::var_os("LLB_GROWTH").is_some_and(|length| length == "long")
}

/// The processor time of this process, which runs nothing but one test.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

type Shape = (&'static str, fn(usize) -> Value);

/// Values of each kind, which most members refuse. The last two are tried by the long form only.
const SHAPES: [Shape; 5] = [
    ("names", |n| (0..n).map(|index| Value::from(format!("t{index}"))).collect()),
    ("objects", |n| {
        (0..n).map(|index| json!({ "name": format!("n{index}"), "id": index })).collect()
    }),
    ("members", |n| {
        Value::Object((0..n).map(|index| (index.to_string(), 1.into())).collect::<Map<_, _>>())
    }),
    ("pairs", |n| (0..n).map(|index| json!([index % 100, 0])).collect()),
    ("text", |n| "a b".repeat(n).into()),
];

#[track_caller]
fn check(name: &str, run: impl Fn(&Value) -> Value, request: impl Fn(usize) -> Value) {
    time_growth::check(name, if is_long() { 40_000 } else { 20_000 }, |n| {
        let request = request(n);
        let begin = process_time();
        let reply = run(&request);
        let time = process_time().saturating_sub(begin);
        assert!(reply["type"].is_string() || reply["choices"].is_array(), "{name}: {reply}");
        time
    });
}

/// Gives each member values of each kind, beside those of `base`.
fn check_members(members: &BTreeSet<String>, base: &Value, run: impl Fn(&Value) -> Value) {
    let shapes = &SHAPES[..if is_long() { 5 } else { 3 }];
    for member in members {
        for (shape, value) in shapes {
            check(&format!("{member}: {shape}"), &run, |n| {
                let mut request = base.clone();
                request[member] = value(n);
                request
            });
        }
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The names in the first column of the tables in these sections of docs/abi.md.
fn documented(sections: &[&str]) -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/abi.md");
    let page = fs::read_to_string(page).unwrap();
    let mut names = BTreeSet::new();
    for section in sections {
        let (_, rest) = page.split_once(&format!("# {section}\n")).expect(section);
        let body = rest.split("\n#").next().unwrap();
        for line in body.lines().filter_map(|line| line.strip_prefix("| `")) {
            let cell = line.split('|').next().unwrap();
            names.extend(cell.split('`').step_by(2).map(str::to_owned));
        }
    }
    names.retain(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    assert!(names.len() > 20, "{sections:?}: {names:?}");
    names
}

#[test]
fn members_of_chat_requests() {
    run_in_child("growth::members_of_chat_requests", || {
        let chat = Chat::open(&scripted_model("tool_call.gguf"));
        let mut members = documented(&["Chat requests", "Sampling"]);
        members.insert("other".to_owned());
        check_members(&members, &ask(json!({})), |request| chat.explain(request));
        // A request reads most members as an explanation does. It also uses these.
        let used = names(&["stop", "logit_bias", "tools", "messages", "dry_sequence_breakers"]);
        check_members(&used, &ask(json!({ "max_tokens": 1 })), |request| chat.infer(request));
    });
}

#[test]
fn options_of_create() {
    run_in_child("growth::options_of_create", || {
        let mut options = documented(&["llb_chat_create_with", "Servers"]);
        options.insert("other".to_owned());
        let create = |options: &Value| match Chat::open_with(options) {
            Ok(_) => json!({ "type": "opened" }),
            Err(refused) => refused.error.clone(),
        };
        // A server needs no model, so its chat is opened at once.
        let template = "{{ messages[0].content }}";
        let base = json!({ "chat_template": template, "tool_policy": "any", "engine": {
            "type": "openai_completions", "base_url": "http://127.0.0.1:9", "model": "a",
        } });
        check_members(&options, &base, create);
        check_members(&options, &base["engine"], |engine| {
            create(&json!({ "chat_template": template, "engine": engine }))
        });
        // Those that need one.
        let base = json!({ "model": scripted_model("text.gguf"), "n_ctx": 256 });
        let of_models = names(&["lora", "override_tensor", "tensor_split", "devices", "other"]);
        check_members(&of_models, &base, create);
    });
}

#[test]
fn members_of_embed_and_rank() {
    run_in_child("growth::members_of_embed_and_rank", || {
        let open = |model| Embedder::create(&json!({ "model": scripted_model(model) })).unwrap();
        let embedder = open("embedding.gguf");
        let of_embed = ["input", "dimensions", "encoding_format", "prefix", "truncate", "other"];
        check_members(&names(&of_embed), &json!({ "input": "a" }), |request| {
            embedder.embed(request)
        });
        let reranker = open("reranker.gguf");
        let of_rank = ["query", "documents", "top_n", "return_documents", "truncate", "other"];
        let base = json!({ "query": "a", "documents": ["a"] });
        check_members(&names(&of_rank), &base, |request| rank(&reranker, request));
        let of_create = ["model", "n_ctx", "lora", "devices", "keep_alive", "log", "other"];
        let base = json!({ "model": scripted_model("embedding.gguf") });
        check_members(&names(&of_create), &base, |options| match Embedder::create(options) {
            Ok(_) => json!({ "type": "opened" }),
            Err(error) => error,
        });
    });
}

#[test]
fn members_of_calls_without_weights() {
    run_in_child("growth::members_of_calls_without_weights", || {
        let model = scripted_model("text.gguf");
        let base = json!({ "model_path": model, "text": "a" });
        check_members(&names(&["text", "add_special", "details", "other"]), &base, |request| {
            call(ffi::llb_tokenize, request)
        });
        let base = json!({ "model_path": model, "ids": [1] });
        check_members(&names(&["ids", "remove_special", "other"]), &base, |request| {
            call(ffi::llb_detokenize, request)
        });
        check(
            "ids: tokens",
            |request| call(ffi::llb_detokenize, request),
            |n| json!({ "model_path": model, "ids": vec![1; n] }),
        );
        let mut base = ask(json!({}));
        base["model_path"] = model.clone().into();
        check_members(&names(&["messages", "tools", "other"]), &base, |request| {
            call(ffi::llb_count, request)
        });
        let base = json!({ "model_path": model });
        let of_memory = ["contexts", "devices", "override_tensor", "tensor_split", "other"];
        check_members(&names(&of_memory), &base, |request| call(ffi::llb_memory, request));
    });
}
