//! Reasoning of templates whose calls say nothing about it, or that have none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::template_requests::{info, parse};

/// Calls that no family writes.
const CALLS: &str = "{% for c in m.tool_calls or [] %}<do>{{ c.function.name }} {{ c.function.arguments|tojson }}</do>{% endfor %}";

/// A template with these texts for the content of an answer and for the end of the generation
/// prompt.
fn template(content: &str, prompt: &str) -> String {
    let tools = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}";
    format!(
        "{tools}{{% for m in messages %}}<|{{{{ m.role }}}}|>{{% if m.role == 'assistant' %}}{content}{CALLS}\
         {{% else %}}{{{{ m.content }}}}{{% endif %}}<|end|>{{% endfor %}}\
         {{% if add_generation_prompt %}}<|assistant|>{prompt}{{% endif %}}"
    )
}

const PLAIN: &str = "{{ m.content or '' }}";

/// Asserts reasoning and content of a reply, and that its call is found after them.
#[track_caller]
fn check(template: &str, thinking: Option<bool>, output: &str, text: (&str, &str)) {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let function = json!({ "name": "sum", "description": "Adds.", "parameters": parameters });
    let tools = json!([{ "type": "function", "function": function }]);
    let mut request = json!({ "chat_template": template, "tools": tools });
    if let Some(thinking) = thinking {
        request["enable_thinking"] = thinking.into();
    }
    for call in ["", "<do>sum {\"a\": 1}</do>"] {
        request["output"] = format!("{output}{call}<|end|>").into();
        let reply = parse(&request.to_string()).unwrap();
        let message = &reply["message"];
        let of = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
        assert_eq!((&*of("reasoning_content"), &*of("content")), text, "{reply}");
        let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(calls, usize::from(!call.is_empty()), "{reply}");
    }
}

#[track_caller]
fn check_tags(template: &str, expected: Value) {
    let info = info(&json!({ "chat_template": template }).to_string()).unwrap();
    let format = &info["output_format"];
    assert_eq!(
        (&format["family"], &format["tool_calls"]),
        (&json!("inferred"), &json!("verified"))
    );
    assert_eq!(format["reasoning_tags"], expected);
}

#[test]
fn the_generation_prompt_opens_reasoning() {
    let template = template(PLAIN, "<thought>\n");
    check_tags(&template, json!(["<thought>", "</thought>"]));
    check(&template, None, "Hm.\n</thought>\n\nYes.", ("Hm.", "Yes."));
}

#[test]
fn a_switch_opens_reasoning_or_closes_it() {
    let template = template(
        PLAIN,
        "<muse:think>\n{% if enable_thinking is false %}\n</muse:think>\n{% endif %}",
    );
    check_tags(&template, json!(["<muse:think>", "</muse:think>"]));
    check(&template, None, "Hm.\n</muse:think>\nYes.", ("Hm.", "Yes."));
    // A block that the prompt opened and closed is no content.
    check(&template, Some(false), "Yes.", ("", "Yes."));
}

#[test]
fn a_switch_alone_shows_the_tags() {
    let template =
        template(PLAIN, "{% if enable_thinking is false %}<ponder>\n\n</ponder>\n{% endif %}");
    check(&template, None, "<ponder>\nHm.\n</ponder>\nYes.", ("Hm.", "Yes."));
    check(&template, Some(false), "Yes.", ("", "Yes."));
}

#[test]
fn reasoning_that_is_cut_from_the_history() {
    let cut = "{{ m.content.split('</reasoning>')[-1].lstrip() if m.content else '' }}";
    check(&template(cut, ""), None, "<reasoning>Hm.</reasoning> Yes.", ("Hm.", "Yes."));
    let cut = "{% if m.content %}{% if '[/MULL]' in m.content and not loop.last %}\
               {{ m.content.split('[/MULL]')[1] }}{% else %}{{ m.content }}{% endif %}{% endif %}";
    check(&template(cut, ""), None, "[MULL]Hm.[/MULL]Yes.", ("Hm.", "Yes."));
}

#[test]
fn a_text_without_a_pair_ends_reasoning_that_the_prompt_begins() {
    let cut = "{{ m.content.split('[BEGIN ANSWER]')[-1].strip() if m.content else '' }}";
    let template = template(cut, "I think as follows:\n");
    check_tags(&template, json!(["", "[BEGIN ANSWER]"]));
    check(&template, None, "Hm.\n[BEGIN ANSWER]\nYes.", ("I think as follows:\nHm.", "Yes."));
}

#[test]
fn tags_around_the_answer_that_the_history_does_not_have() {
    let cut = "{% if m.content and '<reply>' in m.content and '</reply>' in m.content %}\
               {{ m.content.split('<reply>')[1].split('</reply>')[0].strip() }}\
               {% else %}{{ m.content or '' }}{% endif %}";
    let template = template(cut, "{% if enable_thinking is false %}<mull>\n\n</mull>\n{% endif %}");
    let output = "<mull>\nHm.\n</mull>\n<reply>\nYes.\n</reply>";
    check(&template, None, output, ("Hm.", "Yes."));
    check(&template, Some(false), "<reply>\nYes.\n</reply>", ("", "Yes."));
}

