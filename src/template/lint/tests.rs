//! Lints of whole templates: each code with and without its cause, and the shared conformance data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use super::{Lint, MAX};
use crate::jinja::thread_time;
use crate::template::tests::renders::{data, say, templates};
use crate::template::{Sources, Templates};

fn review(default: &str) -> Vec<Lint> {
    let sources = Sources { default: Some(default.to_owned()), ..Sources::default() };
    Templates::compile(&sources).unwrap().lints().to_vec()
}

#[test]
fn the_corpus() {
    let Some(root) = data("lints of the corpus") else { return };
    let show = std::env::var("LLB_FINDINGS_SHOW").unwrap_or_default();
    let mut codes: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut slowest, mut longest) = ((0, String::new()), 0);
    for (name, templates) in templates(&root) {
        templates.traits();
        let started = thread_time();
        let lints = templates.lints();
        slowest = slowest.max((thread_time().saturating_sub(started).as_millis(), name.clone()));
        longest = longest.max(lints.len());
        assert!(lints.len() <= MAX, "{name}");
        for lint in lints {
            *codes.entry(lint.code).or_default() += 1;
            assert_eq!(lint.template, "default");
            assert!(!lint.message.is_empty());
            if !show.is_empty() && lint.code.contains(&show) {
                say(&format!("{name}:{:?}: {} {}", lint.line, lint.code, lint.message));
            }
        }
    }
    for (code, count) in &codes {
        say(&format!("{count:5} {code}"));
    }
    say(&format!("lints: the most {longest}, the slowest {} ms ({})", slowest.0, slowest.1));
    if !cfg!(debug_assertions) {
        assert!(slowest.0 < 2000, "{slowest:?}");
    }
}

/// Prints every message with its reasoning, and calls as JSON.
const TURNS: &str = "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content if m.content is string else m.content|map(attribute='text')|join if m.content }}{% for c in m.tool_calls %}<call>{{ c.function|tojson }}{% endfor %}</>{% endfor %}{{ '<assistant>' if add_generation_prompt }}";

/// A template that prints its tools and then its messages.
fn with_tools(turns: &str) -> String {
    format!("{{% if tools %}}<tools>{{{{ tools|tojson }}}}</tools>{{% endif %}}{turns}")
}

#[track_caller]
fn codes(source: &str) -> Vec<&'static str> {
    review(source).into_iter().map(|lint| lint.code).collect()
}

/// Checks that the template has a lint with this code, these words and this line, and that a good
/// template has none with this code.
#[track_caller]
fn check(source: &str, code: &str, words: &str, line: Option<usize>) {
    let lints = review(source);
    let found = lints.iter().find(|lint| lint.code == code && lint.message.contains(words));
    let found = found.unwrap_or_else(|| panic!("no {code} with {words:?} in {lints:#?}"));
    assert_eq!(found.line, line, "{found:?}");
    assert!(!codes(&with_tools(TURNS)).contains(&code));
}

#[test]
fn a_good_template_has_no_lints() {
    let none: [&str; 0] = [];
    assert_eq!(codes(&with_tools(TURNS)), none);
}

#[test]
fn source() {
    check(
        "{% if x == 1 %}\n{% include 'x' %}{% endif %}{{ messages }}",
        "loader_tag",
        "no loader",
        Some(2),
    );
    check(
        "{% if tools == 1 %}{{ 1|nothing }}{% endif %}{{ messages[0].content }}",
        "unknown_filter",
        "`nothing`",
        Some(1),
    );
    check(
        "{% if tools == 1 %}{{ 1 is nothing }}{% endif %}{{ messages[0].content }}",
        "unknown_test",
        "`nothing`",
        Some(1),
    );
    check(
        "\u{feff}{%- if tools %}{% endif %}{{ messages[0].content }}",
        "byte_order_mark",
        "U+FEFF",
        Some(1),
    );
    check(
        "{{ messages[0].content }}\n{{ strange }}",
        "undocumented_variable",
        "`strange`",
        Some(2),
    );
    let known = "{{ messages[0].content }}{{ enable_thinking }}{{ reasoning_effort }}{{ bos_token }}{{ dict() }}{{ documents }}";
    assert!(!codes(known).contains(&"undocumented_variable"));
    let needs = "{{ messages[0].content }}\n{{ 'a' + strange }}";
    check(needs, "needs_variable", "`strange`", Some(2));
    assert!(!codes(needs).contains(&"undocumented_variable"));
    check("{{ messages[0].content ~ tools|length }}", "needs_tools_list", "a list", None);
    check("\n{{ raise_exception('never') }}", "does_not_render", "never", Some(2));
}

