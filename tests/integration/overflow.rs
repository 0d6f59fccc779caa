//! Tests `context_overflow`: conversations that are longer than the context.

use serde_json::{Value, json};

use crate::abi::{Chat, scripted_model};
use crate::scripted::TEXT;

const N_CTX: u64 = 512;

fn open(strategy: &str) -> Chat {
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": N_CTX, "context_overflow": strategy });
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// A system message, turns of a question and an answer, and a last question: `System.`, `question
/// 0.`, `answer 0.`, …
fn conversation(turns: usize) -> Vec<Value> {
    let mut messages = vec![message("system", "System.")];
    for turn in 0..turns {
        messages.push(message("user", &format!("question {turn}.")));
        messages.push(message("assistant", &format!("answer {turn}.")));
    }
    messages.push(message("user", "last question."));
    messages
}

fn request(messages: &[Value]) -> Value {
    json!({ "messages": messages, "temperature": 0, "max_tokens": 64 })
}

/// The prompt without these messages, as the template of the scripted models renders it.
fn prompt(messages: &[Value], dropped: std::ops::Range<usize>) -> String {
    let kept = messages.iter().enumerate().filter(|(index, _)| !dropped.contains(index));
    let turn = |message: &Value| {
        format!(
            "<|im_start|>{}\n{}<|im_end|>\n",
            message["role"].as_str().unwrap(),
            message["content"].as_str().unwrap()
        )
    };
    kept.map(|(_, message)| turn(message)).collect::<String>() + "<|im_start|>assistant\n"
}

/// Checks that only the reported messages are missing, and returns their range.
#[track_caller]
fn truncated(chat: &Chat, strategy: &str, messages: &[Value]) -> std::ops::Range<usize> {
    let explanation = chat.explain(&request(messages));
    let truncated = &explanation["truncated"];
    assert_eq!(truncated["strategy"], strategy, "{explanation}");
    let first = truncated["first_message"].as_u64().unwrap() as usize;
    let dropped = first..first + truncated["messages"].as_u64().unwrap() as usize;
    assert_eq!(explanation["prompt"], prompt(messages, dropped.clone()));
    assert_eq!(
        (&truncated["prompt_tokens"], &truncated["n_ctx"]),
        (&explanation["prompt_tokens"], &json!(N_CTX))
    );
    assert_eq!(explanation["diagnostics"][0]["code"], "context_truncated");
    dropped
}

#[test]
fn the_oldest_turns_leave_and_the_next_ones_keep_the_cut() {
    let chat = open("truncate_oldest");
    let mut messages = conversation(40);
    let dropped = truncated(&chat, "truncate_oldest", &messages);
    assert_eq!(dropped.start, 1);
    let reply = chat.infer(&request(&messages));
    assert_eq!(reply["text"], TEXT);
    assert_eq!(reply["truncated"]["messages"], dropped.len());
    assert_eq!(reply["diagnostics"][0]["code"], "context_truncated");
    // The prompt fills three quarters of what a reply of 64 tokens leaves, minus at most one turn.
    let tokens = reply["usage"]["prompt_tokens"].as_u64().unwrap();
    let aim = (N_CTX - 64) * 3 / 4;
    assert!(tokens <= aim && tokens > aim - aim / 8, "{tokens} of {aim}");

    // The next turns only extend the prompt, until the room is used up.
    let (mut kept, mut before) = (0, tokens);
    loop {
        messages.push(message("assistant", "ok"));
        messages.push(message("user", "and now?"));
        let reply = chat.infer(&request(&messages));
        assert_eq!(reply["finish_reason"], "stop", "{reply}");
        if reply["truncated"]["messages"] != dropped.len() {
            break;
        }
        // Compared only up to the reply, which is not the text that the model has generated.
        assert!(
            reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() >= before,
            "{reply}"
        );
        before = reply["usage"]["prompt_tokens"].as_u64().unwrap();
        kept += 1;
    }
    assert!(kept >= 2, "the cut lasted for {kept} turns");
    assert!(before <= N_CTX - 64);
}

#[test]
fn a_request_chooses_for_itself() {
    let messages = conversation(40);
    let asking = |strategy: &str| {
        let mut request = request(&messages);
        request["context_overflow"] = strategy.into();
        request
    };
    let chat = open("error");
    assert_eq!(chat.infer(&request(&messages))["error"]["code"], "CONTEXT_OVERFLOW");
    for (strategy, first) in [("truncate_oldest", 1), ("truncate_middle", 3)] {
        let reply = chat.infer(&asking(strategy));
        assert_eq!(reply["truncated"]["strategy"], strategy, "{reply}");
        assert_eq!(reply["truncated"]["first_message"], first);
        assert_eq!(reply["text"], TEXT);
    }
    for default in ["truncate_oldest", "shift"] {
        let reply = open(default).infer(&asking("error"));
        assert_eq!(reply["error"]["code"], "CONTEXT_OVERFLOW", "{default}");
    }
    let refused = chat.infer(&asking("shift"))["error"]["message"].clone();
    let expected = r#"expected one of "error", "truncate_oldest", "truncate_middle""#;
    assert!(refused.as_str().unwrap().ends_with(expected), "{refused}");
}

#[test]
fn the_first_turn_stays_when_the_middle_is_dropped() {
    let chat = open("truncate_middle");
    let messages = conversation(40);
    assert_eq!(truncated(&chat, "truncate_middle", &messages).start, 3);
    assert_eq!(chat.infer(&request(&messages))["text"], TEXT);
    let alone: Vec<Value> = messages[1..].to_vec();
    assert_eq!(truncated(&chat, "truncate_middle", &alone).start, 2);
}

#[test]
fn a_conversation_that_fits_is_unchanged() {
    for strategy in ["truncate_oldest", "truncate_middle", "error"] {
        let chat = open(strategy);
        let messages = conversation(2);
        let reply = chat.infer(&request(&messages));
        assert_eq!((&reply["truncated"], &reply["diagnostics"]), (&Value::Null, &json!([])));
        assert_eq!(chat.explain(&request(&messages))["prompt"], prompt(&messages, 0..0));
    }
}

#[test]
fn an_overflow_error_has_numbers() {
    let long = "x".repeat(600);
    let mut messages = conversation(10);
    messages.push(message("user", &long));
    for strategy in ["truncate_oldest", "truncate_middle", "error"] {
        let chat = open(strategy);
        let dropped = match strategy {
            "truncate_oldest" => 1..22,
            "truncate_middle" => 3..22,
            _ => 0..0,
        };
        let shortest = prompt(&messages, dropped);
        let markers = shortest.matches("<|im_start|>").count() * 11
            + shortest.matches("<|im_end|>").count() * 9;
        let error = chat.infer(&request(&messages))["error"].clone();
        assert_eq!(error["code"], "CONTEXT_OVERFLOW", "{strategy}");
        assert_eq!(
            (&error["details"]["prompt_tokens"], &error["details"]["n_ctx"]),
            (&json!(shortest.len() - markers), &json!(N_CTX))
        );
        // No message can be left out.
        let error = chat.infer(&request(&[message("user", &long)]))["error"].clone();
        assert_eq!(error["code"], "CONTEXT_OVERFLOW", "{strategy}");
        assert_eq!(chat.infer(&request(&conversation(1)))["text"], TEXT);
    }
    // The reply gets less room than `max_tokens`. The current turn is not refused because of that.
    let chat = open("truncate_oldest");
    let full = "x".repeat(440);
    let reply = chat.infer(&request(&[
        message("user", "old"),
        message("assistant", "old"),
        message("user", &full),
    ]));
    assert_eq!(
        (&reply["truncated"]["messages"], &reply["text"]),
        (&json!(2), &json!(TEXT)),
        "{reply}"
    );
}

#[test]
fn calls_and_results_stay_together_and_keep_their_names() {
    let chat = open("truncate_oldest");
    let call = |id: usize| {
        json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": format!("call_{id}"), "type": "function",
            "function": { "name": "get_weather", "arguments": "{\"city\": \"Paris\"}" } }] })
    };
    let result = |id: usize| json!({ "role": "tool", "tool_call_id": format!("call_{id}"), "content": format!("result {id}") });
    let mut messages = Vec::new();
    for turn in 0..12 {
        messages.extend([
            message("user", &format!("question {turn}")),
            call(turn),
            result(turn),
            message("assistant", "Fine."),
        ]);
    }
    messages.extend([message("user", "last"), call(99), result(99)]);
    let explanation = chat.explain(&request(&messages));
    let prompt = explanation["prompt"].as_str().unwrap();
    let dropped = explanation["truncated"]["messages"].as_u64().unwrap() as usize;
    assert!(dropped > 0 && dropped.is_multiple_of(4), "{dropped}");
    for turn in 0..12 {
        let kept = turn * 4 >= dropped;
        assert_eq!(prompt.contains(&format!("question {turn}<")), kept, "question {turn}");
        assert_eq!(prompt.contains(&format!("result {turn}\n")), kept, "result {turn}");
    }
    assert_eq!(prompt.matches("<tool_call>").count(), 12 - dropped / 4 + 1);
    assert!(prompt.contains("result 99"));
    // Spans use the indices of messages in the request.
    let spans = explanation["spans"].as_array().unwrap();
    let last = spans
        .iter()
        .find(|span| span["path"] == "messages[48].content")
        .unwrap_or_else(|| panic!("{spans:?}"));
    let (start, end) =
        (last["start"].as_u64().unwrap() as usize, last["end"].as_u64().unwrap() as usize);
    assert_eq!(&prompt[start..end], "last");
    // The history of an agent, without a user message.
    let steps: Vec<Value> = (0..30).flat_map(|id| [call(id), result(id)]).collect();
    let explanation = chat.explain(&request(&steps));
    assert_eq!(explanation["truncated"]["messages"].as_u64().unwrap() % 2, 0);
    assert!(explanation["prompt"].as_str().unwrap().contains("result 29"));
    // All steps belong to the current turn, of which nothing may be dropped.
    let turn = [vec![message("user", "go")], steps].concat();
    assert_eq!(chat.infer(&request(&turn))["error"]["code"], "CONTEXT_OVERFLOW");
}

