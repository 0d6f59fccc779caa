//! Tests reasoning and its budget.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, real_model, scripted_model, weather_tool};
use crate::scripted::{Model, REASONING, TOOLS_TEMPLATE};

/// Checks the reasoning, the number of all tokens, and the number of reasoning tokens.
#[track_caller]
fn check(chat: &Chat, members: Value, reasoning: Option<&str>, tokens: (u64, u64)) {
    let recorder = Recorder::default();
    let reply = chat.stream(&ask(members), &recorder);
    assert_eq!(reply["reasoning_content"], json!(reasoning), "{reply}");
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!(REASONING[1]), &json!("stop")));
    assert_eq!(recorder.lines().concat(), REASONING[1]);
    assert_eq!(reply["diagnostics"], json!([]));
    let usage = &reply["usage"];
    assert_eq!(usage["completion_tokens"], tokens.0, "{usage}");
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], tokens.1);
}

#[test]
fn reasoning_ends_with_its_budget() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    for members in
        [json!({}), json!({ "reasoning_budget": -1 }), json!({ "reasoning_budget_tokens": 5 })]
    {
        check(&chat, members, Some(REASONING[0]), (8, 5));
    }
    check(&chat, json!({ "reasoning_budget": 0 }), None, (4, 1));
    check(&chat, json!({ "reasoning_budget": 1 }), Some("One, two,"), (5, 2));
    // The second token ends inside a character, which is completed first.
    for tokens in [2, 3] {
        check(
            &chat,
            json!({ "thinking_budget_tokens": tokens }),
            Some("One, two, drei f\u{fc}nf,"),
            (7, 4),
        );
    }
}

#[test]
fn reasoning_the_prompt_opened_has_the_budget_too() {
    let model = scripted_model("reasoning.gguf");
    let options = json!({ "model": model, "n_ctx": 512, "chat_template": opened_template() });
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    assert!(chat.explain(&ask(json!({})))["prompt"].as_str().unwrap().ends_with("<think>\n"));
    check(&chat, json!({ "reasoning_budget": 0 }), None, (3, 1));
    // The model writes the opening tag again.
    check(&chat, json!({ "reasoning_budget": 2 }), Some("One, two,"), (5, 3));
}

#[test]
fn forced_tokens_are_ordinary_tokens() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let request = json!({ "reasoning_budget": 1, "logprobs": true, "stop": "answer" });
    let reply = chat.infer(&ask(request));
    let content = reply["logprobs"]["content"].as_array().unwrap();
    let tokens: Vec<&str> = content.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
    assert_eq!(tokens, ["<think>", "\nOne, two,", "</think>", "\n\nThe", " answer."]);
    // The script would have another token at that position.
    assert!(
        content[2]["logprob"].as_f64().unwrap() < -10.0
            && content[1]["logprob"].as_f64().unwrap() > -0.1,
        "{content:?}"
    );
    let reply = chat.infer(&ask(json!({ "reasoning_budget": 0, "max_tokens": 2 })));
    assert_eq!(
        (&reply["finish_reason"], &reply["usage"]["completion_tokens"]),
        (&json!("length"), &json!(2))
    );
}

#[test]
fn a_budget_without_reasoning_is_reported_as_ignored() {
    // This template writes calls in the format of FireFunction and has no tags for reasoning.
    let template = "{% for m in messages %}{{ m.role }}: {% if m.tool_calls %} functools[{% for c in m.tool_calls %}\
                    {\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\
                    {% if not loop.last %}, {% endif %}{% endfor %}]{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}assistant: {% endif %}";
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 512, "chat_template": template, "tool_policy": "any" });
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let codes = |answer: &Value| {
        let diagnostics = answer["diagnostics"].as_array().cloned().unwrap_or_default();
        diagnostics.iter().map(|diagnostic| diagnostic["code"].clone()).collect::<Vec<_>>()
    };
    let request = ask(json!({ "reasoning_budget": 0 }));
    assert_eq!(codes(&chat.infer(&request)), ["reasoning_budget_ignored"]);
    assert_eq!(codes(&chat.explain(&request)), ["reasoning_budget_ignored"]);
    let reply = chat.infer(&ask(json!({ "reasoning_budget": -1 })));
    assert_eq!(codes(&reply), Vec::<Value>::new());
    assert_eq!(reply["usage"]["completion_tokens_details"], Value::Null);
}