#[test]
fn refused_conversations() {
    let refuse = |condition: &str| {
        with_tools(&format!(
            "\n{{% if {condition} %}}{{{{ raise_exception('No {{x}}') }}}}{{% endif %}}{TURNS}"
        ))
    };
    #[track_caller]
    fn refuses(source: &str, code: &str) {
        check(source, code, "the template refuses", Some(2));
        check(source, code, ": No {x}", Some(2));
    }
    let roles =
        |roles: &str| refuse(&format!("messages|map(attribute='role')|join(' ') == '{roles}'"));
    refuses(&roles("system user"), "raises_on_system");
    refuses(&roles("system"), "raises_on_no_user");
    refuses(&roles("developer user"), "raises_on_developer");
    refuses(&roles("user user"), "raises_on_two_users");
    refuses(&roles("user assistant user"), "raises_on_assistant");
    refuses(&roles("user assistant system user"), "raises_on_later_system");
    refuses(&roles("user assistant assistant user"), "raises_on_two_assistants");
    refuses(&roles("assistant user"), "raises_on_assistant_first");
    refuses(
        &roles("user assistant")
            .replace("messages|", "(messages if not messages[-1].tool_calls else [])|"),
        "raises_on_assistant_last",
    );
    refuses(&roles("user assistant tool"), "raises_on_tool_result");
    refuses(
        &refuse("messages[-2] and messages[-2].role == 'tool' and messages[-1].role == 'user'"),
        "raises_on_user_after_result",
    );
    refuses(
        &refuse("messages|length > 3 and messages[3].role == 'assistant'"),
        "raises_on_answered_result",
    );
    refuses(&refuse("messages[0].content is not string"), "raises_on_content_parts");
    refuses(&refuse("messages[0].content == ''"), "raises_on_empty_user");
    refuses(&refuse("messages|length > 2 and messages[1].content == ''"), "raises_on_empty_answer");
    refuses(&refuse("tools"), "raises_on_tools");
    refuses(&refuse("tools and not tools[0].function.description"), "raises_on_bare_tool");
    let call = |condition: &str| {
        refuse(&format!("messages[1] and messages[1].tool_calls and {condition}"))
    };
    refuses(&call("true"), "raises_on_tool_call");
    refuses(&call("messages[1].tool_calls|length > 1"), "raises_on_parallel_calls");
    refuses(
        &call("messages[1].tool_calls[0].function.arguments is string"),
        "raises_on_string_arguments",
    );
    let object = call("messages[1].tool_calls[0].function.arguments is mapping");
    refuses(
        &object.replace("c.function|tojson", "c.function.name ~ c.function.arguments"),
        "raises_on_object_arguments",
    );
    refuses(
        &call("messages[1].tool_calls[0].function.arguments == {}"),
        "raises_on_empty_arguments",
    );
    refuses(
        &call("none in messages[1].tool_calls[0].function.arguments.values()"),
        "raises_on_null_argument",
    );
    refuses(&call("messages[1].tool_calls[0].id|length != 9"), "raises_on_long_call_ids");
    refuses(&call("messages[1].content is undefined"), "raises_on_absent_content_beside_calls");
    refuses(&call("messages[1].content is none"), "raises_on_null_content_beside_calls");
    refuses(&call("messages[1].content"), "raises_on_content_beside_calls");
    refuses(
        &call("messages[1].content and messages[1].reasoning_content"),
        "raises_on_reasoning_beside_calls",
    );
    refuses(&call("messages[2] and not messages[2].name"), "raises_on_result_without_name");
    refuses(&call("messages[2] and add_generation_prompt"), "raises_on_prompt_after_result");
    let typed = "{% for m in messages %}{% if m.content is string %}{{ raise_exception('no') }}{% endif %}{{ m.content[0].text }}{% endfor %}";
    check(typed, "raises_on_string_content", ": no", Some(1));
    let fails = with_tools(&format!(
        "{{% if messages[0].role == 'system' %}}{{{{ 1 + 'a' }}}}{{% endif %}}{TURNS}"
    ));
    check(&fails, "raises_on_system", "the template fails on a system message", Some(1));
}

