//! Reasoning and its budget.

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, real_model, scripted_model};
use crate::scripted::{REASONING, TOOLS_TEMPLATE};

/// Reasoning, text, tokens of both, and tokens of the reasoning.
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
    assert_eq!(usage["completion_tokens_details"], json!({ "reasoning_tokens": tokens.1 }));
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
    let opened = TOOLS_TEMPLATE.replace(
        "'<|im_start|>assistant\\n' }}\n{%- endif %}",
        "'<|im_start|>assistant\\n<think>\\n' }}\n{%- endif %}",
    );
    assert_ne!(opened, TOOLS_TEMPLATE);
    let options =
        json!({ "model": scripted_model("reasoning.gguf"), "n_ctx": 512, "chat_template": opened });
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
    // The script had another token in that position.
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
    // This template writes calls as FireFunction does and has no tags for reasoning.
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
    // The model was not trained to reason. The system message asks for it. The tag is not a special
    // token and is forced as several tokens.
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
