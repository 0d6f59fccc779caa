//! Tests the derivation of small templates and of the shared conformance data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;

use super::*;

fn derived(source: &str) -> Derivation {
    derive(&Sources {
        default: Some(source.to_owned()),
        bos_token: "<s>".to_owned(),
        ..Sources::default()
    })
    .unwrap()
}

#[track_caller]
fn check(source: &str, expected: [PartStatus; 5]) -> Value {
    let derivation = derived(source);
    let statuses: Vec<PartStatus> = derivation.parts.iter().map(|result| result.status).collect();
    assert_eq!(statuses, expected, "{}", derivation.to_json());
    derivation.to_json()
}

const TURNS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}";
const PROMPT: &str = "{% if add_generation_prompt %}<assistant>{% endif %}";

#[test]
fn one_form_for_all_roles() {
    use PartStatus::{Exact, Ignores};
    let source =
        format!("{{{{ bos_token }}}}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
    let json = check(&source, [Exact, Exact, Ignores, Ignores, Exact]);
    assert_eq!(
        json["spec"],
        json!({
            "system_template": "<system>{system_message}</>\n",
            "user_template": "<user>{content}</>\n",
            "assistant_template": "<assistant>{content}</>\n",
            "observations_template": "{observations}",
            "single_observation_template": "<tool>{observation}</>\n",
            "stop_words": ["</>"],
            "late_system_template": "<system>{content}</>\n",
            "global_policy": { "prefix": "<s>" },
            "system_policy": { "use_system_without_system_message": false, "use_system_with_tools_provided": false },
        })
    );
    let residual = json["residual"].as_array().unwrap();
    assert!(residual.contains(&json!("developer messages render differently")), "{residual:?}");
}

#[test]
fn places() {
    use PartStatus::{Exact, Ignores};
    // A system text before the first user message.
    let system = "{% set s = messages[0].content if messages and messages[0].role == 'system' else '' %}\
        {% set seen = namespace(user=false) %}{% for m in messages if m.role != 'system' %}<{{ m.role }}>\
        {% if m.role == 'user' and not seen.user %}{% set seen.user = true %}{{ s ~ '\\n\\n' if s }}{% endif %}\
        {{ m.content or '' }}</>{% endfor %}";
    let json = check(&format!("{system}{PROMPT}"), [Exact, Exact, Ignores, Ignores, Exact]);
    assert_eq!(json["spec"]["system_template"], "{system_message}\n\n");
    assert_eq!(json["spec"]["system_policy"]["placement"], "FIRST_USER");
    assert_eq!(json["spec"]["system_policy"]["empty_message"], "as_none");
    // The date, and each tool on its own line. An empty list of tools prints the header.
    let tools = "[{{ strftime_now('%d %B %Y') }}]{% if tools is not none and tools is defined %}T{% for t in tools %}\
        {{ '\\n' ~ (t | tojson) }}{% endfor %}{% endif %}";
    let source = format!("{tools}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
    let json = check(&source, [Exact, Exact, Exact, Ignores, Exact]);
    let spec = &json["spec"];
    assert_eq!(
        (&spec["tools_template"], &spec["single_tool_template"]),
        (&json!("T{tools}"), &json!("\n{tool}"))
    );
    assert_eq!(spec["system_policy"]["date_format"], "%d %B %Y");
    assert_eq!(spec["tool_policy"]["empty_list"], "as_tools");
}

#[test]
fn what_blocks_cannot_express_is_never_exact() {
    use PartStatus::{Exact, Ignores, Opaque, Partial};
    // The date is inside the system text.
    check(
        &format!("[{{{{ strftime_now('%j') }}}}]{TURNS}{PROMPT}"),
        [Partial, Partial, Ignores, Ignores, Partial],
    );
    // A tool's description is printed in title case.
    let tools = "{% for t in tools or [] %}({{ t.function.name }}: {{ t.function.description | title }}){% endfor %}";
    let source = format!("{tools}{TURNS}{PROMPT}").replace("m.content", "m.content or ''");
    let json = check(&source, [Exact, Exact, Partial, Ignores, Partial]);
    assert!(json["parts"]["tools"]["reason"].as_str().unwrap().contains("no formatter"), "{json}");
    // The prompt is constant.
    let json = check("always the same", [Opaque, Ignores, Ignores, Ignores, Ignores]);
    assert_eq!(json["spec"], Value::Null);
    assert_eq!(json["residual"], json!(["the text of a user message is not printed once"]));
}

#[test]
fn forms_of_calls_come_back() {
    for (name, _, components) in crate::compose::tests::examples::calls() {
        let composed = Composed::parse(&components, "components").unwrap();
        let derivation = derive(&composed.sources()).unwrap();
        for part in [DerivedPart::Calls, DerivedPart::Results] {
            let status = derivation.status(part);
            let ignored = part == DerivedPart::Results && name == "as Python calls functions";
            let expected = if ignored { PartStatus::Ignores } else { PartStatus::Exact };
            assert_eq!(status, expected, "{name} {}: {}", part.as_str(), derivation.to_json());
        }
    }
}

#[test]
fn a_hostile_template_takes_few_renders() {
    let derivation =
        derived("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    assert_eq!(derivation.spec, None);
    assert!(derivation.renders <= MAX_RENDERS);
}