#[test]
fn losses() {
    let skip = |condition: &str| {
        with_tools(&TURNS.replace(
            "<{{ m.role }}>",
            &format!("{{% if {condition} %}}{{% continue %}}{{% endif %}}"),
        ))
    };
    check(&skip("m.role == 'system'"), "drops_system", "", None);
    check(&skip("m.role == 'system' and not loop.first"), "drops_later_system", "", None);
    check(&skip("m.role == 'developer'"), "drops_developer", "", None);
    check(&skip("m.role == 'user' and not loop.last"), "drops_history", "", None);
    check(&skip("m.role == 'user' and not loop.first"), "drops_last_user", "", None);
    check(&skip("m.role == 'assistant' and not m.tool_calls"), "drops_answers", "", None);
    check(&skip("m.role == 'tool'"), "drops_tool_results", "", None);
    check(TURNS, "drops_tools", "", None);
    let severity = |source: &str, code: &str| {
        review(source).into_iter().find(|f| f.code == code).map(|f| f.severity.as_str())
    };
    let no_calls = TURNS.replace("<call>{{ c.function|tojson }}", "");
    check(&with_tools(&no_calls), "drops_tool_calls", "", None);
    assert_eq!(severity(&with_tools(&no_calls), "drops_tool_calls"), Some("error"));
    assert_eq!(severity(&no_calls, "drops_tool_calls"), Some("info"));
    check(
        &with_tools(&TURNS.replace("in m.tool_calls", "in (m.tool_calls or [])[:1]")),
        "drops_parallel_calls",
        "",
        None,
    );
    let content = TURNS.replace(
        "m.content if m.content is string",
        "m.content if m.content is string and not m.tool_calls",
    );
    check(&with_tools(&content), "drops_content_beside_calls", "", None);
    check(
        &with_tools(&TURNS.replace("{{ m.reasoning_content }}", "")),
        "drops_reasoning",
        "",
        None,
    );
    let last = TURNS.replace("{{ m.reasoning_content }}", "{{ m.reasoning_content if loop.last }}");
    check(&with_tools(&last), "drops_old_reasoning", "", None);
    check(
        &with_tools(&TURNS.replace("|join if m.content", "|first if m.content")),
        "drops_content_parts",
        "the second",
        None,
    );
    check(
        &with_tools(&TURNS.replace("m.content|map(attribute='text')|join if m.content", "''")),
        "drops_content_parts",
        "content as",
        None,
    );
}

#[test]
fn python_repr() {
    let print = |shown: &str| with_tools(&TURNS.replace("c.function|tojson", shown));
    check(
        &print("c.function.name ~ c.function.arguments"),
        "prints_python_repr",
        "an object",
        None,
    );
    let items = "c.function.name }}{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}{{ ''";
    check(&print(items), "prints_python_repr", "is true", None);
    check(&print(items), "prints_none", "a null argument", None);
    // Calls in Python notation are not a mistake.
    let calls = "c.function.name }}({% for k, v in c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}{{ ')'";
    assert!(!codes(&print(calls)).iter().any(|code| code.starts_with("prints_")));
    check(
        &with_tools(TURNS).replace("tools|tojson", "tools"),
        "prints_python_repr",
        "declared tools",
        None,
    );
    let parts = with_tools(
        &TURNS.replace("m.content|map(attribute='text')|join if m.content", "m.content"),
    );
    check(&parts, "prints_python_repr", "text parts", None);
    let result =
        with_tools(&TURNS.replace("<{{ m.role }}>", "<{{ m.get('name') if m.role == 'tool' }}>"));
    check(&result, "prints_none", "without the name of the tool", None);
    let described = with_tools(TURNS)
        .replace("tools|tojson", "tools|tojson ~ tools[0].function.get('description')");
    check(&described, "prints_none", "without a description", None);
    let null = with_tools(&TURNS.replace(
        "m.content if m.content is string",
        "m.content if m.content is string or m.content is none",
    ));
    check(&null, "prints_none", "null content", None);
    let absent = with_tools(&TURNS.replace(
        "m.content if m.content is string",
        "m.get('content') if m.get('content') is string or m.get('content') is none",
    ));
    check(&absent, "prints_none", "without the member `content`", None);
}

