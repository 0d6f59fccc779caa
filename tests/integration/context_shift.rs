//! Tests `context_overflow` "shift": replies that are longer than the context. The tests are in one
//! file because they share the computation of the expected shifts.

use std::ffi::CString;
use std::path::Path;

use llama_cpp_sys_2 as sys;
use llb::ffi;
use llb::gguf::GgufValue;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, Refused, ask, scripted_model};
use crate::scripted::random::{Memory, dense_with, random};
use crate::scripted::{LONG_TOKENS, Model, TEXT, TEXT_PIECES, TOOLS_TEMPLATE, long_text};

fn open_with(model: &str, n_ctx: u64, members: Value) -> Result<Chat, Refused> {
    let mut options = json!({ "model": model, "n_ctx": n_ctx, "context_overflow": "shift", "tool_policy": "any" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options)
}

#[track_caller]
fn open(model: &str, n_ctx: u64, members: Value) -> Chat {
    open_with(model, n_ctx, members).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// How often a context of `n_ctx` tokens becomes full before a reply of `reply` tokens ends, and
/// how many tokens that drops. When all cells but one are taken and another token comes, half of
/// the tokens that are not kept are dropped. The last token of a reply is not computed.
fn shifts(n_ctx: u64, prompt: u64, reply: u64, keep: u64) -> (u64, u64) {
    let (mut held, mut times, mut dropped) = (prompt, 0, 0);
    for _ in 0..reply - 1 {
        if held + 1 >= n_ctx {
            let half = (held - keep.min(n_ctx - 4)) / 2;
            (held, times, dropped) = (held - half, times + 1, dropped + half);
        }
        held += 1;
    }
    (times, dropped)
}

/// The diagnostic of a shifted reply.
fn shifted(reply: &Value) -> Option<(u64, u64)> {
    let diagnostics = reply["diagnostics"].as_array().unwrap();
    let it = diagnostics.iter().find(|it| it["code"] == "context_shifted")?;
    Some((it["shifts"].as_u64().unwrap(), it["dropped_tokens"].as_u64().unwrap()))
}

fn prompt_tokens(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens"].as_u64().unwrap()
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

#[track_caller]
fn check_long(reply: &Value, n_ctx: u64, keep: u64) {
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!(long_text()), &json!("stop")));
    assert_eq!(reply["usage"]["completion_tokens"], LONG_TOKENS);
    // The count includes the end of the turn, which is drawn after all tokens were computed.
    let expected = shifts(n_ctx, prompt_tokens(reply), LONG_TOKENS as u64 + 1, keep);
    assert_eq!(shifted(reply), Some(expected), "{keep} kept");
}

#[test]
fn a_reply_goes_on_when_the_context_is_full() {
    let long = scripted_model("long.gguf");
    let all = json!({ "max_tokens": i32::MAX });
    let error = Chat::open_with(&json!({ "model": long, "n_ctx": 128 })).unwrap();
    assert_eq!(error.infer(&ask(all.clone()))["finish_reason"], "length");
    let guesses = [json!({}), json!({ "speculative": "ngram" }), json!({ "draft_model": long })];
    for speculative in guesses {
        let chat = open(&long, 128, speculative);
        for (n_keep, keep) in
            [(None, 0), (Some(0), 0), (Some(9), 9), (Some(-1), 1000), (Some(127), 127)]
        {
            let keep = if n_keep == Some(-1) {
                prompt_tokens(&chat.infer(&ask(json!({ "max_tokens": 1 }))))
            } else {
                keep
            };
            let request = ask(json!({ "max_tokens": i32::MAX, "n_keep": n_keep }));
            let recorder = Recorder::default();
            let reply = chat.stream(&request, &recorder);
            check_long(&reply, 128, keep);
            assert_eq!(recorder.lines().concat(), long_text());
            let shift = &chat.explain(&request)["context_shift"];
            let prompt = prompt_tokens(&reply);
            let kept = keep.min(124);
            let expected =
                json!({ "after_tokens": 128 - prompt, "kept": kept, "dropped": (127 - kept) / 2 });
            assert_eq!(*shift, expected);
            // At the first length nothing is dropped. One token later something is.
            let lengths = [128 - prompt, 128 - prompt + 1].map(|most| {
                let reply = chat.infer(&ask(json!({ "max_tokens": most, "n_keep": n_keep })));
                shifted(&reply).map(|(times, _)| times)
            });
            assert_eq!(lengths, [None, Some(1)]);
        }
    }
}

#[test]
fn everything_else_of_a_reply_goes_on() {
    let chat = open(&scripted_model("long.gguf"), 128, json!({}));
    let request = ask(json!({ "max_tokens": 5000, "logprobs": true, "top_logprobs": 2 }));
    let reply = chat.infer(&request);
    check_long(&reply, 128, 0);
    let entries = reply["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), LONG_TOKENS);
    assert!(entries.iter().all(|entry| entry["logprob"].as_f64().unwrap() > -0.01));
    // A grammar, a stop string and a penalty continue to apply after a shift.
    let grammar = r#"start: "Counting:" (" " /[0-9]+/)+ " done.""#;
    check_long(&chat.infer(&ask(json!({ "max_tokens": 5000, "grammar": grammar }))), 128, 0);
    let stopped = chat.infer(&ask(json!({ "max_tokens": 5000, "stop": " 298 299" })));
    assert_eq!(stopped["finish_reason"], "stop");
    assert!(stopped["text"].as_str().unwrap().ends_with(" 297"), "{stopped}");
    let cut = chat.infer(&ask(json!({ "max_tokens": 250 })));
    assert_eq!(
        (&cut["finish_reason"], cut["usage"]["completion_tokens"].as_u64()),
        (&json!("length"), Some(250))
    );
    // The reply is cancelled after a shift.
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |piece| {
        if piece.contains(" 200") {
            ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
        }
    });
    let reply = chat.stream(&ask(json!({ "max_tokens": 5000 })), &recorder);
    assert!(long_text().starts_with(reply["text"].as_str().unwrap()));
    assert!(reply["text"].as_str().unwrap().contains(" 200"));
    check_long(&chat.infer(&ask(json!({ "max_tokens": 5000 }))), 128, 0);
}

#[test]
fn chats_of_one_model_wait_for_each_other() {
    let long = scripted_model("long.gguf");
    let chats = [0, 1, 2].map(|_| open(&long, 128, json!({})));
    let short = open(&scripted_model("long.gguf"), 128, json!({}));
    std::thread::scope(|scope| {
        let long: Vec<_> = chats
            .iter()
            .map(|chat| {
                scope.spawn(|| chat.infer(&ask(json!({ "max_tokens": 5000, "n_keep": 20 }))))
            })
            .collect();
        let short = scope.spawn(|| short.infer(&ask(json!({ "max_tokens": 3 }))));
        assert_eq!(short.join().unwrap()["text"], "Counting: 1 2");
        for call in long {
            check_long(&call.join().unwrap(), 128, 20);
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn an_isolated_chat_shifts_too() {
    let chat = open(&scripted_model("long.gguf"), 128, json!({ "isolation": "process" }));
    check_long(&chat.infer(&ask(json!({ "max_tokens": 5000, "n_keep": 11 }))), 128, 11);
    let state = open_with(
        &scripted_model("long.gguf"),
        128,
        json!({ "isolation": "process", "cache_type_k": "bf16" }),
    );
    assert_eq!(state.err().unwrap().events.last().unwrap(), "create_failure:invalid_options");
}

/// Generates with llama.cpp itself, using the calls and numbers of llama-server's context shift. It
/// takes the likeliest letter each time.
struct Reference {
    model: *mut sys::llama_model,
    context: *mut sys::llama_context,
    n_ctx: i32,
}

impl Reference {
    fn new(path: &str, n_ctx: u32) -> Reference {
        let path = CString::new(path).unwrap();
        // SAFETY: takes nothing, returns a plain struct.
        let options = unsafe { sys::llama_model_default_params() };
        // SAFETY: NUL-terminated.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), options) };
        assert!(!model.is_null());
        // SAFETY: takes nothing, returns a plain struct.
        let mut params = unsafe { sys::llama_context_default_params() };
        (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max) = (n_ctx, 512, 512, 4);
        (params.n_threads, params.n_threads_batch, params.kv_unified) = (1, 1, true);
        // SAFETY: the model is alive.
        let context = unsafe { sys::llama_init_from_model(model, params) };
        assert!(!context.is_null());
        Reference { model, context, n_ctx: n_ctx as i32 }
    }

    fn tokenize(&self, text: &str) -> Vec<sys::llama_token> {
        // SAFETY: the model is alive.
        let vocab = unsafe { sys::llama_model_get_vocab(self.model) };
        let mut tokens = vec![0; text.len() + 8];
        let (bytes, n, most) = (text.as_ptr().cast(), text.len() as i32, tokens.len() as i32);
        // SAFETY: the buffers are valid for their lengths.
        let n =
            unsafe { sys::llama_tokenize(vocab, bytes, n, tokens.as_mut_ptr(), most, false, true) };
        tokens.truncate(n as usize);
        tokens
    }

    /// Decodes tokens of a sequence from a position on.
    fn decode(&self, tokens: &[sys::llama_token], sequence: i32, position: i32) {
        let mut tokens = tokens.to_vec();
        let n = tokens.len() as i32;
        // SAFETY: makes a struct of the arguments.
        let mut batch = unsafe { sys::llama_batch_get_one(tokens.as_mut_ptr(), n) };
        let mut places: Vec<i32> = (position..position + n).collect();
        let (mut owner, mut counts) = (sequence, vec![1; tokens.len()]);
        let mut owners = vec![&raw mut owner; tokens.len()];
        batch.pos = places.as_mut_ptr();
        (batch.n_seq_id, batch.seq_id) = (counts.as_mut_ptr(), owners.as_mut_ptr());
        // SAFETY: the context is alive, and what the batch refers to outlives the call.
        assert_eq!(unsafe { sys::llama_decode(self.context, batch) }, 0);
    }

    /// The likeliest letter after the last token.
    fn letter(&self) -> u8 {
        // SAFETY: the context is alive and has decoded a batch.
        let row = unsafe { sys::llama_get_logits_ith(self.context, -1) };
        // SAFETY: a row has more than 256 logits and lives until the next decode.
        let logits = unsafe { std::slice::from_raw_parts(row, 256) };
        let by_logit = |a: &u8, b: &u8| logits[usize::from(*a)].total_cmp(&logits[usize::from(*b)]);
        (b'a'..=b'z').max_by(by_logit).unwrap()
    }

    /// Removes `count` positions of a sequence of `length` after the first `kept`, and moves the
    /// rest.
    fn shift(&self, sequence: i32, kept: i32, count: i32, length: i32) {
        // SAFETY: the context is alive.
        let memory = unsafe { sys::llama_get_memory(self.context) };
        // SAFETY: the memory belongs to the context.
        assert!(unsafe { sys::llama_memory_seq_rm(memory, sequence, kept, kept + count) });
        // SAFETY: as above.
        unsafe { sys::llama_memory_seq_add(memory, sequence, kept + count, length, -count) };
    }

    fn reply(&self, prompt: &str, most: usize, n_keep: i32) -> String {
        let prompt = self.tokenize(prompt);
        self.decode(&prompt, 0, 0);
        let mut n_past = prompt.len() as i32;
        let mut text = vec![self.letter()];
        while text.len() < most {
            if n_past + 1 >= self.n_ctx {
                let n_keep = n_keep.min(self.n_ctx - 4);
                let n_discard = (n_past - n_keep) / 2;
                self.shift(0, n_keep, n_discard, n_past);
                n_past -= n_discard;
            }
            self.decode(&[i32::from(text[text.len() - 1])], 0, n_past);
            text.push(self.letter());
            n_past += 1;
        }
        String::from_utf8(text).unwrap()
    }

    /// llama.cpp's saved data of a sequence.
    fn state(&self, sequence: i32) -> Vec<u8> {
        // SAFETY: the context is alive.
        let size = unsafe { sys::llama_state_seq_get_size(self.context, sequence) };
        let mut data = vec![0; size];
        // SAFETY: as above; the buffer is valid for its length.
        let read = unsafe {
            sys::llama_state_seq_get_data(self.context, data.as_mut_ptr(), size, sequence)
        };
        assert_eq!(read, size);
        data
    }

    /// Whether shifting one sequence changes another one.
    fn shift_changes_others(&self) -> bool {
        self.decode(&self.tokenize("<|im_start|>Hello, world"), 0, 0);
        let before = self.state(0);
        self.decode(&[65, 66, 67], 1, 0);
        self.shift(1, 0, 1, 3);
        // A decode applies the shift.
        self.decode(&[68], 1, 2);
        self.state(0) != before
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: alive, and not used after this.
        unsafe { sys::llama_free(self.context) };
        // SAFETY: as above; its context is freed.
        unsafe { sys::llama_model_free(self.model) };
    }
}

#[test]
fn a_shift_is_that_of_llama_cpp() {
    let folder = tempfile::tempdir().unwrap();
    for (memory, cache) in [(Memory::Dense, "f16"), (Memory::Dense, "f32"), (Memory::Window, "f16")]
    {
        let model = write(folder.path(), "random.gguf", &random(memory));
        for n_keep in [0, 40] {
            let options = json!({ "cache_type_k": cache, "n_parallel": 4 });
            let chat = open(&model, 128, options);
            let request = ask(json!({ "max_tokens": 200, "n_keep": n_keep }));
            let reply = chat.infer(&request);
            assert_eq!(
                shifted(&reply),
                Some(shifts(128, prompt_tokens(&reply), 200, n_keep as u64))
            );
            if cache == "f16" {
                let prompt = chat.explain(&request)["prompt"].as_str().unwrap().to_owned();
                let reference = Reference::new(&model, 128).reply(&prompt, 200, n_keep);
                assert_eq!(reply["text"], reference, "{memory:?}, {n_keep} kept");
            }
            // The dropped tokens matter: with a larger context the reply is different.
            let wide = open(&model, 512, json!({ "cache_type_k": cache }));
            let unshifted = wide.infer(&request);
            assert_eq!(shifted(&unshifted), None);
            let (one, other) =
                (reply["text"].as_str().unwrap(), unshifted["text"].as_str().unwrap());
            assert_ne!(one, other);
            let first = 128 - prompt_tokens(&reply) as usize;
            assert_eq!(one[..first], other[..first], "up to the first shift both are the same");
        }
    }
}

/// Shows why some models are refused. If a case fails, llama.cpp has become more exact.
#[test]
fn llama_cpp_falsifies_what_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let changes = |metadata: &[(&str, GgufValue)]| {
        let model = write(folder.path(), "scaled.gguf", &dense_with(metadata));
        Chat::open_with(&json!({ "model": model, "n_ctx": 64, "tool_policy": "any" })).unwrap();
        Reference::new(&model, 256).shift_changes_others()
    };
    let factor = ("rope.scaling.factor", GgufValue::from(4.0_f32));
    let of_type = |name: &str| ("rope.scaling.type", GgufValue::from(name));
    assert!(!changes(&[]) && !changes(&[of_type("linear"), factor.clone()]));
    assert!(changes(&[of_type("yarn"), factor]));
    assert!(changes(&[("rope.scaling.attn_factor", GgufValue::from(1.2_f32))]));
}

/// A host that shortens the reply as the shift did sends exactly the tokens that are left. But
/// their cells were computed after other tokens.
#[test]
fn what_was_moved_is_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let with = |members: Value, others: &Value| {
        let mut request = ask(members);
        request.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        request
    };
    for (memory, is_saved) in [
        (Memory::Dense, false),
        (Memory::Dense, true),
        (Memory::Window, false),
        (Memory::Window, true),
    ] {
        let model = write(folder.path(), "random.gguf", &random(memory));
        let state = folder.path().join(format!("state {memory:?}"));
        let mut chat = open(&model, 128, json!({ "state_file": state }));
        let prompt = chat.explain(&ask(json!({})))["prompt_tokens"].as_u64().unwrap();
        // The reply has three tokens after the first shift. The last one is not computed.
        let most = 128 - prompt + 4;
        let reply = chat.infer(&ask(json!({ "max_tokens": most, "n_keep": -1 })));
        let (times, dropped) = shifted(&reply).unwrap();
        assert_eq!(times, 1);
        let text = reply["text"].as_str().unwrap();
        let left = &text[dropped as usize..text.len() - 1];
        let messages = json!({ "messages": [
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "content": left },
            { "role": "user", "content": "x" },
        ] });
        if is_saved {
            drop(chat);
            chat = open(&model, 128, json!({ "state_file": state }));
        }
        // If a window may reach beyond the kept tokens, no cell is exact.
        let exact = if memory == Memory::Dense { prompt } else { 0 };
        assert_eq!(chat.explain(&with(messages.clone(), &json!({})))["cached_tokens"], exact);
        let next = chat.infer(&with(messages.clone(), &json!({ "max_tokens": 10 })));
        assert_eq!(cached(&next), exact, "{memory:?}, saved: {is_saved}");
        let fresh = open(&model, 128, json!({ "n_batch": 256 }));
        let anew =
            fresh.infer(&with(messages, &json!({ "max_tokens": 10, "cache_prompt": false })));
        assert_eq!(next["text"], anew["text"], "{memory:?}, saved: {is_saved}");
    }
}

/// Without kept tokens the beginning of a prompt is gone, and what is left of it has moved: the
/// same prompt is computed anew, also if a window never reached the beginning.
#[test]
fn without_kept_tokens_nothing_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    for memory in [Memory::Dense, Memory::Window] {
        let model = write(folder.path(), "random.gguf", &random(memory));
        let chat = open(&model, 144, json!({ "n_parallel": 1 }));
        let short = ask(json!({ "max_tokens": 10, "n_keep": 0 }));
        let first = chat.infer(&short);
        assert_eq!((cached(&first), shifted(&first)), (0, None), "{memory:?}");
        let again = chat.infer(&short);
        assert!(cached(&again) > 0 && again["text"] == first["text"], "{memory:?}: {again}");
        let long = chat.infer(&ask(json!({ "max_tokens": 200, "n_keep": 0 })));
        let expected = shifts(144, prompt_tokens(&long), 200, 0);
        assert_eq!(shifted(&long), Some(expected), "{memory:?}");
        let anew = chat.infer(&short);
        assert_eq!((cached(&anew), &anew["text"]), (0, &first["text"]), "{memory:?}");
    }
}

#[test]
fn a_prompt_that_does_not_fit_loses_its_oldest_turns() {
    let chat = open(&scripted_model("text.gguf"), 512, json!({}));
    let turn = |index: usize| {
        [
            json!({ "role": "user", "content": format!("question {index}.") }),
            json!({ "role": "assistant", "content": format!("answer {index}.") }),
        ]
    };
    let mut messages: Vec<Value> = (0..40).flat_map(turn).collect();
    messages.push(json!({ "role": "user", "content": "last question." }));
    let reply = chat.infer(&json!({ "messages": messages, "temperature": 0 }));
    assert_eq!(
        (&reply["text"], &reply["truncated"]["strategy"]),
        (&json!(TEXT), &json!("truncate_oldest"))
    );
    // A prompt that fits is not changed, even if it leaves little room.
    let explained = |length: usize| {
        let messages = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }, { "role": "user", "content": "x".repeat(length) }]);
        chat.explain(&json!({ "messages": messages }))
    };
    let rest = 511 - explained(1)["prompt_tokens"].as_u64().unwrap() as usize;
    let full = explained(1 + rest);
    assert_eq!((full["prompt_tokens"].as_u64(), &full["truncated"]), (Some(511), &Value::Null));
    assert_eq!(full["context_shift"], json!({ "after_tokens": 1, "kept": 0, "dropped": 255 }));
    assert_ne!(explained(2 + rest)["truncated"], Value::Null);
    let alone = json!({ "messages": [{ "role": "user", "content": "x".repeat(600) }] });
    assert_eq!(chat.infer(&alone)["error"]["code"], "CONTEXT_OVERFLOW");
}

