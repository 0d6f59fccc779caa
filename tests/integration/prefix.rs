//! Tests shared and kept prefixes: how explain describes them, and that they do not change replies.

use llb::gguf::GgufValue;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, real_model, scripted_model};
use crate::scripted::{TEXT, long_text, text_model};

const QWEN: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

fn cached(reply: &Value) -> u64 {
    reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap_or_else(|| panic!("{reply}"))
}

fn open(options: &Value) -> Chat {
    Chat::open_with(options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// A request with one message after a common system message. All messages start differently.
fn request(system: &str, question: &str) -> Value {
    json!({ "messages": [{ "role": "system", "content": system }, { "role": "user", "content": question }],
        "temperature": 0, "max_tokens": 8 })
}

#[test]
fn chats_compute_a_common_prefix_once() {
    // There is one token for each byte and one for each marker.
    let system = "s".repeat(500);
    let common = "system\n".len() + 500 + "\n".len() + "user\n".len() + 3;
    let options = json!({ "model": scripted_model("long.gguf"), "n_ctx": 1500, "n_parallel": 4, "n_batch": 128 });
    let chats: Vec<Chat> = (0..4).map(|_| open(&options)).collect();
    let ask = |chat: &Chat, question: &str| chat.infer(&request(&system, question));
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let calls = chats
            .iter()
            .zip(["A", "B", "C", "D"])
            .map(|(chat, question)| scope.spawn(move || ask(chat, question)));
        calls.collect::<Vec<_>>().into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(replies.iter().map(cached).sum::<u64>(), 3 * common as u64);
    for reply in &replies {
        assert!(
            long_text().starts_with(reply["text"].as_str().unwrap())
                && reply["finish_reason"] == "length",
            "{reply}"
        );
    }
    // Each chat still has its own conversation. Without shared cells, not all of them would fit.
    for (chat, question) in chats.iter().zip(["A", "B", "C", "D"]) {
        let reply = ask(chat, question);
        assert_eq!(cached(&reply), reply["usage"]["prompt_tokens"].as_u64().unwrap() - 1);
    }
}

/// The template refuses system messages after the first message.
#[test]
fn a_later_system_message_keeps_the_prefix() {
    let template = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let chat = open(
        &json!({ "model": scripted_model("long.gguf"), "n_ctx": 1500, "chat_template": template, "tool_policy": "any" }),
    );
    let system = json!({ "role": "system", "content": "s".repeat(500) });
    let first = json!([system, { "role": "user", "content": "A" }]);
    let reply = chat.infer(&json!({ "messages": first, "temperature": 0, "max_tokens": 8 }));
    let first_tokens = reply["usage"]["prompt_tokens"].as_u64().unwrap();
    let next = json!([system, { "role": "user", "content": "A" },
        { "role": "assistant", "content": reply["text"] },
        { "role": "system", "content": "T" }, { "role": "user", "content": "B" }]);
    let explain = |position: &str| {
        let explanation = chat
            .explain(&json!({ "messages": next, "polyfills": { "system_position": position } }));
        (explanation["cached_tokens"].as_u64().unwrap(), explanation)
    };
    let (cached, explanation) = explain("user");
    assert!(cached >= first_tokens, "{cached} of {first_tokens}");
    assert_eq!(explanation["polyfills_applied"], json!(["system_position"]));
    assert_eq!(explanation["diagnostics"][0]["code"], "system_message_merged");
    assert!(explanation["prompt"].as_str().unwrap().contains("user\nT\nB<"), "{explanation}");
    assert_eq!(chat.explain(&json!({ "messages": next }))["prompt"], explanation["prompt"]);
    let (cached, _) = explain("hoist");
    assert!(cached < first_tokens, "{cached} of {first_tokens}");
}

#[test]
fn each_chat_can_have_cells_of_its_own() {
    let chats = |unified: bool| -> Vec<Chat> {
        let options = json!({ "model": scripted_model("long.gguf"), "n_ctx": 700, "n_parallel": 3,
            "n_batch": 128, "kv_unified": unified });
        (0..3).map(|_| open(&options)).collect()
    };
    let questions = ["A", "B", "C"];
    let ask = |chat: &Chat, question: &str| {
        // The first two chats have the same system message.
        let system = if question == "C" { "t" } else { "s" }.repeat(500);
        let reply = chat.infer(&request(&system, question));
        assert!(long_text().starts_with(reply["text"].as_str().unwrap()), "{reply}");
        cached(&reply)
    };
    for unified in [true, false] {
        let chats = chats(unified);
        let all =
            || chats.iter().zip(questions).map(|(chat, question)| ask(chat, question)).collect();
        let first: Vec<u64> = all();
        // The copy of the common beginning works with cells of their own, too.
        assert!(first[0] == 0 && first[1] >= 500 && first[2] < 500, "{first:?}");
        let again: Vec<u64> = all();
        // Together they need more than 700 cells.
        assert_eq!(again.iter().all(|cached| *cached > 500), !unified, "{again:?}");
    }
}

#[test]
fn a_model_that_chooses_blocks_of_cells_shares_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks.gguf");
    let mut model = text_model();
    model.metadata = vec![("llama.attention.indexer.block_size".to_owned(), GgufValue::U32(128))];
    std::fs::write(&path, model.to_bytes()).unwrap();
    let refused = |unified: Value| {
        let options = json!({ "model": path, "n_ctx": 256, "kv_unified": unified });
        Chat::open_with(&options).err().map(|refused| refused.message().to_owned())
    };
    assert_eq!(refused(json!(true)), None);
    let options =
        json!({ "model": scripted_model("text.gguf"), "n_ctx": 1 << 26, "kv_unified": false });
    let too_large = Chat::open_with(&options).err().unwrap();
    assert_eq!(too_large.code(), "OUT_OF_MEMORY");
    assert!(too_large.message().ends_with("set a smaller n_ctx or n_parallel"), "{too_large:?}");
    let says = "kv_unified: must be true";
    assert!(refused(json!(false)).is_some_and(|message| message.starts_with(says)));
    assert!(refused(json!(1)).is_some_and(|message| message.starts_with("kv_unified")));
}

#[test]
fn a_shared_prefix_changes_no_reply_of_a_real_model() {
    let Some(model) = real_model(QWEN) else { return };
    let rules = "You are a helpful assistant. Answer with a single word, without any explanation. "
        .repeat(10);
    let questions = [
        "What is the capital of France?",
        "How is the month before May called?",
        "Is fire hot or cold?",
    ];
    let options =
        |n_ctx: u32| json!({ "model": model, "n_ctx": n_ctx, "n_parallel": 4, "n_threads": 1 });
    let lone = open(&options(3072));
    let expected: Vec<Value> = questions
        .iter()
        .map(|question| {
            let mut request = request(&rules, question);
            request["cache_prompt"] = false.into();
            lone.infer(&request)["text"].clone()
        })
        .collect();
    let chats: Vec<Chat> = (0..3).map(|_| open(&options(3080))).collect();
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let rules = &rules;
        let calls = chats
            .iter()
            .zip(questions)
            .map(|(chat, question)| scope.spawn(move || chat.infer(&request(rules, question))));
        calls.collect::<Vec<_>>().into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(replies.iter().map(|reply| reply["text"].clone()).collect::<Vec<_>>(), expected);
    assert!(replies.iter().map(cached).sum::<u64>() >= 2 * 150, "{replies:?}");
}

#[test]
fn a_kept_prefix_changes_no_reply() {
    let Some(model) = real_model(QWEN) else { return };
    let chat = open(&json!({ "model": model, "n_ctx": 2560, "n_parallel": 1, "n_threads": 1 }));
    let prompts = ["Count from one to ten in words.", "Name the days of the week."];
    for prompt in prompts {
        let mut messages = json!([{ "role": "user", "content": prompt }]);
        for follow_up in ["Now in reverse order.", "Thank you."] {
            let ask = |cache: bool| {
                chat.infer(&json!({ "messages": messages, "temperature": 0, "max_tokens": 16, "cache_prompt": cache }))
            };
            let (anew, first, again) = (ask(false), ask(true), ask(true));
            assert_eq!(cached(&anew), 0);
            assert_eq!(cached(&again), again["usage"]["prompt_tokens"].as_u64().unwrap() - 1);
            assert_eq!(
                (&first["text"], &again["text"]),
                (&anew["text"], &anew["text"]),
                "{messages}"
            );
            let turns = messages.as_array_mut().unwrap();
            turns.push(json!({ "role": "assistant", "content": anew["text"] }));
            turns.push(json!({ "role": "user", "content": follow_up }));
        }
    }
}

/// Returns what explain reports about the cache: `cached_tokens`, and `at_token`, `because` and
/// `path` of the break.
fn explained(chat: &Chat, request: &Value) -> (u64, Value) {
    let explanation = chat.explain(request);
    (
        explanation["cached_tokens"].as_u64().unwrap_or_else(|| panic!("{explanation}")),
        explanation["cache_break"].clone(),
    )
}

#[track_caller]
fn check_break(chat: &Chat, request: &Value, at_token: usize, because: &str, path: Value) {
    let (cached_tokens, broken) = explained(chat, request);
    assert_eq!(broken["because"], because, "{broken}");
    assert_eq!(
        (cached_tokens, &broken["at_token"], &broken["path"]),
        (at_token as u64, &json!(at_token), &path),
        "{broken}"
    );
    // A request then finds the same number of tokens.
    assert_eq!(cached(&chat.infer(request)), cached_tokens);
}

#[test]
fn explain_names_the_kept_prefix_and_what_breaks_it() {
    // The options differ from those of other tests, so no other chat's prompts are in this cache.
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 1111, "n_parallel": 2 });
    let chat = open(&options);
    let ask = |messages: &Value| json!({ "messages": messages, "temperature": 0 });
    let messages =
        json!([{ "role": "system", "content": "Rules." }, { "role": "user", "content": "Hello" }]);
    check_break(&chat, &ask(&messages), 0, "first request of this chat", Value::Null);
    // With the same request, all tokens are cached except the last one, which is always computed.
    let whole = chat.explain(&ask(&messages))["prompt_tokens"].as_u64().unwrap();
    assert_eq!(explained(&chat, &ask(&messages)), (whole - 1, Value::Null));
    let mut anew = ask(&messages);
    anew["cache_prompt"] = false.into();
    assert_eq!(explained(&chat, &anew).1["because"], "cache_prompt is false");
    // Explaining has neither generated nor removed anything.
    assert_eq!(explained(&chat, &ask(&messages)), (whole - 1, Value::Null));

    // The conversation continues with the reply. The whole reply is reused, including its last
    // token, which was computed because the reply stopped there.
    let mut longer = messages.clone();
    longer.as_array_mut().unwrap().push(json!({ "role": "assistant", "content": TEXT }));
    longer.as_array_mut().unwrap().push(json!({ "role": "user", "content": "Go on" }));
    let (cached_tokens, broken) = explained(&chat, &ask(&longer));
    // The pieces of a script are single tokens; the prompt spells them as bytes.
    assert_eq!(cached_tokens, whole);
    assert_eq!(broken["path"], "messages[2].content", "{broken}");
    assert!(
        broken["because"].as_str().unwrap().starts_with("differs in messages[2].content"),
        "{broken}"
    );

    let changed =
        json!([{ "role": "system", "content": "Rules!" }, { "role": "user", "content": "Hello" }]);
    // `<|im_start|>system\nRules`
    check_break(
        &chat,
        &ask(&changed),
        1 + 7 + 5,
        "differs in messages[0].content",
        json!("messages[0].content"),
    );
    let without = json!([{ "role": "user", "content": "Hello" }]);
    // The role is text of the template, so the break is attributed to the message text after it.
    check_break(
        &chat,
        &ask(&without),
        1,
        "the template writes other text before messages[0].content",
        json!("messages[0].content"),
    );
}