#[test]
fn instructions() {
    let first = |said: &str| with_tools(&format!("\n{said}{TURNS}"));
    check(
        &first("<system>You are a very good bot.</>"),
        "hidden_instructions",
        "adds to every prompt, even with a system message: You are a very good bot.",
        Some(2),
    );
    let default =
        "{% if messages[0].role != 'system' %}\n{{ 'Be good to all people.' }}{% endif %}";
    check(
        &first(default),
        "hidden_instructions",
        "adds unless there is a system message: Be good to all people.",
        Some(3),
    );
    check(
        &first("{{ 'Think it over very carefully.' if add_generation_prompt }}"),
        "hidden_instructions",
        "generation prompt",
        Some(2),
    );
    let turn = with_tools(&TURNS.replace(
        "<{{ m.role }}>",
        "<{{ m.role }}>{{ 'Below is a question that is put.' if m.role == 'user' }}",
    ));
    check(&turn, "hidden_instructions_in_turns", "every user turn: Below is", Some(1));
    let turn = with_tools(&TURNS.replace(
        "<{{ m.role }}>",
        "<{{ m.role }}>{{ 'Here is what was said.' if m.role == 'assistant' }}",
    ));
    check(&turn, "hidden_instructions_in_turns", "assistant turn: Here is", Some(1));
    let long = "so many words ".repeat(50);
    let found = review(&first(&long));
    let message = &found.iter().find(|f| f.code == "hidden_instructions").unwrap().message;
    assert!(message.ends_with('…') && message.len() < 300, "{message}");
}

#[test]
fn contents_and_order() {
    let content = |shown: &str| {
        with_tools(&TURNS.replace(
            "m.content if m.content is string",
            &format!("({shown}) if m.content is string"),
        ))
    };
    check(
        &content("m.content.split('</t>')[-1]"),
        "rewrites_content",
        "`</t>` is changed (system, user, assistant)",
        Some(1),
    );
    check(&content("m.content|replace('<a>', '')"), "rewrites_content", "`<a>`", Some(1));
    assert!(
        !codes(&content("m.content ~ ('' if '<a>' in m.content else '')"))
            .contains(&"rewrites_content")
    );
    check(&content("m.content|trim"), "strips_content", "(system, user, assistant)", Some(1));
    check(
        &content("m.content|trim if m.role == 'user' else m.content"),
        "strips_content",
        "(user)",
        Some(1),
    );
    let last = with_tools(&TURNS.replace("<{{ m.role }}>", "{% if m.role == 'system' %}{% continue %}{% endif %}{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"));
    check(&last, "reorders_messages", "a system message", None);
    check(
        &with_tools(&TURNS.replace("<{{ m.role }}>", "{{ messages[0].content }}")),
        "repeats_content",
        "message",
        None,
    );
    let declared = "{% if loop.last and tools %}{{ tools|tojson }}{% endif %}";
    check(
        &TURNS.replace("<{{ m.role }}>", declared),
        "breaks_prompt_cache",
        "when tools are declared",
        None,
    );
    check(
        &with_tools(&format!("{{{{ messages|length }}}}{TURNS}")),
        "breaks_prompt_cache",
        "from byte 0",
        None,
    );
    check(
        &with_tools(&format!("\n{{{{ strftime_now('%Y-%m-%d') }}}}{TURNS}")),
        "depends_on_date",
        "contains the date",
        Some(2),
    );
    check(
        &with_tools(&format!("{{{{ strftime_now('%H:%M') }}}}{TURNS}")),
        "depends_on_date",
        "time of day",
        Some(1),
    );
    check(
        &with_tools(&format!("{{{{ strftime_now('%Y') if x }}}}{TURNS}")),
        "depends_on_date",
        "reads the date",
        Some(1),
    );
    check(
        &with_tools(&format!("{{{{ strftime_now('%d') if tools }}}}{TURNS}")),
        "depends_on_date",
        "when tools",
        Some(1),
    );
}

#[test]
fn two_templates_or_none() {
    let of = |default: Option<&str>, tool_use: Option<&str>| {
        let own = |text: &str| text.to_owned();
        let sources = Sources {
            default: default.map(own),
            tool_use: tool_use.map(own),
            ..Sources::default()
        };
        let templates = Templates::compile(&sources).unwrap();
        templates.lints().iter().map(|f| (f.code, f.template)).collect::<Vec<_>>()
    };
    let (good, strange) = (with_tools(TURNS), with_tools(&format!("{{{{ strange }}}}{TURNS}")));
    assert_eq!(of(Some(&good), Some(&strange)), [("undocumented_variable", "tool_use")]);
    assert_eq!(of(Some(&strange), Some(&good)), [("undocumented_variable", "default")]);
    assert_eq!(of(None, Some(&strange)), [("undocumented_variable", "tool_use")]);
    assert_eq!(of(Some(&good), Some("{% if %}")), [("tool_use_template_ignored", "tool_use")]);
    assert_eq!(of(None, None), [("no_chat_template", "chatml")]);
}