#[track_caller]
fn refused(model: &str, members: Value, says: &str) {
    let Some(refused) = open_with(model, 128, members).err() else { panic!("{says}: opened") };
    assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options", "{says}");
    assert_eq!(refused.code(), "INVALID_REQUEST", "{says}");
    assert!(refused.message().contains(says), "{}", refused.message());
}

#[test]
fn what_cannot_be_shifted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (memory, name) in [(Memory::State, "state.gguf"), (Memory::Both, "both.gguf")] {
        let model = write(folder.path(), name, &random(memory));
        refused(
            &model,
            json!({}),
            "context_overflow: \"shift\" is not possible: this model keeps one state",
        );
        assert!(
            Chat::open_with(&json!({ "model": model, "n_ctx": 128, "tool_policy": "any" })).is_ok()
        );
    }
    let text = scripted_model("text.gguf");
    for cache in ["bf16", "q8_0", "q4_0"] {
        refused(&text, json!({ "cache_type_k": cache }), "set cache_type_k to f16 or f32");
    }
    assert!(open_with(&text, 128, json!({ "cache_type_v": "q8_0", "flash_attn": "on" })).is_ok());
    let scaled = |name: &str, scaling: &[(&str, GgufValue)]| {
        let mut model = Model::new("Scaled", TEXT_PIECES, Some(TOOLS_TEMPLATE));
        model.metadata = scaling
            .iter()
            .map(|(key, value)| (format!("llama.rope.scaling.{key}"), value.clone()))
            .collect();
        write(folder.path(), name, &model.to_bytes())
    };
    let says = "the positions of this model also scale its keys";
    let factor = || ("factor", GgufValue::from(4.0_f32));
    refused(&scaled("yarn.gguf", &[("type", "yarn".into()), factor()]), json!({}), says);
    refused(&scaled("attention.gguf", &[("attn_factor", 1.2_f32.into())]), json!({}), says);
    let linear = scaled("linear.gguf", &[("type", "linear".into()), factor()]);
    assert!(open_with(&linear, 128, json!({})).is_ok());
    let engine = json!({ "type": "openai_completions", "base_url": "http://127.0.0.1:9" });
    let server = Chat::open_with(
        &json!({ "chat_template": TOOLS_TEMPLATE, "engine": engine, "context_overflow": "shift" }),
    );
    assert!(server.err().unwrap().message().starts_with("context_overflow: "));
}

#[test]
fn kept_tokens_must_fit_the_context() {
    let text = scripted_model("text.gguf");
    refused(
        &text,
        json!({ "defaults": { "n_keep": 128 } }),
        "defaults.n_keep: must be less than n_ctx, which is 128, got 128; -1 keeps the whole prompt",
    );
    refused(&text, json!({ "defaults": { "n_keep": -2 } }), "defaults.n_keep: must be from -1 to");
    refused(&text, json!({ "n_keep": 3 }), "n_keep: unknown option");
    let chat = open(&text, 128, json!({ "defaults": { "n_keep": 5 } }));
    assert_eq!(chat.explain(&ask(json!({})))["context_shift"]["kept"], 5);
    assert_eq!(chat.explain(&ask(json!({ "n_keep": 7 })))["context_shift"]["kept"], 7);
    for n_keep in [json!(128), json!(i32::MAX), json!(-2), json!("all"), json!(0.5)] {
        let error = chat.infer(&ask(json!({ "n_keep": n_keep })))["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{n_keep}");
        assert!(error["message"].as_str().unwrap().starts_with("n_keep: "), "{error}");
    }
    assert_eq!(chat.infer(&ask(json!({ "n_keep": 127 })))["text"], TEXT);
}