#[test]
fn reasoning_that_only_a_switch_shows() {
    let shown = "{% if m.reasoning_content and enable_thinking %}<mull>{{ m.reasoning_content }}</mull>{% endif %}{{ m.content or '' }}";
    check(&template(shown, ""), None, "<mull>Hm.</mull>Yes.", ("Hm.", "Yes."));
}

#[test]
fn two_blocks_of_reasoning() {
    let cut = "{% set t = m.content or '' %}{% if not loop.last %}\
               {% set t = t.split('<quick>')[-1].split('</mull>')[-1] %}{% endif %}{{ t }}";
    let template = template(cut, "<judge>\n");
    check(&template, None, "Easy.\n</judge>\n\n<quick>\nYes.", ("Easy.", "Yes."));
    check(&template, None, "Hard.\n</judge>\n<mull>\nHm.\n</mull>\nYes.", ("Hard.\nHm.", "Yes."));
}

/// The tag of the answer inside reasoning begins the answer if the reasoning never closes.
#[test]
fn an_answer_in_tags_ends_reasoning() {
    let cut = "{% set t = m.content or '' %}{% if not loop.last %}{% if '<reply>' in t and '</reply>' in t %}\
               {% set t = t.split('<reply>')[1].split('</reply>')[0] %}{% else %}\
               {% set t = t.split('<mull_off>')[-1].split('</mull>')[-1] %}{% endif %}{% endif %}{{ t.strip() }}";
    let template = template(cut, "<judge>\n");
    for (output, text) in [
        ("Easy.\n</judge>\n\n<mull_off>\n<reply>\nYes.\n</reply>", ("Easy.", "Yes.")),
        (
            "Hard.\n</judge>\n\n<mull_on>\n<mull>\nHm.\n</mull>\n<reply>\nYes.\n</reply>",
            ("Hard.\nHm.", "Yes."),
        ),
        ("Easy.\n<mull_off>\n<reply>\nYes.\n</reply>", ("Easy.", "Yes.")),
        ("Easy.\n<reply>\nYes.\n</reply>", ("Easy.", "Yes.")),
        (
            "First\n<reply>\nNo.\n</reply>\nWait.\n</judge>\n<reply>\nYes.\n</reply>",
            ("First\n<reply>\nNo.\n</reply>\nWait.", "Yes."),
        ),
        ("In <reply> I write it.\n</judge>\nYes.", ("In <reply> I write it.", "Yes.")),
    ] {
        check(&template, None, output, text);
    }
}

#[test]
fn tags_that_the_source_only_names() {
    let named = format!("{{% set hint = 'Write <think>, then </think>.' %}}{PLAIN}");
    check(&template(&named, ""), None, "<think>Hm.</think>Yes.", ("Hm.", "Yes."));
    check(&template(PLAIN, ""), None, "<mull>Hm.</mull>Yes.", ("", "<mull>Hm.</mull>Yes."));
}

#[test]
fn tags_of_turns_are_not_tags_of_reasoning() {
    // The generation prompt has a header that answers of the history lack.
    let template = "{% for m in messages %}{% if m.role == 'user' %}<|turn_start|>user<|turn_end|>{% endif %}{{ m.content }}\
                    {% endfor %}{% if add_generation_prompt %}<|turn_start|>bot<|turn_end|>{% endif %}";
    let info = info(&json!({ "chat_template": template }).to_string()).unwrap();
    assert_eq!(info["output_format"]["reasoning_tags"], json!(["<think>", "</think>"]));
}

/// The template treats an answer at the end of the conversation as the beginning of the reply, and
/// leaves its calls out.
#[test]
fn the_last_answer_is_the_beginning_of_the_reply() {
    let template = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}\
        {% set last = messages[-1] %}\
        {% set own = messages[:-1] if last.role == 'assistant' else messages %}\
        {% for m in own %}<|{{ m.role }}|>{{ m.content or '' }}\
        {% for c in m.tool_calls or [] %}<do>{{ c.function.name }} {{ c.function.arguments|tojson }}</do>{% endfor %}\
        <|end|>{% endfor %}\
        {% if last.role == 'assistant' %}<|assistant|><mull>{{ last.content }}{% elif add_generation_prompt %}\
        <|assistant|><mull>{% endif %}";
    check_tags(template, json!(["<mull>", "</mull>"]));
    check(template, None, "Hm.</mull>Yes.", ("Hm.", "Yes."));
}

#[test]
fn a_switch_of_a_prompt_that_cannot_be_rendered() {
    let template = format!(
        "{{% if functions is undefined %}}{{{{ raise_exception('no functions') }}}}{{% endif %}}{}",
        template(PLAIN, "<thought>\n")
    );
    let read = |thinking: Option<bool>| {
        let request =
            json!({ "chat_template": template, "output": "Yes.", "enable_thinking": thinking });
        parse(&request.to_string()).map(|reply| reply["message"]["content"].clone())
    };
    for thinking in [None, Some(false), Some(true)] {
        assert_eq!(read(thinking).unwrap(), "Yes.", "{thinking:?}");
    }
}
