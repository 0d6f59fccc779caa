//! Runs everything at once: threads create, send requests, stream, cancel, explain, destroy and
//! send nonsense, on chats that they share. Every reply must be the model's known reply, a prefix
//! of it after a cancel, or the error that the chat is gone.
//!
//! `LLB_SOAK_SECONDS` sets the time. The default is just enough for each kind of step.

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Recorder, infer, real_model, scripted_model, stream, take, weather_tool};
use crate::scripted::{LONG_TOKENS, REASONING, TEXT, long_text};

const THREADS: usize = 8;
const SLOTS: usize = 16;
/// The first slots share one model, whose batches then have rows for helper threads.
const TOGETHER: usize = 8;
/// The number of steps without `LLB_SOAK_SECONDS`.
const STEPS: usize = 60;

/// The reply of a chat, if it is known.
#[derive(Clone, Copy)]
enum Answers {
    Text,
    Reasoning,
    Call,
    Long,
    /// A real model: the reply may be any text.
    Anything,
}

/// A handle that any thread may use or destroy while others use it.
#[derive(Clone, Copy)]
struct Open {
    handle: usize,
    answers: Answers,
}

struct World {
    slots: Vec<Mutex<Option<Open>>>,
    models: Vec<(String, Answers)>,
    steps: AtomicUsize,
    whole: AtomicUsize,
    failed: AtomicBool,
}

#[test]
fn soak() {
    let seconds = std::env::var("LLB_SOAK_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let scripted = [
        ("text.gguf", Answers::Text),
        ("reasoning.gguf", Answers::Reasoning),
        ("tool_call.gguf", Answers::Call),
        ("long.gguf", Answers::Long),
    ];
    let mut models: Vec<_> = scripted.map(|(name, answers)| (scripted_model(name), answers)).into();
    if seconds.is_some() {
        models.extend(
            real_model("smollm2-135m-instruct-q4_1.gguf").map(|path| (path, Answers::Anything)),
        );
    }
    let world = World {
        slots: (0..SLOTS).map(|_| Mutex::default()).collect(),
        models,
        steps: AtomicUsize::new(0),
        whole: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let memory = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, memory) = (&world, &memory);
            scope.spawn(move || {
                let mut random = Random(thread as u64 + 1);
                let mut step = 0;
                while end.map_or(step < STEPS, |end| Instant::now() < end)
                    && !world.failed.load(Ordering::Relaxed)
                {
                    world.step(&mut random);
                    step += 1;
                    if thread == 0 && end.is_some() && step % 500 == 0 {
                        memory.lock().unwrap().push(resident());
                    }
                }
            });
        }
    });
    for slot in &world.slots {
        if let Some(open) = slot.lock().unwrap().take() {
            ffi::llb_chat_destroy(std::ptr::without_provenance_mut(open.handle));
        }
    }
    let (steps, whole) = (world.steps.into_inner(), world.whole.into_inner());
    println!(
        "{steps} steps, {whole} whole replies, resident MiB {:?}",
        memory.into_inner().unwrap()
    );
    assert!(whole > 0 && steps >= THREADS.min(STEPS));
}

