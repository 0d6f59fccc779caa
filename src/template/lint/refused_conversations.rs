//! Conversations of common shapes that the template refuses, or fails on, while a plain one
//! renders.

use serde_json::{Value, json};

use super::{ANSWER, CALLED, ID, Review, SECOND, SECOND_ID, Severity};
use crate::probing::Probe;
use crate::template::probe::baseline::{RenderResult, parts, tool};
use crate::template::probe::traits::NoContent;
use crate::template::probe::{content, reasoning_turns};

pub(super) fn review(review: &mut Review<'_>) {
    roles(review);
    contents(review);
    let base = review.base;
    let tools = review.base.render_with(vec![base.user()], &review.tools());
    if review.compare("raises_on_tools", "declared tools", &tools) {
        let mut bare = tool(CALLED);
        bare["function"] = json!({ "name": CALLED });
        let text = base.render_with(vec![base.user()], &json!([bare]));
        review.compare("raises_on_bare_tool", "a tool with a name and nothing else", &text);
        calls(review);
    }
}

fn roles(review: &mut Review<'_>) {
    let (user, answer, system) = (review.user(), review.answer(), review.system());
    let one = |messages: &[&Value]| -> Vec<Value> {
        messages.iter().map(|message| (*message).clone()).collect()
    };
    let text = review.render(one(&[&system, &user]));
    let takes_system = review.compare("raises_on_system", "a system message", &text);
    if takes_system {
        let text = review.render(one(&[&system]));
        review.compare("raises_on_no_user", "a conversation without a user message", &text);
    }
    let developer = review.base.message("developer", super::SYSTEM);
    let text = review.render(one(&[&developer, &user]));
    review.compare("raises_on_developer", "a developer message", &text);
    let text = review.render(one(&[&user, &user]));
    review.compare("raises_on_two_users", "two user messages in a row", &text);
    let text = review.render(one(&[&user, &answer, &user]));
    if !review.compare("raises_on_assistant", "an answered user message before the last", &text) {
        return;
    }
    if takes_system {
        let text = review.render(one(&[&user, &answer, &system, &user]));
        review.compare("raises_on_later_system", "a system message in the middle", &text);
    }
    for (code, what, messages) in [
        (
            "raises_on_two_assistants",
            "two assistant messages in a row",
            one(&[&user, &answer, &answer, &user]),
        ),
        ("raises_on_assistant_first", "an assistant message in front", one(&[&answer, &user])),
        ("raises_on_assistant_last", "an assistant message at the end", one(&[&user, &answer])),
    ] {
        let text = review.render(messages);
        review.compare(code, what, &text);
    }
}

fn contents(review: &mut Review<'_>) {
    let base = review.base;
    let user = |content: Value| vec![json!({ "role": "user", "content": content })];
    if base.typed() {
        let text = review.render(user("text".into()));
        review.compare("raises_on_string_content", "content as a string", &text);
    } else {
        let text = review.render(user(parts("text")));
        review.compare("raises_on_content_parts", "content as a list of text parts", &text);
    }
    let text = review.render(vec![base.message("user", "")]);
    review.compare("raises_on_empty_user", "an empty user message", &text);
    if !review.has("raises_on_assistant") {
        let text = review.render(vec![base.user(), base.message("assistant", ""), base.user()]);
        review.compare("raises_on_empty_answer", "an empty assistant message", &text);
    }
}

