//! Tests the state that is kept between requests, with models that remember in different ways: all
//! tokens, a window of them, or one state.
//!
//! The weights are random (`scripted::random`), and each token of a reply depends on all tokens
//! before it. If a reply equals the one without any cache, the cache held the prompt and nothing
//! else.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder};
use crate::run_folder::random_model;
use crate::scripted::random::Memory;

const ALL: [Memory; 4] = [Memory::Dense, Memory::Window, Memory::State, Memory::Both];

fn model(memory: Memory) -> String {
    random_model("memory", memory)
}

/// Everything is f32, so that another order of computation changes only the seventh digit and not
/// the third.
fn open(memory: Memory, members: &Value) -> Chat {
    let mut options = json!({ "model": model(memory), "tool_policy": "any", "cache_type_k": "f32", "cache_type_v": "f32",
        "flash_attn": "off" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{memory:?}: {refused:?}"))
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or_else(|| panic!("{reply}"))
}

fn prompt(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens"].as_u64().unwrap()
}

fn completion(reply: &Value) -> u64 {
    reply["usage"]["completion_tokens"].as_u64().unwrap()
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn request(messages: &[Value], cache: bool) -> Value {
    json!({ "messages": messages, "temperature": 0, "max_tokens": 12, "cache_prompt": cache })
}

/// A message of 80 tokens, plus those that the template adds: `<|im_start|>`, the role, two
/// newlines, `<|im_end|>`.
fn rules() -> Value {
    message("system", &"abcdefghij".repeat(8))
}

#[test]
fn a_reply_depends_on_all_tokens_before_it() {
    for memory in ALL {
        let chat = open(memory, &json!({ "n_ctx": 512, "n_parallel": 1 }));
        let reply = |system: Value, question: &str| {
            chat.infer(&request(&[system, message("user", question)], false))["text"].clone()
        };
        let first = reply(rules(), "one");
        assert_eq!(
            (first.as_str().unwrap().len(), &first),
            (12, &reply(rules(), "one")),
            "{memory:?}"
        );
        assert!(
            first.as_str().unwrap().bytes().all(|byte| byte.is_ascii_lowercase()),
            "{memory:?}: {first}"
        );
        assert_ne!(first, reply(rules(), "two"), "{memory:?}");
        // Text that is a hundred tokens before the reply.
        let other = rules()["content"].as_str().unwrap().replacen("abcdefghij", "qponmlkrst", 2);
        assert_ne!(first, reply(message("system", &other), "one"), "{memory:?}");
    }
}

#[test]
fn how_much_of_each_memory_is_reused() {
    for memory in ALL {
        let options = json!({ "n_ctx": 1024, "n_parallel": 2 });
        let (chat, other) = (open(memory, &options), open(memory, &options));
        let ask = |chat: &Chat, messages: &[Value]| {
            let explained = chat.explain(&request(messages, true))["cached_tokens"].as_u64();
            let reply = chat.infer(&request(messages, true));
            assert_eq!(explained, Some(cached(&reply)), "{memory:?}");
            reply
        };
        let mut messages = vec![rules(), message("user", "one")];
        let first = ask(&chat, &messages);
        assert_eq!(cached(&first), 0);
        messages.push(message("assistant", first["text"].as_str().unwrap()));
        messages.push(message("user", "two"));
        // The last token of a reply is sampled but not computed.
        let second = ask(&chat, &messages);
        assert_eq!(cached(&second), prompt(&first) + completion(&first) - 1, "{memory:?}");
        // Another chat starts with the same rules. The common prefix is copied. With a checkpoint,
        // only a whole sequence can be copied, and the checkpoint is before the opening of the
        // first reply.
        let common =
            80 + 1 + "system\n".len() as u64 + 1 + "\n".len() as u64 + 1 + "user\n".len() as u64;
        let stranger = ask(&other, &[rules(), message("user", "three")]);
        assert_eq!(cached(&stranger), common, "{memory:?}");
        // The first conversation is still cached.
        messages.push(message("assistant", second["text"].as_str().unwrap()));
        messages.push(message("user", "four"));
        let third = ask(&chat, &messages);
        assert_eq!(cached(&third), prompt(&second) + completion(&second) - 1, "{memory:?}");
        // The same request again: the reply is removed, and the opening too if the memory can only
        // be cut at a checkpoint.
        let again = ask(&chat, &messages);
        let whole = matches!(memory, Memory::State | Memory::Both);
        assert_eq!(cached(&again), prompt(&third) - if whole { 16 } else { 1 }, "{memory:?}");
        assert_eq!(again["text"], third["text"], "{memory:?}");
    }
}

/// If a template drops the reasoning of earlier turns, every prompt differs from the last one where
/// that reply began.
#[test]
fn a_conversation_without_its_reasoning_is_mostly_cached() {
    for memory in ALL {
        let chat = open(memory, &json!({ "n_ctx": 4096, "n_parallel": 1 }));
        // With other options, the model is loaded a second time.
        let lone = open(memory, &json!({ "n_ctx": 4352, "n_parallel": 1 }));
        let mut messages = vec![rules()];
        let (mut prompts, mut reused) = (0, 0);
        for turn in 0..20 {
            let question = format!("{turn}: {}", "zyxwvutsrq".repeat(3));
            messages.push(message("user", &question));
            let reply = chat.infer(&request(&messages, true));
            assert_eq!(reply["text"], lone.infer(&request(&messages, false))["text"], "{memory:?}");
            prompts += prompt(&reply);
            reused += cached(&reply);
            messages.push(message("assistant", &reply["text"].as_str().unwrap()[8..]));
        }
        assert!(reused * 100 >= prompts * 85, "{memory:?}: {reused} of {prompts}");
    }
}

/// A chat that gets mixed requests, and the replies of a chat without a cache to the same requests.
struct Talk {
    chat: Chat,
    lone: Chat,
    memory: Memory,
    messages: Vec<Value>,
    state: u64,
    /// Whether no other chat runs at the same time. Explain then predicts what a request finds.
    alone: bool,
}

impl Talk {
    fn number(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Makes one request. Returns the number of cached tokens.
    fn turn(&mut self) -> u64 {
        let question = "zyxwvutsrqponmlkjihgfedcba"[..1 + self.number(20) as usize].to_owned();
        match self.number(8) {
            0 => self.messages = vec![rules()],
            // Removes the last turn.
            1 => self.messages.truncate(self.messages.len().saturating_sub(2).max(1)),
            2 => self.messages = vec![message("system", &question)],
            _ => {}
        }
        self.messages.push(message("user", &question));
        let expected = self.lone.infer(&request(&self.messages, false));
        assert_eq!(cached(&expected), 0);
        let explained = self.alone.then(|| self.chat.explain(&request(&self.messages, true)));
        let cancelled = self.number(5) == 0;
        let reply = if cancelled {
            self.cancelled()
        } else {
            self.chat.infer(&request(&self.messages, true))
        };
        let (text, expected) = (
            reply["text"].as_str().unwrap_or_else(|| panic!("{reply}")),
            expected["text"].as_str().unwrap(),
        );
        assert!(
            text == expected || cancelled && expected.starts_with(text),
            "{:?}: {text} {expected} {reply}",
            self.memory
        );
        if let Some(explained) = explained {
            assert_eq!(
                explained["cached_tokens"],
                cached(&reply),
                "{:?} {}: {explained}",
                self.memory,
                self.state
            );
        }
        self.messages.push(message("assistant", text));
        cached(&reply)
    }

    fn cancelled(&mut self) -> Value {
        let (handle, pieces, after) =
            (self.chat.handle().addr(), AtomicUsize::new(0), self.number(6) as usize);
        let recorder = Recorder::reacting(move |_| {
            if pieces.fetch_add(1, Ordering::Relaxed) == after {
                llb::ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
            }
        });
        self.chat.stream(&request(&self.messages, true), &recorder)
    }
}

/// Three chats with these options.
fn talks(memory: Memory, options: &Value, seed: u64, alone: bool) -> Vec<Talk> {
    let mut lone = options.clone();
    lone["n_parallel"] = 1.into();
    lone["speculative"] = "off".into();
    let talk = |number| Talk {
        chat: open(memory, options),
        lone: open(memory, &lone),
        memory,
        messages: vec![rules()],
        state: seed * 10 + number,
        alone,
    };
    (0..3).map(talk).collect()
}

#[test]
fn explain_predicts_what_is_left_of_each_memory() {
    for memory in ALL {
        // There are fewer cells than three conversations need, so models with a window lose the
        // cells outside it.
        let options =
            json!({ "n_ctx": 544, "n_parallel": 2, "context_overflow": "truncate_oldest" });
        let mut talks = talks(memory, &options, 7, true);
        let cached: u64 = (0..60).map(|turn| talks[turn % 3].turn()).sum();
        assert!(cached > 0, "{memory:?}");
    }
}

/// Several conversations continue, are shortened, start again and are cancelled at the same time,
/// with too few sequences and cells.
#[test]
fn a_kept_prefix_changes_no_reply() {
    let variants = [
        json!({ "n_ctx": 1024, "n_parallel": 4 }),
        // Cells are reused often, so models with a window lose the cells outside it.
        json!({ "n_ctx": 512, "n_parallel": 2, "context_overflow": "truncate_oldest" }),
        json!({ "n_ctx": 512, "n_parallel": 3, "n_batch": 64, "context_overflow": "truncate_middle", "speculative": "ngram" }),
    ];
    for (number, memory) in ALL.into_iter().enumerate() {
        for (seed, options) in variants.iter().enumerate() {
            let talks = talks(memory, options, (number * 10 + seed) as u64, false);
            let cached: u64 = std::thread::scope(|scope| {
                let turns = |mut talk: Talk| (0..25).map(|_| talk.turn()).sum::<u64>();
                let threads: Vec<_> =
                    talks.into_iter().map(|talk| scope.spawn(move || turns(talk))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            // A cancel during a decode empties every sequence of a model with one state.
            let least = match memory {
                Memory::State | Memory::Both => 1,
                _ => 1001,
            };
            assert!(cached >= least, "{memory:?} {options}: {cached}");
        }
    }
}

#[test]
fn a_state_file_is_usable_for_every_memory() {
    for memory in ALL {
        let folder = tempfile::tempdir().unwrap();
        let options =
            json!({ "n_ctx": 520, "n_parallel": 2, "state_file": folder.path().join("state") });
        let lone = open(memory, &json!({ "n_ctx": 520, "n_parallel": 1 }));
        let mut messages = vec![rules(), message("user", "one")];
        let first = open(memory, &options).infer(&request(&messages, true));
        messages.push(message("assistant", first["text"].as_str().unwrap()));
        messages.push(message("user", "two"));
        let goes_on = open(memory, &options).infer(&request(&messages, true));
        assert_eq!(goes_on["text"], lone.infer(&request(&messages, false))["text"], "{memory:?}");
        assert_eq!(
            cached(&goes_on),
            prompt(&first) + completion(&first) - 1,
            "{memory:?}: {goes_on}"
        );
        // Only the last window is saved, so nothing can be removed from the end.
        let chat = open(memory, &options);
        let rewound = [rules(), message("user", "three")];
        let explained = chat.explain(&request(&rewound, true))["cached_tokens"].as_u64();
        let reply = chat.infer(&request(&rewound, true));
        assert_eq!(reply["text"], lone.infer(&request(&rewound, false))["text"], "{memory:?}");
        assert_eq!(
            (explained, cached(&reply) > 0),
            (Some(cached(&reply)), memory == Memory::Dense),
            "{memory:?}"
        );
    }
}