impl World {
    fn step(&self, random: &mut Random) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let number = random.below(SLOTS);
        let slot = &self.slots[number];
        let open_chat = *slot.lock().unwrap();
        let Some(open) = open_chat else { return self.create(number, random) };
        let handle = std::ptr::without_provenance_mut(open.handle);
        match random.below(20) {
            0..8 => self.check(open, &infer(handle, &request(random))),
            8..13 => self.stream(open, random),
            13..15 => ffi::llb_chat_cancel(handle),
            15 | 16 => {
                let explained = call(ffi::llb_chat_explain, handle, &request(random).to_string());
                // Cancels of other threads and `timeout_ms` end an explanation.
                let ended = ["ENGINE_CLOSED", "CANCELLED"].map(Value::from);
                let is = explained["type"] == "explanation"
                    || ended.contains(&explained["error"]["code"]);
                self.expect(is, &explained);
            }
            17 | 18 => {
                let bad = [
                    "",
                    "{",
                    "[]",
                    "{\"messages\": 7}",
                    "{\"messages\": [], \"tools\": {}}",
                    "{\"messages\": [{\"role\": \"x\"}]}",
                ];
                let refused = call(ffi::llb_chat_infer, handle, bad[random.below(bad.len())]);
                self.expect(refused["type"] == "error", &refused);
            }
            _ => {
                // Other threads may be in a call on the handle, or about to start one.
                *slot.lock().unwrap() = None;
                ffi::llb_chat_destroy(handle);
                let gone = infer(handle, &request(random));
                self.expect(gone["error"]["code"] == "ENGINE_CLOSED", &gone);
            }
        }
    }

    fn create(&self, number: usize, random: &mut Random) {
        let mut options = json!({ "tool_policy": "any" });
        // The last model may be a real one, which is slow enough for requests to meet.
        let is_together = number < TOGETHER;
        let last = self.models.len() - 1;
        let (path, answers) =
            &self.models[if is_together { last } else { random.below(self.models.len()) }];
        options["model"] = path.as_str().into();
        if is_together {
            options["n_ctx"] = 8192.into();
            options["n_parallel"] = TOGETHER.into();
        } else {
            options["n_ctx"] = 1024.into();
            options["n_threads"] = 1.into();
            if random.below(3) == 0 {
                options["speculative"] = "ngram".into();
            }
            if random.below(3) == 0 {
                options["n_parallel"] = 2.into();
            }
        }
        let options = CString::new(options.to_string()).unwrap();
        // SAFETY: NUL-terminated, no callback.
        let handle =
            unsafe { ffi::llb_chat_create_with(options.as_ptr(), None, std::ptr::null_mut()) };
        self.expect(!handle.is_null(), &json!("create failed"));
        let before = self.slots[number]
            .lock()
            .unwrap()
            .replace(Open { handle: handle.addr(), answers: *answers });
        if let Some(open) = before {
            ffi::llb_chat_destroy(std::ptr::without_provenance_mut(open.handle));
        }
    }

    fn stream(&self, open: Open, random: &mut Random) {
        let request = request(random);
        let left = AtomicUsize::new(random.below(30));
        let recorder = Recorder::reacting(move |_| {
            if left.fetch_sub(1, Ordering::Relaxed) == 0 {
                ffi::llb_chat_cancel(std::ptr::without_provenance_mut(open.handle));
            }
        });
        let reply = stream(std::ptr::without_provenance_mut(open.handle), &request, &recorder);
        let pieces = recorder.lines().concat();
        self.check(open, &reply);
        self.expect(reply["type"] == "error" || reply["text"] == pieces.as_str(), &reply);
    }

    fn check(&self, open: Open, reply: &Value) {
        if reply["type"] == "error" {
            return self.expect(reply["error"]["code"] == "ENGINE_CLOSED", reply);
        }
        // The last character may be cut off, and whitespace before a closing tag is recognized only
        // together with the tag.
        let read = |member: &str| {
            reply[member]
                .as_str()
                .unwrap_or_default()
                .trim_end_matches(['\u{fffd}', '\n'])
                .to_owned()
        };
        let (text, reasoning) = (&*read("text"), &*read("reasoning_content"));
        let cut = matches!(reply["finish_reason"].as_str(), Some("cancelled" | "length"));
        let long = long_text();
        let right = match open.answers {
            Answers::Text => {
                if cut {
                    TEXT.starts_with(text)
                } else {
                    text == TEXT
                }
            }
            Answers::Reasoning if cut => {
                REASONING[0].starts_with(reasoning) && REASONING[1].starts_with(text)
            }
            Answers::Reasoning => [reasoning, text] == REASONING,
            Answers::Call if cut => text.is_empty(),
            Answers::Call => reply["tool_calls"][0]["arguments"] == "{\"city\": \"Paris\"}",
            Answers::Long => {
                if cut {
                    long.starts_with(text)
                } else {
                    text == long
                }
            }
            Answers::Anything => true,
        };
        self.expect(right, reply);
        self.whole.fetch_add(usize::from(!cut), Ordering::Relaxed);
    }

    #[track_caller]
    fn expect(&self, is: bool, seen: &Value) {
        if !is {
            self.failed.store(true, Ordering::Relaxed);
            panic!("{seen}");
        }
    }
}

fn call(
    function: unsafe extern "C" fn(
        *mut ffi::llb_chat,
        *const std::ffi::c_char,
    ) -> *const std::ffi::c_char,
    handle: *mut ffi::llb_chat,
    request: &str,
) -> Value {
    let request = CString::new(request).unwrap();
    // SAFETY: NUL-terminated; any handle is valid.
    take(unsafe { function(handle, request.as_ptr()) })
}

/// A conversation of a few turns. Sampling is greedy, so the reply is known.
fn request(random: &mut Random) -> Value {
    let turns = random.below(3);
    let mut messages = Vec::new();
    for turn in 0..turns {
        messages.push(json!({ "role": "user", "content": format!("Question {turn}") }));
        messages
            .push(json!({ "role": "assistant", "content": format!("Answer {}", random.below(2)) }));
    }
    messages.push(json!({ "role": "user", "content": "Hello" }));
    let max_tokens = [LONG_TOKENS + 8, LONG_TOKENS + 8, 3, 40][random.below(4)];
    let mut request = json!({ "messages": messages, "temperature": 0, "tools": [weather_tool()], "max_tokens": max_tokens });
    match random.below(8) {
        0 => request["cache_prompt"] = false.into(),
        1 => request["timeout_ms"] = 1.into(),
        2 => request["logprobs"] = true.into(),
        _ => {}
    }
    request
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// The resident size of this process, in MiB.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok()).unwrap_or(0) * 4096
        / (1 << 20)
}
