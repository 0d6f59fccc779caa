//! An example of a tool call as a template writes it, for the system text of `polyfill_tools`.
//! Found by comparing renders with and without the call.

use serde_json::{Value, json};

use super::baseline::Baseline;
use crate::probing::Probe;
use crate::probing::diff::{common_suffix, generation_prompt, start_of_unfinished_marker};

const NAME: &str = "tool_name";
const VALUE: &str = "some_value";
const ID: &str = "call00001";
/// An answer that starts and ends differently from any call.
const PLAIN: &str = "~answer~";

/// A call as the template writes it. `prepare` changes messages like the polyfills of a request.
/// `None` if the template does not show both the name and the argument.
pub(crate) fn find(
    base: &Baseline<'_>,
    prepare: &dyn Fn(Vec<Value>) -> Option<Vec<Value>>,
) -> Option<String> {
    let message = |role: &str, text: &str| json!({ "role": role, "content": text });
    let render = |messages: Vec<Value>, add_generation_prompt: bool| {
        base.prober.render(Probe { add_generation_prompt, ..base.probe(prepare(messages)?) }).ok()
    };
    let function = json!({ "name": NAME, "arguments": json!({ "arg1": VALUE }).to_string() });
    let call = json!({ "id": ID, "type": "function", "function": function });
    let call = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let full = render(vec![message("user", "Hey"), call], false)?;
    let prompt = render(vec![message("user", "Hey")], true)?;
    // Text that also starts or ends a turn without a call is not part of the call.
    let plain = render(vec![message("user", "Hey"), message("assistant", PLAIN)], false)
        .unwrap_or_default();
    let by_prompt = generation_prompt(&full, &prompt);
    let by_turn = generation_prompt(&full, &plain);
    let example = if by_turn.len() < by_prompt.len() { by_turn } else { by_prompt };
    let example = without_turn_end(example, &plain).trim_end_matches(['\n', '\r']);
    (example.contains(NAME) && example.contains(VALUE)).then(|| example.to_owned())
}

fn without_turn_end<'a>(example: &'a str, plain: &str) -> &'a str {
    let cut = example.len() - common_suffix(example, plain);
    // Two different markers may end alike.
    if start_of_unfinished_marker(example, cut) != cut {
        let close = example[cut..].find(['>', ']']).map_or(example.len(), |at| cut + at + 1);
        return &example[..close];
    }
    &example[..cut]
}

#[cfg(test)]
mod tests {
    use crate::template::probe::{prober, template_caps};

    /// Checks the example of a template. `source` does not show tools, so the report includes an
    /// example.
    #[track_caller]
    fn check(source: &str, expected: Option<&str>) {
        let traits = template_caps::report(prober::for_source(source)).traits;
        assert_eq!(traits.tool_call_example.as_deref(), expected);
    }

    #[test]
    fn native() {
        let turns = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}";
        let calls = "{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments|tojson }}</call>{% endfor %}";
        let tail = "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
        check(
            &format!("{turns}{calls}{tail}"),
            Some("<call>tool_name{\"arg1\": \"some_value\"}</call>"),
        );
        // The generation prompt ends with a marker that starts like the call's marker.
        let thinks = format!("{turns}{calls}{}", tail.replace("{% endif %}", "<c>{% endif %}"));
        check(&thinks, Some("<call>tool_name{\"arg1\": \"some_value\"}</call>"));
        // The markers at the end of a call and at the end of a turn end alike.
        let alike = "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls %}<|c|>{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{{ '<|calls_end|>' if m.tool_calls else '<|end|>' }}{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}";
        check(alike, Some("<|c|>tool_name{\"arg1\": \"some_value\"}<|calls_end|>"));
    }

    #[test]
    fn the_generation_prompt_may_lack_the_role() {
        let source = "{% for m in messages %}### {{ m.role }}:\n{{ m.content or '' }}{% for c in m.tool_calls %}<call>{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}\n{% endfor %}";
        check(source, Some("<call>tool_name{\"arg1\": \"some_value\"}"));
    }

    #[test]
    fn no_example_without_an_argument() {
        check(
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            None,
        );
        check("{{ raise_exception('never') }}", None);
    }

    #[test]
    fn text_of_a_typed_template() {
        let source = "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}{{ p.text }}{% endfor %}[/]{% endfor %}{{ '[assistant]' if add_generation_prompt }}";
        let text = "{\n  \"tool_calls\": [\n    {\n      \"name\": \"tool_name\",\n      \"arguments\": {\n        \"arg1\": \"some_value\"\n      },\n      \"id\": \"call00001\"\n    }\n  ]\n}";
        check(source, Some(text));
    }
}