fn calls(review: &mut Review<'_>) {
    let base = review.base;
    let (user, call, result) = (review.user(), review.plain_call(), review.result());
    let exchange = |call: Value| vec![user.clone(), call, result.clone()];
    let alone = review.render_called(vec![user.clone(), call.clone()]);
    let answered = review.render_called(exchange(call.clone()));
    let (caps, form) = (&review.traits.caps, review.form());
    if answered.is_err() {
        match &alone {
            Ok(_) => {
                review.compare("raises_on_tool_result", "the result of a tool call", &answered)
            }
            // In this form at least; none shows.
            Err(_) => review.compare("raises_on_tool_call", "a tool call", &alone),
        };
        return;
    }
    if !caps.supports_tool_calls {
        // What is made of a call that is not shown is no matter of its shape.
        return;
    }
    let mut other = call.clone();
    let text = json!({ "argument": "value_needle" }).to_string();
    let arguments = &mut other["tool_calls"][0]["function"]["arguments"];
    let (code, what) = if arguments.is_object() {
        *arguments = text.into();
        ("raises_on_string_arguments", "arguments of a call as JSON text")
    } else {
        *arguments = json!({ "argument": "value_needle" });
        ("raises_on_object_arguments", "arguments of a call as an object")
    };
    let one = |id: &str, name: &str| {
        let mut call = call["tool_calls"][0].clone();
        call["id"] = id.into();
        call["function"]["name"] = name.into();
        call
    };
    let with_content = |content: Option<Value>| {
        let mut message = Value::Object(content::without_content(base, NoContent::Absent));
        if let Some(content) = content {
            message["content"] = content;
        }
        message["tool_calls"] = call["tool_calls"].clone();
        message
    };
    let mut second_result = result.clone();
    second_result["tool_call_id"] = SECOND_ID.into();
    second_result["name"] = SECOND.into();
    let both = form.calls(base, &[one(ID, CALLED), one(SECOND_ID, SECOND)]);
    let parallel = vec![user.clone(), both, result.clone(), second_result];
    let long = "call_0123456789abcdef";
    let mut long_result = result.clone();
    long_result["tool_call_id"] = long.into();
    let mut nameless = result.clone();
    if let Value::Object(message) = &mut nameless {
        message.shift_remove("name");
    }
    let mut reasoning = with_content(Some(base.content(ANSWER)));
    reasoning[reasoning_turns::field(review.traits.caps.reasoning_format)
        .unwrap_or("reasoning_content")] = "reasoning".into();
    let mut chain = exchange(call.clone());
    chain.push(user.clone());
    let shapes: [(&'static str, &str, Vec<Value>); 11] = [
        (code, what, exchange(other)),
        (
            "raises_on_absent_content_beside_calls",
            "a tool call without a member content",
            exchange(with_content(None)),
        ),
        (
            "raises_on_null_content_beside_calls",
            "a tool call with content null (before it is left out, as transformers does)",
            exchange(with_content(Some(Value::Null))),
        ),
        (
            "raises_on_content_beside_calls",
            "a tool call with text beside it",
            exchange(with_content(Some(base.content(ANSWER)))),
        ),
        (
            "raises_on_reasoning_beside_calls",
            "a tool call with reasoning and text beside it",
            exchange(reasoning),
        ),
        (
            "raises_on_null_argument",
            "a tool call with an argument that is null",
            exchange(review.call(json!({ "a": null }))),
        ),
        (
            "raises_on_empty_arguments",
            "a tool call without arguments",
            exchange(review.call(json!({}))),
        ),
        ("raises_on_parallel_calls", "two tool calls in one message", parallel),
        (
            "raises_on_long_call_ids",
            "ids of calls that are not nine letters and digits",
            vec![user.clone(), form.calls(base, &[one(long, CALLED)]), long_result],
        ),
        (
            "raises_on_result_without_name",
            "a tool result without the tool's name",
            vec![user.clone(), call.clone(), nameless],
        ),
        ("raises_on_user_after_result", "a user message after a tool result", chain),
    ];
    for (code, what, messages) in shapes {
        let text = review.render_called(messages);
        review.compare(code, what, &text);
    }
    if !review.has("raises_on_user_after_result") {
        let messages =
            vec![user.clone(), call.clone(), result.clone(), review.answer(), user.clone()];
        let text = review.render_called(messages);
        review.compare("raises_on_answered_result", "an answer after a tool result", &text);
    }
    // The prompt of a request ends in a generation prompt.
    let probe = Probe { add_generation_prompt: true, ..base.probe(exchange(call.clone())) };
    let text = base.prober.render(Probe { tools: Some(review.tools()), ..probe });
    review.compare(
        "raises_on_prompt_after_result",
        "a generation prompt after a tool result",
        &text,
    );
}

impl Review<'_> {
    /// Whether a conversation rendered; a finding when the template is why it did not.
    fn compare(&mut self, code: &'static str, what: &str, text: &RenderResult) -> bool {
        match text {
            Ok(_) => true,
            // Says nothing about the template.
            Err(failure) if matches!(failure.kind, "limit" | "engine") => false,
            Err(failure) => {
                let how = if failure.kind == "raised" { "refuses" } else { "fails on" };
                let message =
                    format!("the template {how} {what}: {}", super::cut(&failure.message));
                // Nobody sends these as they are: transformers leaves out what is null.
                let severity =
                    if code.contains("null_content") { Severity::Info } else { Severity::Warning };
                self.add(severity, code, failure.line, message);
                false
            }
        }
    }
}