#[test]
fn explain_names_omitted_reasoning_and_evictions() {
    let template = "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content and loop.last %}<think>{{ m.reasoning_content }}</think>\
        {% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 1222, "n_parallel": 1, "tool_policy": "any",
        "polyfills": { "apply_polyfills": false }, "chat_template": template });
    let chat = open(&options);
    let mut messages = json!([
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "content": "Yes", "reasoning_content": "hmm" },
    ]);
    let first = json!({ "messages": messages, "temperature": 0, "add_generation_prompt": false });
    check_break(&chat, &first, 0, "first request of this chat", Value::Null);
    messages.as_array_mut().unwrap().push(json!({ "role": "user", "content": "And?" }));
    // After `[user]Hi[assistant]`, the last prompt had the template's `<think>`. The break is
    // attributed to the member that followed it.
    let second = json!({ "messages": messages, "temperature": 0 });
    let (cached_tokens, broken) = explained(&chat, &second);
    assert_eq!((cached_tokens, &broken["at_token"]), (19, &json!(19)), "{broken}");
    assert_eq!(broken["because"], "messages[1].reasoning_content is not rendered any more");
    assert_eq!(broken["path"], "messages[1].reasoning_content");

    // Another chat takes over the only sequence.
    let other = open(&options);
    other.infer(
        &json!({ "messages": [{ "role": "user", "content": "Something else" }], "temperature": 0 }),
    );
    let (cached_tokens, broken) = explained(&chat, &first);
    assert_eq!(cached_tokens, "[user]".len() as u64);
    assert!(broken["because"].as_str().unwrap().starts_with("evicted"), "{broken}");
}

#[test]
fn explain_does_not_wait_for_a_reply() {
    let model = scripted_model("text.gguf");
    let options = json!({ "model": model, "n_ctx": 16_384, "n_parallel": 2 });
    let mut shifting = options.clone();
    shifting["context_overflow"] = "shift".into();
    let (running, asking) = (open(&shifting), open(&options));
    let request = json!({ "messages": [{ "role": "user", "content": "Hello" }], "temperature": 0 });
    // The reply is `aaaa…` until the cancel after the explanation.
    let mut endless = request.clone();
    endless["logit_bias"] = json!({ "97": 100 });
    endless["max_tokens"] = i32::MAX.into();
    let recorder = Recorder::default();
    let reply = std::thread::scope(|scope| {
        let call = scope.spawn(|| running.stream(&endless, &recorder));
        while recorder.lines().is_empty() {
            std::thread::yield_now();
        }
        let (cached_tokens, _) = explained(&asking, &request);
        llb::ffi::llb_chat_cancel(running.handle());
        assert!(cached_tokens > 0, "the running chat's prompt is shared");
        call.join().unwrap()
    });
    assert_eq!(reply["finish_reason"], "cancelled");
}
