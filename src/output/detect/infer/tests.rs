//! For every template of the conformance set that writes calls, compares the matching family with
//! the inferred format.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::family::FamilyMatch;
use super::*;
use crate::output::families;
use crate::output::format::Tagged;
use crate::probing::ProbeRenderer;
use crate::template::tests::renders::{data, say, templates};
use crate::template::{Sources, Templates};

fn renderer(templates: &Templates) -> ProbeRenderer<'_> {
    ProbeRenderer::new(|probe| templates.render_probe(probe))
}

/// A call syntax with whitespace removed, because whitespace may differ.
fn without_whitespace(calls: &CallSyntax) -> CallSyntax {
    let strip = |text: &str| text.split_whitespace().collect::<String>().into();
    let part = |part: &CallPart| match part {
        CallPart::Text(text) => CallPart::Text(strip(text)),
        CallPart::Arguments(Encoding::Tagged(tags)) => {
            CallPart::Arguments(Encoding::Tagged(Tagged {
                open: strip(&tags.open),
                after_key: strip(&tags.after_key),
                kind: tags.kind.clone(),
                close: strip(&tags.close),
                separator: strip(&tags.separator),
                entities: tags.entities,
                raw_json: tags.raw_json,
            }))
        }
        other => other.clone(),
    };
    CallSyntax {
        open: strip(&calls.open),
        close: strip(&calls.close),
        separator: if calls.parallel { strip(&calls.separator) } else { "".into() },
        call: calls
            .call
            .iter()
            .map(part)
            .filter(|part| *part != CallPart::Text("".into()))
            .collect(),
        parallel: calls.parallel,
    }
}

/// A template that writes these calls in each turn. In them, `c` is a call and `f` is its function.
fn template(calls: &str) -> Templates {
    let text = format!(
        "{{% for m in messages %}}<|{{{{ m.role }}}}|>{{{{ m.content or '' }}}}{{% if m.tool_calls %}}{calls}{{% endif %}}<|end|>\
         {{% endfor %}}{{% if add_generation_prompt %}}<|assistant|>{{% endif %}}"
    );
    Templates::compile(&Sources { default: Some(text), ..Sources::default() }).unwrap()
}

const EACH: &str = "{% for c in m.tool_calls %}{% set f = c.function %}";

#[track_caller]
fn check(family: &str, calls: &str) {
    let compiled = template(&calls.replace("EACH", EACH).replace("DONE", "{% endfor %}"));
    let renderer = renderer(&compiled);
    let formats = families::all();
    let found = find(&formats, &renderer).map(|(format, kind)| (&*format.family, kind));
    assert_eq!(found, Ok((family, FamilyMatch::Bytes)), "{:?}", infer(&renderer));
    let inferred = infer(&renderer).unwrap().format.calls.unwrap();
    let expected =
        formats.iter().find(|format| format.family == family).unwrap().calls.as_ref().unwrap();
    assert_eq!(without_whitespace(&inferred), without_whitespace(expected));
}

/// Some templates write the type of an object's members into the prompt.
#[test]
fn tools_whose_objects_name_the_type_of_their_members() {
    let calls = "{% for tool in tools if tool.function.parameters.properties.dvrell %}\
                 {% set of_member = tool.function.parameters.properties.dvrell.additionalProperties.type %}{% endfor %}\
                 EACH<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments|tojson }}}\n</tool_call>DONE";
    check("hermes", &calls.replace("DONE", "{{ '' if loop.last else '\n' }}DONE"));
}

/// Formats that no template of the conformance set writes.
#[test]
fn ids_and_types() {
    check(
        "kimi-k2",
        "<|tool_calls_section_begin|>EACH<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ f.arguments|tojson }}\
         <|tool_call_end|>DONE<|tool_calls_section_end|>",
    );
    check(
        "cohere-action",
        "{{ '<|START_ACTION|>[\\n' }}EACH{{ '    {\"tool_call_id\": \"' ~ loop.index0 ~ '\", \"tool_name\": \"' ~ f.name }}\
         {{ '\", \"parameters\": ' ~ f.arguments|tojson ~ '}' ~ ('' if loop.last else ',\\n') }}DONE{{ '\\n]<|END_ACTION|>' }}",
    );
    let nine = "EACH{% if c.id|length != 9 %}{{ raise_exception('nine') }}{% endif %}";
    check(
        "mistral-array",
        &format!(
            "[TOOL_CALLS][{nine}{{{{ '{{\"name\": \"' ~ f.name ~ '\", \"arguments\": ' ~ f.arguments|tojson ~ ', \"id\": \"' ~ c.id }}}}\
             {{{{ '\"}}' ~ ('' if loop.last else ', ') }}}}DONE]"
        ),
    );
    check(
        "mistral-id",
        &format!(
            "{nine}[TOOL_CALLS]{{{{ f.name }}}}[CALL_ID]{{{{ c.id }}}}[ARGS]{{{{ f.arguments|tojson }}}}DONE"
        ),
    );
    check("mistral-args", "EACH[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments|tojson }}DONE");
    check(
        "kimi-k3",
        "<|open|>tools<|sep|>EACH<|open|>call tool=\"{{ f.name }}\" index=\"{{ loop.index }}\"<|sep|>\
         {% for k, v in f.arguments.items() %}<|open|>argument key=\"{{ k }}\" type=\"{% if v is string %}string\
         {% elif v is boolean %}boolean{% elif v is none %}null{% elif v is number %}number{% elif v is mapping %}object\
         {% else %}array{% endif %}\"<|sep|>{{ v if v is string else v|tojson }}<|close|>argument<|sep|>{% endfor %}\
         <|close|>call<|sep|>DONE<|close|>tools<|sep|>",
    );
    check(
        "minicpm5",
        "EACH{{ '' if loop.first else '\\n' }}<function name=\"{{ f.name }}\">{% for k, v in f.arguments.items() %}\
         <param name=\"{{ k }}\">{{ v if v is string else v|tojson }}</param>{% endfor %}</function>DONE",
    );
    check(
        "olmo",
        "<function_calls>EACH{{ '' if loop.first else '\\n' }}{{ f.name }}({% for k, v in f.arguments.items() %}\
         {{ '' if loop.first else ', ' }}{{ k }}={{ v|tojson }}{% endfor %})DONE</function_calls>",
    );
}

