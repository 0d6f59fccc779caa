//! The part of the answer that a prompt of `llb_template_parse` has, and text around calls.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::template_requests::parse;

fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let function = json!({ "name": "sum", "description": "Adds.", "parameters": parameters });
    json!([{ "type": "function", "function": function }])
}

fn message(template: &str, prompt: Option<&str>, output: &str, partial: bool) -> Value {
    let mut request = json!({ "chat_template": template, "output": output, "tools": tools(), "partial": partial });
    if let Some(prompt) = prompt {
        request["prompt"] = prompt.into();
    }
    parse(&request.to_string()).unwrap()["message"].take()
}

#[track_caller]
fn check(template: &str, prompt: &str, output: &str, content: &str) {
    let message = message(template, Some(prompt), output, false);
    assert_eq!(message["content"], content, "{message}");
}

/// The turn of an answer opens without a generation prompt.
const NO_PROMPT: &str = "{% for m in messages %}{% if m.role == 'user' %}[QUERY] {{ m.content }} [/QUERY]{% else %}\
                         {{ m.content }}</s>{% endif %}{% endfor %}";
/// The template has a generation prompt.
const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}\
                      {% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\n</tool_call>{% endfor %}\
                      <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// Users' turns have a header without a tag, and answers have none.
const NO_HEADER: &str =
    "{% for m in messages %}{{ 'Question: ' if m.role == 'user' }}{{ m.content }}\n{% endfor %}";

#[test]
fn a_prompt_with_the_last_user_message_begins_no_answer() {
    check(NO_PROMPT, "[QUERY] Hi [/QUERY]", "Yes.", "Yes.");
    check(NO_PROMPT, "[QUERY] Hi [/QUERY]Ye", "s.", "Yes.");
    check(NO_PROMPT, "[QUERY] Hi [/QUERY]No.</s>[QUERY] And now? [/QUERY]", "Yes.", "Yes.");
    check(NO_HEADER, "Question: Hi\n", "Yes.", "Yes.");
    check(NO_HEADER, "Question: Hi\nNo.\nQuestion: And now?\n", "Yes.", "Yes.");
    let user = "<|im_start|>user\nHi<|im_end|>\n";
    check(CHATML, user, "<|im_start|>assistant\nYes.", "Yes.");
    let turns = format!("{user}<|im_start|>assistant\nNo.<|im_end|>\n{user}");
    check(CHATML, &turns, "<|im_start|>assistant\nYes.", "Yes.");
    check(CHATML, &format!("{turns}<|im_start|>assistant\nYe"), "s.", "Yes.");
    // Tags around text occur in the system message too.
    let with_system = format!(
        "<|im_start|>system\nBe brief.<|im_end|>\n{}",
        CHATML.replace("{{ m.content or '' }}", "<|say|>{{ m.content or '' }}")
    );
    let prompt = "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\n<|say|>Hi<|im_end|>\n";
    check(&with_system, prompt, "<|im_start|>assistant\n<|say|>Yes.<|im_end|>\n", "Yes.");
}

#[test]
fn headers_without_tags() {
    let template = "{% for m in messages %}{{ '问：' if m.role == 'user' else '答：' }}{{ m.content }}\n{% endfor %}\
                    {% if add_generation_prompt %}答：{% endif %}";
    check(template, "问：Hi\n", "答：Yes.", "Yes.");
    let template = "{% for m in messages %}]~b]{{ 'user' if m.role == 'user' else 'ai' }}\n{{ m.content }}[e~[\n{% endfor %}\
                    {% if add_generation_prompt %}]~b]ai\n{% endif %}";
    check(template, "]~b]user\nHi[e~[\n", "]~b]ai\nYes.[e~[\n", "Yes.");
}

#[test]
fn whitespace_around_a_call_between_two_texts_is_kept() {
    let call = "<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    for (output, content) in [
        (format!("One.\n\n{call}\nTwo."), "One.\n\n\nTwo."),
        (format!("One. {call} {call}\n\nTwo."), "One. \n\nTwo."),
        (format!("One.{call}Two."), "One.Two."),
        (format!("One.\n\n{call}\n\n"), "One."),
        (format!("{call}\n\nTwo."), "Two."),
        (format!("One.\n{call}\nTwo.\n{call}\nThree.\n{call}"), "One.\n\nTwo.\n\nThree."),
    ] {
        let message = message(CHATML, None, &output, false);
        assert_eq!(message["content"], content, "{output:?}");
    }
}

#[test]
fn a_partial_output_shows_a_call_once_its_name_is_known() {
    let with_id = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% if m.tool_calls %}<|CALLS|>[\
                   {% for c in m.tool_calls %}{\"call_id\": \"{{ loop.index0 }}\", \"tool\": \"{{ c.function.name }}\", \
                   \"parameters\": {{ c.function.arguments|tojson }}}{{ ', ' if not loop.last }}{% endfor %}]<|/CALLS|>{% endif %}\
                   <|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
    for (template, output, shown) in [
        (with_id, "<|CALLS|>[{\"call_id\": \"0\", \"tool\": \"sum\", \"para", true),
        (with_id, "<|CALLS|>[{\"call_id\": \"0\", \"tool\": \"sum\"", true),
        (with_id, "<|CALLS|>[{\"call_id\": \"0\", \"tool\": \"su", false),
        (CHATML, "<tool_call>\n{\"name\": \"sum\", ", true),
        (CHATML, "<tool_call>\n{\"name\": \"other\", ", false),
        (CHATML, "Text with {\"name\": \"sum\", ", false),
    ] {
        let calls = message(template, None, output, true)["tool_calls"].take();
        let expected = json!({ "name": "sum", "arguments": "" });
        assert_eq!(calls[0]["function"], if shown { expected } else { Value::Null }, "{output:?}");
    }
}

/// A wrapper of answers that the template does not write. Its turns end like those of a family that
/// has it.
#[test]
fn tags_around_an_answer_that_the_template_does_not_write() {
    let template = "{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ m.role }}|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}\
                    {% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|assistant|>{% endif %}";
    let message = message(template, None, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", false);
    assert_eq!(message["content"], "Yes.");
    let other = template.replace("END_OF_TURN_TOKEN", "end");
    let reply = "<|START_RESPONSE|>Yes.<|END_RESPONSE|>";
    assert_eq!(self::message(&other, None, reply, false)["content"], reply);
}

/// Answers have a header, but there is no generation prompt.
#[test]
fn a_header_without_a_generation_prompt() {
    let template = "{% for m in messages %}{{ 'User: ' if m.role == 'user' else '助手：' }}{{ m.content }}<|stop|>{% endfor %}";
    check(template, "User: Hi<|stop|>", "助手：Yes.<|stop|>", "Yes.");
}

/// A history ends with the header of the next turn, and a turn with two tokens.
#[test]
fn text_after_every_answer() {
    let template = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|stop|><|over|>{% endfor %}<|start|>assistant\n";
    let prompt = "<|start|>user\nHi<|stop|><|over|><|start|>assistant\n";
    check(template, prompt, "Yes.<|stop|><|over|><|start|>assistant\n", "Yes.");
}
