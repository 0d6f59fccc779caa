//! How a template writes a tool call: two renders in, what the call adds out. For the system text of `polyfill_tools`.

use serde_json::{Value, json};

use super::calls::Calls;
use super::frame::Frame;
use super::generation_prompt::{generation_prompt, start_of_unfinished_marker};
use super::prober::Probe;

const NAME: &str = "tool_name";
const VALUE: &str = "some_value";
/// Begins and ends like no call.
const PLAIN: &str = "~answer~";

/// The call as this template writes it, or `polyfill`ed as a request's messages would be. None when name and argument do not
/// both show.
pub(crate) fn of_call(frame: &Frame<'_>, calls: &Calls, polyfill: &dyn Fn(Vec<Value>) -> Vec<Value>) -> Option<String> {
    let user = || frame.message("user", "Hey");
    let render = |messages: Vec<Value>, add_generation_prompt: bool| {
        frame.prober.render(Probe { add_generation_prompt, ..frame.probe(messages) }).ok()
    };
    let call = calls.form.call_of(frame, NAME, json!({ "arg1": VALUE }));
    let messages = if calls.are_shown() { vec![user(), call] } else { typed(frame, polyfill(vec![user(), call])) };
    let full = render(messages, false)?;
    let prompt = render(vec![user()], true)?;
    // What also begins or ends a turn without a call is no part of the call.
    let plain = render(vec![user(), frame.message("assistant", PLAIN)], false).unwrap_or_default();
    let by_prompt = generation_prompt(&full, &prompt);
    let by_turn = generation_prompt(&full, &plain);
    let example = if by_turn.len() < by_prompt.len() { by_turn } else { by_prompt };
    let example = without_turn_end(example, &plain).trim_end_matches(['\n', '\r']);
    (example.contains(NAME) && example.contains(VALUE)).then(|| example.to_owned())
}

/// Calls as the text that stands for them where a template shows none: content, as JSON.
pub(crate) fn as_text(mut messages: Vec<Value>) -> Vec<Value> {
    for message in &mut messages {
        let Some(calls) = message.as_object_mut().and_then(|message| message.remove("tool_calls")) else { continue };
        let written: Vec<Value> = calls.as_array().into_iter().flatten().map(one_as_text).collect();
        let content = serde_json::to_string_pretty(&json!({ "tool_calls": written })).unwrap_or_default();
        message["content"] = content.into();
    }
    messages
}

fn one_as_text(call: &Value) -> Value {
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        arguments => arguments.clone(),
    };
    json!({ "name": function["name"], "arguments": arguments, "id": call["id"] })
}

fn typed(frame: &Frame<'_>, mut messages: Vec<Value>) -> Vec<Value> {
    for message in &mut messages {
        if let Some(text) = message["content"].as_str() {
            message["content"] = frame.content(text);
        }
    }
    messages
}

fn without_turn_end<'a>(example: &'a str, plain: &str) -> &'a str {
    let same = example.bytes().rev().zip(plain.bytes().rev()).take_while(|(a, b)| a == b).count();
    let mut cut = example.len() - same;
    while !example.is_char_boundary(cut) {
        cut += 1;
    }
    // Two different markers may end alike.
    if start_of_unfinished_marker(example, cut) != cut {
        let close = example[cut..].find(['>', ']']).map_or(example.len(), |at| cut + at + 1);
        return &example[..close];
    }
    &example[..cut]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{calls, prober};

    #[track_caller]
    fn check(source: &str, expected: Option<&str>) {
        let mut prober = prober::of(source);
        let frame = Frame::find(&mut prober);
        let calls = calls::probe(&frame);
        assert_eq!(of_call(&frame, &calls, &as_text).as_deref(), expected);
    }

    #[test]
    fn native() {
        let turns = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}";
        let calls =
            "{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments|tojson }}</call>{% endfor %}";
        let tail = "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
        check(&format!("{turns}{calls}{tail}"), Some("<call>tool_name{\"arg1\": \"some_value\"}</call>"));
        // The generation prompt opens a marker that begins like the call's.
        let thinks = format!("{turns}{calls}{}", tail.replace("{% endif %}", "<c>{% endif %}"));
        check(&thinks, Some("<call>tool_name{\"arg1\": \"some_value\"}</call>"));
        // The end of a call and the end of a turn end alike.
        let alike = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls %}<|c|>{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{{ '<|calls_end|>' if m.tool_calls else '<|end|>' }}{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}";
        check(alike, Some("<|c|>tool_name{\"arg1\": \"some_value\"}<|calls_end|>"));
    }

    #[test]
    fn a_role_that_the_generation_prompt_lacks() {
        let source = "{% for m in messages %}### {{ m.role }}:\n{{ m.content or '' }}{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}\n{% endfor %}";
        check(source, Some("<call>tool_name{\"arg1\": \"some_value\"}"));
    }

    #[test]
    fn none_without_an_argument() {
        check("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", None);
        check("{{ raise_exception('never') }}", None);
    }

    #[test]
    fn as_text_of_a_typed_template() {
        let source = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}[/]{% endfor %}{{ '[assistant]' if add_generation_prompt }}";
        let text = "{\n  \"tool_calls\": [\n    {\n      \"name\": \"tool_name\",\n      \"arguments\": {\n        \"arg1\": \"some_value\"\n      },\n      \"id\": \"call00001\"\n    }\n  ]\n}";
        check(source, Some(text));
    }
}
