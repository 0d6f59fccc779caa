//! Tests drafts for models with recurrent layers. llama.cpp can take back the states of some of them
//! when a draft is rejected: replies are the same with and without drafts, and drafts save decodes.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::ffi;
use llb::gguf::ModelHeader;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, call};
use crate::architectures;
use crate::memory_use::allocated;
use crate::model_file::{Content, ModelFile};

/// Models with random weights of the architectures whose states can be taken back. They write only
/// the letters "a" to "d", so that repetitions are often continued, and often not. Their states decay
/// slowly.
fn models() -> Vec<ModelFile> {
    let mut models = architectures::all();
    models.retain(|model| {
        let bytes = model.to_bytes();
        let size = bytes.len() as u64;
        ModelHeader::read(Cursor::new(bytes), size).unwrap().can_take_back_states()
    });
    for model in &mut models {
        for tensor in &mut model.tensors {
            if tensor.name == "output.weight" {
                tensor.content = Content::Rows { first: b'a'.into(), count: 4, factor: 30.0 };
            } else if tensor.name.ends_with("ssm_a") {
                tensor.content = Content::Repeated(-0.02, -0.3);
            }
        }
    }
    models
}

pub fn write(folder: &Path, model: &ModelFile) -> PathBuf {
    let path = folder.join(format!("{}.gguf", model.name));
    std::fs::write(&path, model.to_bytes()).unwrap();
    path
}

/// Everything is f32, so that another order of computation changes only the seventh digit.
pub fn open(path: &Path, members: Value) -> Chat {
    let mut options = json!({ "model": path, "tool_policy": "any", "n_ctx": 480, "n_batch": 64,
        "n_parallel": 3, "n_threads": 1, "flash_attn": "off", "cache_type_k": "f32",
        "cache_type_v": "f32" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()))
}

fn ngram() -> Value {
    json!({ "speculative": { "type": "ngram", "n_max": 4, "ngram": 2 } })
}

pub fn drafted(reply: &Value) -> [u64; 2] {
    ["draft_n", "draft_n_accepted"].map(|name| reply["timings"][name].as_u64().unwrap_or_default())
}

/// The requests of a conversation, and the replies of a chat that drafts nothing. Each turn begins
/// within the last reply, or after it.
pub fn conversation(plain: &Chat, name: &str) -> Vec<(Value, Value)> {
    let mut messages = vec![json!({ "role": "system", "content": "Write abcd. ".repeat(4) })];
    let mut turns = Vec::new();
    for turn in 0..5 {
        messages.push(json!({ "role": "user", "content": format!("{name} {turn}") }));
        let mut request = match turn % 3 {
            0 => json!({ "temperature": 0 }),
            1 => json!({ "temperature": 1.5, "seed": turn }),
            _ => {
                json!({ "temperature": 1, "seed": turn, "response_format": { "type": "json_schema",
                "json_schema": { "name": "n", "schema": { "type": "object", "properties": {
                    "first": { "enum": ["abba", "dada"] }, "second": { "type": "boolean" } },
                    "required": ["first", "second"], "additionalProperties": false } } } })
            }
        };
        request["messages"] = messages.clone().into();
        request["max_tokens"] = 40.into();
        request["cache_prompt"] = false.into();
        let reply = plain.infer(&request);
        assert_ne!(reply["type"], "error", "{reply}");
        request["cache_prompt"] = true.into();
        let text = reply["text"].as_str().unwrap();
        let kept = &text[..text.len() - 7 * (turn % 2)];
        messages.push(json!({ "role": "assistant", "content": kept }));
        turns.push((request, reply));
    }
    turns
}

/// Sends the requests of a conversation. Returns the numbers of drafted and accepted tokens.
pub fn repeat(chat: &Chat, turns: &[(Value, Value)], model: &str) -> [u64; 2] {
    let mut sums = [0, 0];
    for (request, expected) in turns {
        let reply = chat.infer(request);
        assert_eq!(reply["text"], expected["text"], "{model}: {request}");
        assert_eq!(reply["finish_reason"], expected["finish_reason"], "{model}: {request}");
        let [tokens, accepted] = drafted(&reply);
        sums = [sums[0] + tokens, sums[1] + accepted];
    }
    sums
}