#[test]
fn ten_thousand_messages_and_a_continued_reply() {
    let chat = open("truncate_oldest");
    let messages = conversation(5000);
    let dropped = truncated(&chat, "truncate_oldest", &messages);
    assert!(
        dropped.start == 1 && dropped.len().is_multiple_of(2) && dropped.end < messages.len(),
        "{dropped:?}"
    );
    assert_eq!(chat.infer(&request(&messages))["text"], TEXT);

    let mut messages = conversation(40);
    messages.push(message("assistant", "I begin"));
    let mut request = request(&messages);
    request["continue_final_message"] = true.into();
    let explanation = chat.explain(&request);
    assert!(
        explanation["prompt"]
            .as_str()
            .unwrap()
            .ends_with("last question.<|im_end|>\n<|im_start|>assistant\nI begin")
    );
    assert!(explanation["truncated"]["messages"].as_u64().unwrap() > 0);
}

/// A template that reads the arguments of calls as objects.
const CALLS_TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
    {% for call in m.tool_calls or [] %}{{ call.function.name }}\
    {% for key, value in call.function.arguments.items() %}{{ key }}={{ value }}{% endfor %}\
    {% endfor %}<|im_end|>\n{% endfor %}";

#[test]
fn polyfills_name_the_messages_of_the_request() {
    let chat = Chat::open_with(&json!({
        "model": scripted_model("text.gguf"), "n_ctx": N_CTX, "context_overflow": "truncate_oldest",
        "chat_template": CALLS_TEMPLATE, "tool_policy": "any",
    }))
    .unwrap_or_else(|refused| panic!("{refused:?}"));
    let mut messages = conversation(30);
    let index = messages.len();
    let function = json!({ "name": "f", "arguments": "no object" });
    let call = json!({ "id": "c", "type": "function", "function": function });
    messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
    messages.push(json!({ "role": "tool", "tool_call_id": "c", "content": "x" }));

    let reply = chat.explain(&request(&messages));
    assert!(reply["truncated"]["messages"].as_u64().unwrap() > 0, "{reply}");
    let wrapped = &reply["diagnostics"][0];
    assert_eq!(
        (&wrapped["code"], &wrapped["message_index"]),
        (&json!("arguments_wrapped"), &json!(index))
    );
    let path = format!("messages[{index}].tool_calls[0].function.arguments: ");
    assert!(wrapped["message"].as_str().unwrap().starts_with(&path), "{wrapped}");

    let mut strict = request(&messages);
    strict["polyfills"] = json!({ "invalid_arguments": "error" });
    let error = &chat.explain(&strict)["error"];
    assert!(error["message"].as_str().unwrap().starts_with(&path), "{error}");
}

#[test]
fn a_prompt_that_cannot_fit_is_not_tokenized() {
    let huge = message("user", &"word ".repeat(1 << 19));
    let chat = open("error");
    let refused = chat.infer(&request(std::slice::from_ref(&huge)));
    assert_eq!(refused["error"]["code"], "CONTEXT_OVERFLOW");
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("the prompt has at least "), "{said}");
    let least = refused["error"]["details"]["prompt_tokens"].as_u64().unwrap();
    assert!((N_CTX..=5 << 19).contains(&least), "{refused}");
    // Turns are left out as for any other prompt that is too long.
    let chat = open("truncate_oldest");
    let mut messages = conversation(3);
    messages.splice(1..1, [huge, message("assistant", "long.")]);
    assert_eq!(truncated(&chat, "truncate_oldest", &messages), 1..3);
    assert_eq!(chat.infer(&request(&messages))["text"], TEXT);
}