#[test]
fn unreadable_calls_are_rejected() {
    let rejected = |calls: &str| {
        let compiled = template(&calls.replace("EACH", EACH).replace("DONE", "{% endfor %}"));
        infer(&renderer(&compiled)).unwrap_err()
    };
    let bare = rejected(
        "EACH[{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v }}, {% endfor %})]DONE",
    );
    assert!(bare.writes_calls && bare.reason.contains("no tag between"), "{bare:?}");
    let quote = rejected(
        "EACH<c>{{ '{\"name\": \"' ~ f.name ~ ', \"arguments\": ' ~ f.arguments|tojson }}}</c>DONE",
    );
    assert!(
        quote.writes_calls && quote.reason.contains("starts as JSON and is not JSON"),
        "{quote:?}"
    );
    assert!(!rejected("EACHcallDONE").writes_calls);
}

#[test]
fn the_templates_of_the_conformance_set() {
    let Some(root) = data("formats of templates") else { return };
    let show = crate::test_support::conformance::shows();
    let formats = families::all();
    let mut lines = Vec::new();
    let (mut exact, mut whitespace, mut channels, mut one_call) = (0, 0, 0, 0);
    let (mut total, mut by_family, mut inferred, mut alike, mut most) = (0, 0, 0, 0, 0);
    let templates = templates(&root);
    let all = templates.len();
    for (name, compiled) in templates {
        let renderer = renderer(&compiled);
        let found = infer(&renderer);
        let inference_renders = renderer.count();
        if found.as_ref().is_err_and(|error| !error.writes_calls) {
            continue;
        }
        let family = find(&formats, &renderer).ok();
        match &family {
            Some((_, FamilyMatch::Bytes)) => exact += 1,
            Some((_, FamilyMatch::IgnoringWhitespace)) => whitespace += 1,
            Some((_, FamilyMatch::Channels)) => channels += 1,
            Some((_, FamilyMatch::OneCall)) => one_call += 1,
            None => {}
        }
        let family = family.map(|(format, _)| format);

        total += 1;
        by_family += usize::from(family.is_some());
        let family_name = family.as_ref().map_or("-", |format| &*format.family).to_owned();
        match found {
            Ok(found) => {
                inferred += 1;
                most = most.max(inference_renders);
                let calls = found.format.calls.as_ref().unwrap();
                let agrees = family.as_ref().is_some_and(|family| {
                    without_whitespace(family.calls.as_ref().unwrap()) == without_whitespace(calls)
                });
                alike += usize::from(agrees);
                lines.push(format!(
                    "{name}: {family_name} {} {:?} reasoning {:?} ends {:?} wrappers {:?}",
                    if agrees {
                        "same"
                    } else if family.is_some() {
                        "OTHER"
                    } else {
                        "alone"
                    },
                    calls,
                    found.format.reasoning,
                    found.format.ends,
                    found.format.wrappers
                ));
            }
            Err(error) => lines.push(format!("{name}: {family_name} NONE {}", error.reason)),
        }
    }
    if show {
        lines.iter().for_each(|line| say(line));
    }
    say(&format!(
        "formats: {total} templates, {by_family} by family ({exact} exact, {whitespace} except for whitespace, {channels} by channels, {one_call} for one call), {inferred} inferred, {alike} alike; at most {most} renders"
    ));
    // No parser can read the rest: strings without quotes, numbers as strings, a name without its
    // closing quote.
    assert!(all - total <= 146 && total - inferred <= 6, "{inferred} of {total} inferred");
    let (other, inexact) = (total - by_family, total - exact);
    assert!(other <= 9 && inexact <= 37, "{by_family} of {total} by family, {exact} exactly");
    assert!(total - alike <= 25, "{alike} as their family");
    assert!(most <= 64, "{most} renders");
}