#[test]
fn a_real_model_is_made_to_answer() {
    let Some(model) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let chat = Chat::open_with(&json!({ "model": model, "n_ctx": 2048, "n_threads": 2 }))
        .unwrap_or_else(|e| panic!("{e:?}"));
    // The model was not trained to reason, but the system message asks it to. The tag is not a
    // special token, so it is forced as several tokens.
    let instruction = "Think for a long time inside <think> and </think>, then answer. Begin your reply with <think>.";
    let messages = json!([{ "role": "system", "content": instruction }, { "role": "user", "content": "How much is 2 + 3?" }]);
    let grammar = r#"start: "<think>" /(.|\n)*/"#;
    let request = json!({ "messages": messages, "temperature": 0, "max_tokens": 48, "reasoning_budget": 6, "grammar": grammar });
    let reply = chat.infer(&request);
    let reasoning =
        reply["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert!((6..=12).contains(&reasoning), "{reply}");
    assert!(!reply["text"].as_str().unwrap().contains("think>"), "{reply}");
}

/// A model that reasons without end. Once its reasoning is closed, it says `The answer.` If the
/// prompt opens the reasoning, the reply does not.
fn endless(is_opened: bool) -> Vec<u8> {
    let opening = if is_opened { "Well:" } else { "<think>" };
    let thoughts = (0..8).map(|n| format!(" and thought {n}")).collect::<Vec<_>>();
    let before = [opening.to_owned(), "\nFirst".to_owned()];
    let after = ["</think>".to_owned(), "\n\nThe".to_owned(), " answer.".to_owned()];
    let pieces: Vec<String> = before.into_iter().chain(thoughts).chain(after).collect();
    let model = Model::new("Scripted circle", pieces, Some(TOOLS_TEMPLATE));
    Model { turns_back: Some((9, 2)), ..model }.to_bytes()
}

fn open_endless(folder: &Path, is_opened: bool, members: Value) -> Chat {
    let model = folder.join(if is_opened { "opened.gguf" } else { "endless.gguf" });
    std::fs::write(&model, endless(is_opened)).unwrap();
    let template = if is_opened { opened_template() } else { TOOLS_TEMPLATE.to_owned() };
    // The engine may be far ahead of a callback, but it never reaches an end.
    let mut options = json!({ "model": model, "n_ctx": 512, "context_overflow": "shift", "chat_template": template });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// A template whose generation prompt opens the reasoning.
fn opened_template() -> String {
    let opened = TOOLS_TEMPLATE.replace(
        "'<|im_start|>assistant\\n' }}\n{%- endif %}",
        "'<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}",
    );
    assert_ne!(opened, TOOLS_TEMPLATE);
    opened
}

/// Streams chunks, and ends the reasoning in the callback of the first chunk that contains this
/// member.
fn end_at(chat: &Chat, member: &'static str, mut request: Value) -> Value {
    request["stream_format"] = json!("chunks");
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |chunk| {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        if chunk["choices"][0]["delta"][member].is_string() {
            ffi::llb_chat_end_reasoning(std::ptr::without_provenance_mut(handle));
        }
    });
    chat.stream(&request, &recorder)
}

/// The codes of the diagnostics, without the one about a shifted context.
fn codes(reply: &Value) -> Vec<&str> {
    let diagnostics = reply["diagnostics"].as_array().unwrap().iter();
    diagnostics
        .map(|it| it["code"].as_str().unwrap())
        .filter(|it| *it != "context_shifted")
        .collect()
}

/// Checks that the reasoning was ended, and that it ends with this text.
#[track_caller]
fn check_ended(reply: &Value, end: &str) {
    let reasoning = reply["reasoning_content"].as_str().unwrap();
    assert!(reasoning.ends_with(end), "{reasoning}");
    assert_eq!(codes(reply), ["reasoning_ended"], "{reply}");
}

const MAX: u64 = 1_000_000_000;

#[test]
fn the_caller_ends_reasoning() {
    let folder = tempfile::tempdir().unwrap();
    let isolated = cfg!(target_os = "linux").then_some("process");
    for isolation in std::iter::once("none").chain(isolated) {
        let chat = open_endless(folder.path(), false, json!({ "isolation": isolation }));
        let request = ask(json!({ "max_tokens": MAX }));
        // The reasoning is ended in a callback.
        let reply = end_at(&chat, "reasoning_content", request.clone());
        check_ended(&reply, "");
        assert_eq!(
            (&reply["text"], &reply["finish_reason"]),
            (&json!(REASONING[1]), &json!("stop"))
        );
        // The reasoning is ended with a message.
        let message = "\nEnough of it.\n";
        let told = ask(json!({ "max_tokens": MAX, "reasoning_budget_message": message }));
        let reply = end_at(&chat, "reasoning_content", told);
        check_ended(&reply, "\nEnough of it.");
        assert_eq!(reply["text"], REASONING[1]);
        // The reasoning is ended by another thread, without a stream. Before the reasoning has
        // begun, that has no effect.
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| chat.infer(&request));
            while !call.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(1));
                ffi::llb_chat_end_reasoning(chat.handle());
            }
            call.join().unwrap()
        });
        assert_eq!(
            (&reply["text"], codes(&reply)),
            (&json!(REASONING[1]), vec!["reasoning_ended"])
        );
        // It has no effect without a call, on the next call, and after the reasoning.
        ffi::llb_chat_end_reasoning(chat.handle());
        let cut = chat.infer(&ask(json!({ "max_tokens": 50 })));
        assert_eq!(
            (&cut["finish_reason"], codes(&cut)),
            (&json!("length"), vec!["reasoning_unclosed"])
        );
        assert_eq!(cut["usage"]["completion_tokens_details"]["reasoning_tokens"], 49);
    }
}

