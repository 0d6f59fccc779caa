//! Replies in formats that no family has and no template of the conformance set writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::template_requests::{info, parse};

/// A template whose messages are `<|open|>ROLE`, a line break, the text and `<|shut|>`. `calls`
/// writes the calls of a message `m`.
fn in_turns(calls: &str) -> String {
    format!(
        "{{% for t in tools or [] %}}{{{{ t|tojson }}}}{{% endfor %}}\
         {{% for m in messages %}}<|open|>{{{{ m.role }}}}\n{{{{ m.content or '' }}}}{calls}<|shut|>\n\
         {{% endfor %}}{{% if add_generation_prompt %}}<|open|>assistant\n{{% endif %}}"
    )
}

/// A template whose assistant turn consists of blocks, each with the header `<|bot|>`.
const BLOCKS: &str = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{% for m in messages %}\
    {% if m.role == 'assistant' %}\
    {% if m.reasoning_content %}<|bot|><|thought|>{{ m.reasoning_content }}<|stop|>{% endif %}\
    {% if m.content %}<|bot|><|answer|>{{ m.content }}<|stop|>{% endif %}\
    {% for c in m.tool_calls or [] %}<|bot|>{{ c.function.name }}<|invoke|>\
    {\"name\": \"{{ c.function.name }}\", \"args\": {{ c.function.arguments|tojson }}}<|stop|>{% endfor %}<|finished|>\
    {% else %}<|{{ m.role }}|><|answer|>{{ m.content }}<|stop|>{% endif %}{% endfor %}\
    {% if add_generation_prompt %}<|bot|>{% endif %}";

fn tools() -> Value {
    let of = |name: &str, properties: Value| {
        let parameters = json!({ "type": "object", "properties": properties });
        let function = json!({ "name": name, "description": "Does it.", "parameters": parameters });
        json!({ "type": "function", "function": function })
    };
    let place = json!({ "city": { "type": "string" }, "days": { "type": "integer" } });
    json!([of("weather", place), of("ping", json!({}))])
}

/// Asserts the message and the diagnostics of a reply. `calls` are names and arguments.
#[track_caller]
fn check(template: &str, output: &str, text: (&str, &str), calls: &[(&str, &str)], codes: &[&str]) {
    let request = json!({ "chat_template": template, "output": output, "tools": tools() });
    let reply = parse(&request.to_string()).unwrap();
    let message = &reply["message"];
    let of = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
    assert_eq!((&*of("reasoning_content"), &*of("content")), text, "{reply}");
    let found = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
        let function = &call["function"];
        (function["name"].as_str().unwrap(), function["arguments"].as_str().unwrap())
    });
    assert_eq!(found.collect::<Vec<_>>(), calls, "{reply}");
    let found = reply["diagnostics"].as_array().unwrap().iter().map(|it| it["code"].as_str());
    assert_eq!(found.map(Option::unwrap).collect::<Vec<_>>(), codes, "{reply}");
}

#[track_caller]
fn template_info(template: &str) -> Value {
    info(&json!({ "chat_template": template }).to_string()).unwrap()
}

#[track_caller]
fn assert_verified(template: &str) {
    let info = template_info(template);
    let format = &info["output_format"];
    assert_eq!(format["tool_calls"], "verified", "{}", info["evidence"]["tool_call_format"]);
}

#[test]
fn a_header_that_a_reply_repeats_is_not_text() {
    assert_verified(BLOCKS);
    check(
        BLOCKS,
        "<|thought|>Hm.<|stop|><|bot|><|answer|>Done.<|stop|><|finished|>",
        ("Hm.", "Done."),
        &[],
        &["eog_text_removed"],
    );
    check(
        BLOCKS,
        "<|thought|>Hm.<|stop|><|bot|>weather<|invoke|>\
         {\"name\": \"weather\", \"args\": {\"city\": \"Ulm\"}}<|stop|>\
         <|bot|>ping<|invoke|>{\"name\": \"ping\", \"args\": {}}<|stop|><|finished|>",
        ("Hm.", ""),
        &[("weather", "{\"city\": \"Ulm\"}"), ("ping", "{}")],
        &["eog_text_removed"],
    );
    check(
        BLOCKS,
        "<|answer|>Sure.<|stop|><|bot|>ping<|invoke|>{\"name\": \"ping\", \"args\": {}}<|stop|><|finished|>",
        ("", "Sure."),
        &[("ping", "{}")],
        &["eog_text_removed"],
    );
}

#[test]
fn parameters_name_the_types_of_json_schema() {
    let template = in_turns(
        "{% for c in m.tool_calls or [] %}<do>{{ c.function.name }}\
         {% for k, v in c.function.arguments.items() %}<key>{{ k }}</key><is>\
         {% if v is string %}string{% elif v is boolean %}boolean{% elif v is integer %}integer\
         {% elif v is number %}number{% elif v is none %}null{% elif v is mapping %}object\
         {% else %}array{% endif %}</is><value>{{ v if v is string else v|tojson }}</value>\
         {% endfor %}</do>{% endfor %}",
    );
    assert_verified(&template);
    check(
        &template,
        "<do>weather<key>city</key><is>string</is><value>7</value>\
         <key>days</key><is>integer</is><value>3</value></do>",
        ("", ""),
        &[("weather", "{\"city\": \"7\", \"days\": 3}")],
        &[],
    );
}

/// Such a template ends a history with the header of the next turn, whatever is requested.
#[test]
fn a_header_that_every_history_ends_with_is_not_part_of_a_call() {
    let template = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{% for m in messages %}\
        {% if m.role == 'user' %}<|user|>{{ m.content }}<|shut|>{% elif m.role == 'assistant' %}<|bot|>\
        {{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '\n' if not loop.first }}<tool_call>\n\
        {\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}\n\
        </tool_call>{% endfor %}<|shut|>{% endif %}{% endfor %}<|bot|>";
    assert_eq!(template_info(template)["output_format"]["family"], "hermes");
}

#[test]
fn evidence_says_why_calls_cannot_be_parsed() {
    let template = in_turns(
        "{% for c in m.tool_calls or [] %}call {{ c.function.name }}\n\
         {% for k, v in c.function.arguments.items() %}{{ k }} := {{ v|tojson }}\n{% endfor %}\
         {% endfor %}",
    );
    let info = template_info(&template);
    assert_eq!(info["output_format"]["tool_calls"], "unverified");
    let evidence = &info["evidence"]["tool_call_format"];
    assert_eq!(evidence["status"], "unknown");
    let because = evidence["because"].as_str().unwrap();
    assert!(because.ends_with("there is no tag between two arguments"), "{because}");
}