/// Sends a conversation to each chat at the same time.
pub fn repeat_at_once(chats: &[Chat], all: &[Vec<(Value, Value)>], model: &str) {
    std::thread::scope(|scope| {
        for (chat, turns) in chats.iter().zip(all) {
            scope.spawn(|| repeat(chat, turns, model));
        }
    });
}

#[test]
fn replies_are_the_same_alone_and_beside_others() {
    let folder = tempfile::tempdir().unwrap();
    let models = models();
    assert!(models.len() >= 15, "{} models", models.len());
    let mut rejected = 0;
    for model in models {
        let path = write(folder.path(), &model);
        let plain = open(&path, json!({ "speculative": "off" }));
        let all = ["one", "two", "three"].map(|name| conversation(&plain, name));
        let chats = [(); 3].map(|()| open(&path, ngram()));
        let [mut tokens, mut accepted] = [0, 0];
        for turns in &all {
            let [more, right] = repeat(&chats[0], turns, &model.name);
            (tokens, accepted) = (tokens + more, accepted + right);
        }
        let name = &model.name;
        assert!(accepted > 20, "{name}: {accepted} of {tokens}");
        rejected += tokens - accepted;
        for _ in 0..3 {
            repeat_at_once(&chats, &all, name);
        }
    }
    assert!(rejected > 200, "{rejected}");
}

#[test]
fn a_cancel_and_a_full_context_leave_sound_states() {
    let folder = tempfile::tempdir().unwrap();
    for model in models().into_iter().filter(|model| model.architecture.starts_with("qwen35")) {
        let path = write(folder.path(), &model);
        let plain = open(&path, json!({ "speculative": "off" }));
        let turns = conversation(&plain, "one");
        let chat = open(&path, ngram());
        for after in [0, 1, 4, 9, 20] {
            let handle = chat.handle().addr();
            let pieces = AtomicUsize::new(0);
            let recorder = Recorder::reacting(move |_| {
                if pieces.fetch_add(1, Ordering::Relaxed) == after {
                    ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
                }
            });
            let (request, expected) = &turns[after % turns.len()];
            let reply = chat.stream(request, &recorder);
            let (text, whole) = (reply["text"].as_str().unwrap(), &expected["text"]);
            assert!(whole.as_str().unwrap().starts_with(text), "{}: {reply}", model.name);
            repeat(&chat, &turns, &model.name);
        }
        let mut endless = turns[0].0.clone();
        endless["max_tokens"] = 100_000.into();
        let [expected, reply] = [&plain, &chat].map(|chat| chat.infer(&endless));
        assert_eq!(reply["text"], expected["text"], "{}", model.name);
        assert_eq!(reply["finish_reason"], "length");
        repeat(&chat, &turns, &model.name);
    }
}

/// The states that are kept for drafts are part of the cache. "auto" keeps them if they take little
/// beside the weights.
#[test]
fn states_for_drafts_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let path = write(folder.path(), &model);
        let memory = |speculative: Value, n_parallel: u32| {
            let options = json!({ "model_path": path, "n_ctx": 256, "n_parallel": n_parallel,
                "speculative": speculative });
            let reply = call(ffi::llb_memory, &options);
            let [_, cache, compute] = allocated(&options);
            let mib = |name: &str| reply[name].as_f64().unwrap() / f64::from(1 << 20);
            assert!((mib("cache") - cache).abs() < 0.03, "{}: {cache} {reply}", model.name);
            assert!((mib("compute") - compute).abs() < 0.05, "{}: {compute} {reply}", model.name);
            reply["cache"].as_u64().unwrap()
        };
        let off = memory("off".into(), 1);
        let state = memory("off".into(), 2) - off;
        assert!(state > 0, "{}", model.name);
        let with = |n_max: u32| memory(json!({ "type": "ngram", "n_max": n_max }), 1);
        assert_eq!([with(1) - off, with(5) - off], [state, 5 * state], "{}", model.name);
        let auto = memory("auto".into(), 1) - off;
        let weights = path.metadata().unwrap().len();
        assert!(auto.is_multiple_of(state) && auto <= weights / 8, "{}: {auto}", model.name);
    }
}