#[test]
fn outside_of_reasoning_there_is_nothing_to_end() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let reply = end_at(&chat, "content", ask(json!({})));
    assert_eq!((&reply["text"], codes(&reply)), (&json!(REASONING[1]), Vec::new()));
    assert_eq!(reply["reasoning_content"], REASONING[0]);
    let plain = Chat::open(&scripted_model("text.gguf"));
    let reply = end_at(&plain, "content", ask(json!({})));
    assert_eq!((&reply["text"], codes(&reply)), (&json!(crate::scripted::TEXT), Vec::new()));
    for handle in [0_usize, 7] {
        ffi::llb_chat_end_reasoning(std::ptr::without_provenance_mut(handle));
    }
}

#[test]
fn what_is_required_follows_the_ended_reasoning() {
    let folder = tempfile::tempdir().unwrap();
    let chat = open_endless(folder.path(), true, json!({}));
    let call = json!({ "max_tokens": MAX, "tools": [weather_tool()], "tool_choice": "required", "reasoning_budget_message": "\nA call now.\n" });
    let reply = end_at(&chat, "reasoning_content", ask(call));
    check_ended(&reply, "\nA call now.");
    assert_eq!(
        (&reply["type"], &reply["finish_reason"]),
        (&json!("tool_call"), &json!("tool_calls"))
    );
    let arguments = reply["tool_calls"][0]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(arguments["city"].is_string(), "{arguments}");
    let schema = json!({ "type": "object", "properties": { "n": { "type": "string" } }, "required": ["n"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": true } });
    let reply = end_at(
        &chat,
        "reasoning_content",
        ask(json!({ "max_tokens": MAX, "response_format": format })),
    );
    check_ended(&reply, "");
    let json: Value = serde_json::from_str(reply["text"].as_str().unwrap()).unwrap();
    assert!(json["n"].is_string(), "{json}");
    // The grammar also sees the budget's message.
    let budget = json!({ "tools": [weather_tool()], "tool_choice": "required", "reasoning_budget": 4, "reasoning_budget_message": " Stop.\n" });
    let reply = chat.infer(&ask(budget));
    assert_eq!(reply["reasoning_content"], "Well:\nFirst and thought 0 and thought 1 Stop.");
    assert_eq!((&reply["type"], codes(&reply)), (&json!("tool_call"), Vec::new()));
    // The context is shifted and the reasoning is ended in the same reply.
    let shifting = open_endless(folder.path(), false, json!({ "n_ctx": 128 }));
    let count = Arc::new(AtomicUsize::new(0));
    let (seen, handle) = (Arc::clone(&count), shifting.handle().addr());
    let recorder = Recorder::reacting(move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) > 300 {
            ffi::llb_chat_end_reasoning(std::ptr::without_provenance_mut(handle));
        }
    });
    let request = ask(json!({ "max_tokens": 100_000, "stream_format": "chunks" }));
    let reply = shifting.stream(&request, &recorder);
    assert_eq!(reply["text"], REASONING[1]);
    assert_eq!(codes(&reply), ["reasoning_ended"]);
    assert_eq!(reply["diagnostics"][1]["code"], "context_shifted");
}

#[test]
fn a_message_is_put_where_the_budget_ends() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let request = |members: Value| {
        let mut request =
            ask(json!({ "reasoning_budget": 1, "reasoning_budget_message": " Stop.\n" }));
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    };
    let reply = chat.infer(&request(json!({ "logprobs": true })));
    assert_eq!(
        (&reply["reasoning_content"], &reply["text"]),
        (&json!("One, two, Stop."), &json!(REASONING[1]))
    );
    assert_eq!((codes(&reply), &reply["finish_reason"]), (Vec::new(), &json!("stop")));
    // Each byte of the message is a token, because no scripted piece has its text.
    assert_eq!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 1 + 7 + 1);
    assert_eq!(reply["logprobs"]["content"].as_array().unwrap().len(), 1 + 1 + 7 + 1 + 2);
    // The message is not used if the model ends its reasoning itself.
    let reply = chat.infer(&request(json!({ "reasoning_budget": -1 })));
    assert_eq!(reply["reasoning_content"], REASONING[0]);
    // The text of the message never becomes a special token. The turn continues, and the parser
    // removes the spelling as in any text.
    let reply = chat.infer(&request(json!({ "reasoning_budget_message": " a<|im_end|>b\n" })));
    assert_eq!((&reply["text"], codes(&reply)), (&json!(REASONING[1]), vec!["eog_text_removed"]));
    for (message, says) in [
        (
            json!("a</think>b"),
            "reasoning_budget_message: contains \"</think>\", which ends the reasoning",
        ),
        (json!(["x"]), "reasoning_budget_message: expected a string"),
        (
            json!("ab ".repeat(400)),
            "reasoning_budget_message: has 1200 tokens, but the context has 1024; shorten it",
        ),
        (json!(false), "reasoning_budget_message: expected a string"),
    ] {
        let error =
            chat.infer(&request(json!({ "reasoning_budget_message": message })))["error"].clone();
        assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(says), "{error}");
    }
    let long = request(json!({ "reasoning_budget_message": "x".repeat(10_000_000) }));
    for error in [&chat.infer(&long)["error"], &chat.explain(&long)["error"]] {
        assert_eq!(error["code"], "CONTEXT_OVERFLOW", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("reasoning_budget_message: "), "{message}");
    }
}
